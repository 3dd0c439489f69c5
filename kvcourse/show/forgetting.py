"""What is forgotten: the share that a model gives back right, against the length of what it read."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from .picture import ACCENT, DARK, GREY, LIGHT, WIDTH, add_axes, head_height, new_picture, put_title, styled


@styled
def forgetting(
    lengths: Sequence[int], letters: Sequence[float], answers: Sequence[float], practised: tuple[int, int]
) -> Figure:
    """Two lines against the length: letters in the right place (circles), and answers without a mistake (squares).

    lengths: ascending. letters, answers: shares from 0 to 1, one a length. practised: the shortest and the longest
    length that training showed, shaded, because outside of it a model fails for want of practice too.
    """
    lengths, letters, answers = list(lengths), [float(x) for x in letters], [float(x) for x in answers]
    first, last = practised
    if not len(lengths) == len(letters) == len(answers) or len(lengths) < 2:
        raise ValueError(
            f"give as many shares as lengths, at least two: got {len(lengths)}, {len(letters)} and {len(answers)}"
        )
    if lengths != sorted(set(lengths)) or not all(0 <= share <= 1 for share in letters + answers):
        raise ValueError("lengths must ascend, and shares lie between 0 and 1")
    if last not in lengths or lengths[-1] <= last:
        raise ValueError(f"measure the longest practised length, {last}, and a longer one; got {lengths}")
    end = lengths.index(last)
    title = f"{last} letters: {letters[end]:.0%} of them come back. {lengths[-1]} letters: {letters[-1]:.0%}"

    fig = new_picture(0.65 + 2.7 + head_height(title))
    ax = add_axes(fig, 0.75, 0.65, WIDTH - 2.75, 2.7)
    ax.axvspan(first - 0.5, last + 0.5, color=LIGHT, alpha=0.55, linewidth=0)
    ax.plot(lengths, [100 * share for share in letters], "o-", color=DARK)
    ax.plot(lengths, [100 * share for share in answers], "s-", color=ACCENT)
    ax.set(xlim=(min(first, lengths[0]) - 0.5, lengths[-1] + 0.5), ylim=(-4, 109))
    ax.set(xlabel="letters to copy", ylabel="right, %")
    ax.xaxis.set_major_locator(FixedLocator(lengths))
    ax.yaxis.set_major_locator(FixedLocator(range(0, 101, 25)))
    ax.grid(axis="y")
    ax.annotate(
        f"practised in training:\n{first} to {last} letters", ((first + last) / 2, 50), ha="center", va="center"
    )
    ax.texts[-1].set_color("#4a525a")
    words = [
        (f"letters in\nthe right place:\n{letters[-1]:.0%}", DARK),
        (f"answers without\na mistake: {answers[-1]:.0%}", "#a8450a"),
    ]
    upper = min(max(letters[-1], answers[-1] + 0.24), 0.98)  # the two labels keep apart, and inside
    lower = min(answers[-1], upper - 0.24)
    for (text, colour), y in zip(words, (upper, lower), strict=True):
        place = (1 + 0.12 / (WIDTH - 2.75), (100 * y + 4) / 113)
        ax.annotate(text, place, xycoords="axes fraction", va="center", color=colour, weight="bold")
    ax.axvline(last + 0.5, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
    put_title(fig, title)
    points = ", ".join(
        f"{n}: {a:.0%} and {b:.0%}" for n, a, b in zip(lengths, letters, answers, strict=True) if n >= last
    )
    fig.alt = (
        f"{title}. Letters in the right place and answers without a mistake by length, from {last} letters on: "
        f"{points}. Lengths {first} to {last}, which training showed, are shaded."
    )
    return fig
