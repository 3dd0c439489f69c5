"""Memory used while a text is generated, against the memory that there is."""

from collections.abc import Collection, Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .picture import ACCENT, BLUE, DARK, GREY, WIDTH, add_axes, head_height, new_picture, put_title, styled

MIB = 2**20


@styled
def memory_in_use(attempts: Mapping[str, Sequence[int]], memory: int, failed: Collection[str] = ()) -> Figure:
    """Bytes in use after each layer of each step, one attempt after the other.

    attempts: {label: bytes, one number a layer and step}; failed: labels of those that ended out of memory, marked by a
    cross; memory: bytes that the device has, the dashed line.
    """
    if not attempts or not all(attempts.values()):
        raise ValueError("give at least one attempt, {label: bytes in use}, each with a number or more")
    if unknown := set(failed) - set(attempts):
        raise ValueError(f"failed names {', '.join(sorted(unknown))}; the attempts are {', '.join(attempts)}")
    claims = [
        f"{label}: {'does not fit' if label in failed else f'at most {_mib(max(used))}'}"
        for label, used in attempts.items()
    ]
    title = f"The device has {_mib(memory)}; {'; '.join(claims)}"
    fig = new_picture(0.6 + 2.7 + head_height(title))
    ax = add_axes(fig, 0.75, 0.6, WIDTH - 1.0, 2.7)
    ax.axhline(memory / MIB, linestyle=(0, (5, 3)), color=GREY, linewidth=1.5)
    above = {"xytext": (0, 5), "textcoords": "offset points"}
    ax.annotate("  what the device has", (0, memory / MIB), color="#4a525a", **above)
    begin, top = 0, max(memory, *map(max, attempts.values())) / MIB
    for colour, (label, used) in zip([DARK, BLUE] * len(attempts), attempts.items(), strict=False):
        x, y = range(begin, begin + len(used)), [nbytes / MIB for nbytes in used]
        ax.fill_between(x, y, step="post", color=colour, linewidth=0, alpha=0.16)
        ax.plot(x, y, color=colour, drawstyle="steps-post")
        place, height = begin + len(used) / 2, max(y[: len(y) // 2 + 1]) if label in failed else max(y)
        ax.annotate(label, (place, height), ha="right" if label in failed else "center", color=colour, **above)
        ax.texts[-1].set_weight("bold")
        if label in failed:
            ax.plot(x[-1:], y[-1:], "X", color=ACCENT, markersize=12)
            ax.annotate("out of memory", (x[-1], y[-1]), (9, -3), textcoords="offset points", va="top")
            ax.texts[-1].set_color("#8f3a06")
        begin += len(used)
    ax.set(xlim=(0, begin), ylim=(0, 1.15 * top), xlabel="measurements, layer after layer", ylabel="MiB in use")
    ax.yaxis.set_major_locator(MaxNLocator(5))
    put_title(fig, title)
    fig.alt = f"{title}. Bytes in use, measured {begin:,} times, and a dashed line: the memory."
    return fig


def _mib(nbytes: float) -> str:
    return f"{nbytes / MIB:.1f} MiB"
