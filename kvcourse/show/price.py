"""What one forward costs: seconds against the tokens in it."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from .picture import DARK, GREY, WIDTH, add_axes, head_height, new_picture, plural, put_title, styled


@styled
def price_of_a_forward(tokens: Sequence[int], seconds: Sequence[float]) -> Figure:
    """Seconds of one forward against the tokens in it, both axes logarithmic.

    The dashed line is what the cost would be if each token cost as much as the first measurement's.
    """
    tokens, seconds = list(tokens), [float(s) for s in seconds]
    if len(tokens) != len(seconds) or len(tokens) < 2:
        raise ValueError(f"give as many seconds as token counts, at least two: got {len(tokens)} and {len(seconds)}")
    if min(tokens) <= 0 or min(seconds) <= 0 or tokens != sorted(set(tokens)):
        raise ValueError("token counts must ascend, and all numbers be above 0")
    more, longer = tokens[-1] / tokens[0], seconds[-1] / seconds[0]
    title = f"{_times(more)} times the tokens, {_times(longer)} times the wait"

    fig = new_picture(0.65 + 3.0 + head_height(title))
    ax = add_axes(fig, 0.95, 0.65, WIDTH - 2.35, 3.0)
    straight = [seconds[0] * n / tokens[0] for n in tokens]
    ax.plot(tokens, straight, linestyle=(0, (5, 3)), color=GREY, linewidth=1.5)
    ax.plot(tokens, seconds, "o-", color=DARK)
    ax.set(xscale="log", yscale="log", xlabel="tokens in one forward", ylabel="time of the forward")
    ax.xaxis.set_major_locator(FixedLocator(tokens))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
    top, bottom = max(*straight, *seconds), min(*straight, *seconds)
    ax.set_ylim(bottom / 1.9, top * 1.6)
    _decades(ax.yaxis, bottom / 1.9, top * 1.6)
    ax.grid(axis="y")
    end = {"textcoords": "offset points", "va": "center"}
    ax.annotate("if each token\ncost the same", (tokens[-1], straight[-1]), (9, 0), color=GREY, **end)
    ax.annotate(f"measured\n{_time(seconds[-1])}", (tokens[-1], seconds[-1]), (9, 0), color=DARK, weight="bold", **end)
    ax.annotate(_time(seconds[0]), (tokens[0], seconds[0]), (0, -14), color=DARK, weight="bold", **end)
    put_title(fig, title)
    fig.alt = (
        f"{title}. From {plural(tokens[0], 'token')} in {_time(seconds[0])} to {plural(tokens[-1], 'token')} in "
        f"{_time(seconds[-1])}; a dashed line shows a cost in proportion, {_time(straight[-1])} at the end."
    )
    return fig


def _times(x: float) -> str:
    return f"{x:,.0f}" if x >= 10 or float(x).is_integer() else f"{x:.1f}"


def _time(seconds: float) -> str:
    """Two or three digits: 0.13 s is 125 ms."""
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _decades(axis, low: float, high: float) -> None:
    steps = [m * 10.0**e for e in range(-7, 7) for m in (1, 3)]
    axis.set_major_locator(FixedLocator([s for s in steps if low <= s <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda s, _: _time(s)))
