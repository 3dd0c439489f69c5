"""What a batch costs: tokens a second of all users together, and the wait of each."""

from collections.abc import Sequence
from math import log

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from .picture import ACCENT, DARK, GREY, WIDTH, add_axes, head_height, new_picture, plural, put_title, styled
from .price import _time, _times


@styled
def price_of_a_batch(batches: Sequence[int], seconds: Sequence[float]) -> Figure:
    """Two lines against the batch size, both as a multiple of the first measurement, both axes logarithmic.

    batches: users served at once, ascending; seconds: of one step for all of them. Tokens a second of all users
    together (circles), and each user's wait for one token (squares); the dashed line is the number of users. If
    batching were free, the circles would lie on it; if it slowed all alike, the squares would.
    """
    batches, seconds = list(batches), [float(s) for s in seconds]
    if len(batches) != len(seconds) or len(batches) < 2:
        raise ValueError(f"give as many seconds as batch sizes, at least two: got {len(batches)} and {len(seconds)}")
    if min(batches) <= 0 or min(seconds) <= 0 or batches != sorted(set(batches)):
        raise ValueError("batch sizes must ascend, and all numbers be above 0")
    rates = [n / s for n, s in zip(batches, seconds, strict=True)]
    users = [n / batches[0] for n in batches]
    rate, wait = [r / rates[0] for r in rates], [s / seconds[0] for s in seconds]
    title = f"{plural(batches[-1], 'user')} at once: {_times(rate[-1])} times the tokens a second, "
    title += f"{_times(wait[-1])} times the wait"

    fig = new_picture(0.65 + 3.0 + head_height(title))
    ax = add_axes(fig, 0.75, 0.65, WIDTH - 3.0, 3.0)
    ax.plot(batches, users, linestyle=(0, (5, 3)), color=GREY, linewidth=1.5)
    ax.plot(batches, rate, "o-", color=DARK)
    ax.plot(batches, wait, "s-", color=ACCENT)
    low, high = min(1, *rate, *wait) / 1.3, max(*users, *rate, *wait) * 1.3
    ax.set(
        xscale="log",
        yscale="log",
        ylim=(low, high),
        xlabel="users in the batch",
        ylabel=f"times a batch of {batches[0]}",
    )
    for axis, places in ((ax.xaxis, batches), (ax.yaxis, [2.0**e for e in range(-6, 12)])):
        axis.set_major_locator(FixedLocator([p for p in places if axis is ax.xaxis or low <= p <= high]))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,g}"))
    ax.grid(axis="y")
    labels = [
        (users[-1], "as many times\nas there are users", GREY),
        (rate[-1], f"all users together:\n{rates[0]:.3g} to {rates[-1]:.3g} tokens/s", DARK),
        (wait[-1], f"each user's wait:\n{_time(seconds[0])} to {_time(seconds[-1])}", "#a8450a"),
    ]
    ends = [3.0 * log(y / low) / log(high / low) for y, _, _ in labels]  # inches above the axis
    for (_, words, colour), y in zip(labels, _apart(ends, 0.42), strict=True):
        weight = "normal" if colour == GREY else "bold"
        at = (1 + 0.12 / (WIDTH - 3.0), y / 3.0)
        ax.annotate(words, at, xycoords="axes fraction", va="center", color=colour, weight=weight)
    put_title(fig, title)
    fig.alt = (
        f"{title}. From {plural(batches[0], 'user')} to {batches[-1]:,}: all users together from {rates[0]:.3g} to "
        f"{rates[-1]:.3g} tokens a second, each user's wait for a token from {_time(seconds[0])} to "
        f"{_time(seconds[-1])}; a dashed line shows the number of users."
    )
    return fig


def _apart(places: Sequence[float], gap: float) -> list[float]:
    """The same places in the same order, lowered as far as labels of that height need not to overlap."""
    order = sorted(range(len(places)), key=lambda i: -places[i])
    moved = list(places)
    for upper, lower in zip(order, order[1:], strict=False):
        moved[lower] = min(moved[lower], moved[upper] - gap)
    return moved
