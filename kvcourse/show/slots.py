"""Slots of a cache of fixed size: which hold a token, and which hold nothing."""

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from .picture import BLUE, DARK, GREY, WIDTH, add_axes, head_height, new_picture, plural, put_title, styled, text_width

LOOKS = {
    "holds a token": {"facecolor": BLUE, "edgecolor": BLUE},
    "holds nothing": {"facecolor": "white", "edgecolor": GREY, "hatch": "....", "linewidth": 0.8},
}


@styled
def slots(filled: Mapping[str, int], capacity: int, title: str | None = None) -> Figure:
    """A bar of `capacity` slots for each row: the filled ones solid, the others dotted.

    filled: {label: filled slots}, a row for each sequence or step. title: the claim; names in braces are replaced by
    what was counted: {rows}, {slots} of all rows together, {filled}, {empty}, and {share}, the empty ones in per cent.
    """
    if not filled or capacity < 1 or not all(0 <= n <= capacity for n in filled.values()):
        raise ValueError(f"give rows of 0 to {capacity} filled slots, at least one row, got {dict(filled)}")
    found = count(filled, capacity)
    title = (title or "{share} % of {slots:,} slots hold nothing").format(**found)
    words = {label: f"{n:,} of {capacity:,}" for label, n in filled.items()}
    left = 0.35 + max(text_width(label, 9.5) for label in filled)
    right = 0.35 + max(text_width(word, 9.5) for word in words.values())
    row, below = (0.3 if len(filled) <= 12 else 0.2), 0.85
    height = row * len(filled)
    fig = new_picture(below + height + head_height(title))
    ax = add_axes(fig, left, below, WIDTH - left - right, height)
    ax.set(xlim=(0, capacity), ylim=(len(filled) - 0.5, -0.5), xlabel="slot")
    full, empty = LOOKS.values()
    for y, (label, n) in enumerate(filled.items()):
        ax.add_patch(Rectangle((n, y - 0.38), capacity - n, 0.76, **empty))
        ax.add_patch(Rectangle((0, y - 0.38), n, 0.76, **full))
        place = {"xytext": (5, 0), "textcoords": "offset points", "va": "center_baseline", "color": DARK}
        ax.annotate(words[label], (capacity, y), annotation_clip=False, **place)
    ax.set_yticks(range(len(filled)), list(filled))
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    put_title(fig, title)
    _legend(fig)
    fig.alt = (
        f"{title}. {plural(len(filled), 'row')} of {plural(capacity, 'slot')}: {found['filled']:,} hold a token, "
        f"{found['empty']:,} hold nothing; the filled ones of each row: {', '.join(f'{n:,}' for n in filled.values())}."
    )
    return fig


def count(filled: Mapping[str, int], capacity: int) -> dict[str, int]:
    """What a title may name, counted over all rows."""
    every, used = capacity * len(filled), sum(filled.values())
    share = round(100 * (every - used) / every)
    return {"rows": len(filled), "slots": every, "filled": used, "empty": every - used, "share": share}


def _legend(fig: Figure) -> None:
    x = 0.2
    for words, look in LOOKS.items():
        ax = add_axes(fig, x, 0.14, 0.3, 0.2)
        ax.add_patch(Rectangle((0, 0), 1, 1, **look))
        ax.axis("off")
        ax.annotate(words, (1.25, 0.5), xycoords="axes fraction", va="center_baseline")
        x += 0.38 + text_width(words, 9.5) + 0.3
