"""The signature figure: a row for each step, a box for each cached position.

Its data are `Step`s, the same list that `strip_text` prints, so picture and text can't disagree.
"""

from collections.abc import Sequence
from math import ceil

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .boxes import draw_legend, draw_steps, host_offset, legend_lines, row_height
from .picture import DARK, WIDTH, add_axes, head_height, new_picture, plural, put_title, styled, text_width
from .steps import MARKS, Step, count, span


def counts(steps: Sequence[Step]) -> dict[str, int]:
    """What a title may name: a count for each mark, and `sent`, `kept`, `steps`, `positions`.

    sent: computed or recomputed. read: light boxes in rows where something was computed, so a crop
    reads nothing; kept: all light boxes.
    """
    first, last = span(steps)
    found = {mark: count(steps, mark) for mark in MARKS}
    kept, ran = found["read"], [step for step in steps if {"computed", "recomputed"} & set(step.marks.values())]
    found |= {"kept": kept, "read": count(ran, "read"), "sent": found["computed"] + found["recomputed"]}
    return found | {"steps": len(steps), "positions": last - first + 1}


@styled
def strip(steps: Sequence[Step], title: str | None = None, bracket: str | None = None) -> Figure:
    """Draw the strip of cached positions.

    title: the claim; names in braces are replaced by what was counted, so that no number is typed in:
    "{sent} positions computed, {read} read" (see `counts`). bracket: words for a bracket under the kept
    positions of the last row, such as "W - 1"; their number is written before them.
    """
    steps = list(steps)
    found, (first, last) = counts(steps), span(steps)
    title = (title or _claim(found)).format(**found)
    away = host_offset(steps)
    left = 0.35 + max(text_width(step.label, 9.5) for step in steps)
    columns, digits = last - first + 1.2 + away, len(str(last))
    cell = min(0.4, (WIDTH - left - 0.2) / columns, 7.0 / len(steps))
    numbers = cell >= 0.16 + 0.06 * digits
    legend = legend_lines(steps)
    below = 0.28 * len(legend) + 0.26 + (0 if numbers else 0.42) + (0.4 if bracket else 0)
    row = row_height(cell, len(steps))
    height, head = row * (len(steps) + 0.2), head_height(title) + (0.25 if away else 0)
    fig = new_picture(below + height + head)
    ax = add_axes(fig, left, below, cell * columns, height)
    draw_steps(ax, steps, first, last, cell, numbers)
    every = max(1, ceil(0.19 / row))  # labels closer than 0.19 inches would overlap
    shown = [y for y in range(len(steps)) if y % every == 0]
    ax.set_yticks(shown, [steps[y].label for y in shown])
    if numbers:
        ax.set_xticks([])
    else:
        ticks = MaxNLocator(8, integer=True).tick_values(first, last)
        ax.set_xticks([t for t in ticks if first <= t <= last])
        ax.set_xlabel("position", loc="left")
    if bracket:
        _bracket(ax, steps, bracket)
        ax.tick_params(axis="x", pad=26)  # the numbers of the axis go below it
    put_title(fig, title)
    draw_legend(fig, legend)
    words = {mark: "kept" if mark == "read" else mark for mark in MARKS}
    parts = [f"{count(steps, mark):,} {words[mark]}" for mark in MARKS if count(steps, mark)]
    fig.alt = f"{title}. {plural(len(steps), 'row')}, one a step, a box for each position: {', '.join(parts)}."
    return fig


def _claim(found: dict[str, int]) -> str:
    if found["sent"]:
        return plural(found["sent"], "position") + " computed, {read:,} read from the cache"
    return plural(found["positions"], "position") + ", {kept:,} kept, {dropped:,} dropped"


def _bracket(ax: Axes, steps: Sequence[Step], words: str) -> None:
    """A bracket under the kept positions of the last row, with their number."""
    kept = [p for p, mark in steps[-1].marks.items() if mark == "read"]
    if not kept:
        return
    y, left, right = len(steps) - 0.45, min(kept) - 0.42, max(kept) + 0.42
    ax.plot([left, left, right, right], [y, y + 0.2, y + 0.2, y], color=DARK, linewidth=1.4, clip_on=False)
    place = {"xytext": (0, -5), "textcoords": "offset points", "ha": "center", "va": "top"}
    middle = ((left + right) / 2, y + 0.2)
    ax.annotate(f"{len(kept)} = {words}", middle, color=DARK, weight="bold", annotation_clip=False, **place)
