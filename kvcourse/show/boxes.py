"""The boxes of the strip: one look for each mark, rows of them, and the one legend of the course."""

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.patheffects import withStroke

from .picture import ACCENT, BLUE, DARK, GREY, LIGHT, WIDTH, add_axes, text_width
from .steps import MARKS, Step, span

_SMALLEST = 0.09  # inches


def host_offset(steps: Sequence[Step]) -> int:
    """How many cells to the right of its place an offloaded box stands; 0 where none is offloaded."""
    first, last = span(steps)
    return last - first + 2 if any("offloaded" in step.marks.values() for step in steps) else 0


def draw_steps(ax: Axes, steps: Sequence[Step], first: int, last: int, cell: float, numbers: bool) -> None:
    """Boxes of all steps into axes whose unit is one cell: x position, y step (downward).

    cell: width of the unit in inches. Edges get thinner with it, and below `_SMALLEST` neighbours of the same
    mark share one bar: boxes that small would be a grey haze.
    """
    away = host_offset(steps)
    line = 0.7 if cell < _SMALLEST else min(1.0, 4 * cell)
    ax.set(xlim=(first - 0.6, last + 0.6 + away), ylim=(len(steps) - 0.4, -0.6))
    for y, step in enumerate(steps):
        for position, run, mark in _bars(step, longest=len(step.marks) if cell < _SMALLEST else 1):
            x = position + away * (mark == "offloaded")
            draw_box(ax, x, y, mark, line, run)
            if numbers:
                _number(ax, x, y, position, mark)
    if away:
        frame = FancyBboxPatch((first - 0.5, -0.5), last - first + 1, len(steps), boxstyle="round,pad=0.06")
        frame.set(facecolor="none", edgecolor=DARK, linewidth=1.4, clip_on=False)
        ax.add_patch(frame)
        for x, place in ((first - 0.5, "device"), (first - 0.5 + away, "host")):
            ax.annotate(place, (x, -0.5), (0, 8), textcoords="offset points", color=DARK, weight="bold")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


def _bars(step: Step, longest: int) -> list[tuple[int, int, str]]:
    """(first position, how many, mark): neighbours of one mark, `longest` together at most."""
    bars: list[tuple[int, int, str]] = []
    for p in sorted(step.marks):
        start, run, mark = bars[-1] if bars else (p, 0, "")
        if mark == step.marks[p] and start + run == p and run < longest:
            bars[-1] = (start, run + 1, mark)
        else:
            bars.append((p, 1, step.marks[p]))
    return bars


def row_height(cell: float, rows: int, tallest: float = 5.5) -> float:
    """Inches of one row: square cells, but rows stay readable where cells are very narrow."""
    return cell if cell >= _SMALLEST else min(0.22, tallest / rows)


def _number(ax: Axes, x: float, y: float, position: int, mark: str) -> None:
    """The position in its box; above a box of half height."""
    colour = {"computed": "white", "dropped": GREY}.get(mark, DARK)
    up = 0.22 if mark == "quantized" else 0
    halo = [withStroke(linewidth=3.5, foreground="white")] if mark == "recomputed" else None
    ax.text(x, y - up, position, ha="center", va="center_baseline", color=colour, fontsize=9, path_effects=halo)


def draw_box(ax: Axes, x: float, y: float, mark: str, line: float = 1.0, run: int = 1) -> None:
    """One box of the strip, centred on (x, y) in units of one cell; y grows downward. line: width of edges, points.

    run: so many neighbours of one mark, drawn as one bar that begins at x.
    """
    size = 0.84
    looks = {
        "computed": {"facecolor": DARK, "edgecolor": DARK},
        "read": {"facecolor": LIGHT, "edgecolor": BLUE},
        "recomputed": {"facecolor": "white", "edgecolor": ACCENT, "hatch": "////"},
        "dropped": {"facecolor": "none", "edgecolor": GREY, "linestyle": (0, (1, 1.6))},
        "quantized": {"facecolor": BLUE, "edgecolor": DARK},
        "offloaded": {"facecolor": "white", "edgecolor": DARK, "linestyle": (0, (3, 1.8))},
    }
    height = size * 0.5 if mark == "quantized" else size
    corner = (x - size / 2, y + size / 2 - height)
    ax.add_patch(Rectangle(corner, size + run - 1, height, linewidth=line, **looks[mark]))


def legend_lines(steps: Iterable[Step], width: float = WIDTH - 0.4) -> list[list[str]]:
    """The marks that occur, in the order of MARKS, broken into lines no wider than `width` inches."""
    used = {mark for step in steps for mark in step.marks.values()}
    lines, room = [[]], width
    for mark in (m for m in MARKS if m in used):
        need = _legend_width(mark)
        if lines[-1] and need > room:
            lines.append([])
            room = width
        lines[-1].append(mark)
        room -= need
    return lines


def draw_legend(fig: Figure, lines: list[list[str]], left: float = 0.2, bottom: float = 0.16) -> None:
    """The one legend of the course: the boxes themselves and their words, lines 0.28 inches apart."""
    for row, line in enumerate(reversed(lines)):
        x = left
        for mark in line:
            ax = add_axes(fig, x, bottom + row * 0.28, 0.22, 0.22)
            ax.set(xlim=(-0.5, 0.5), ylim=(0.5, -0.5))
            ax.axis("off")
            draw_box(ax, 0, 0, mark)
            ax.annotate(MARKS[mark][1], (1.3, 0.5), xycoords="axes fraction", va="center_baseline")
            x += _legend_width(mark)


def _legend_width(mark: str) -> float:
    return 0.29 + text_width(MARKS[mark][1], 9.5) + 0.25
