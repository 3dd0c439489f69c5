"""The closing map: what each cache takes for a token, and what a step of it takes in time."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from .picture import ACCENT, DARK, GREY, WIDTH, add_axes, head_height, new_picture, put_title, styled, text_width

TALL = 3.9  # inches
KIB = 1024


@styled
def closing_map(rows: Sequence, against: str = "dynamic") -> Figure:
    """A mark for each cache: bytes held for a token (right is more) against the time of a step (up is slower).

    rows: with `name`, `bytes_per_token`, `step_s`, `croppable`, `exact`, `compileable`, as `lineup.Measured` has them;
    times are multiples of the row named `against`. A circle is exact and a triangle is not; filled can be cropped and
    hollow cannot; a ring around it: a compiled step keeps one shape. A row without bytes stands at the left edge.
    """
    base = next((row for row in rows if row.name == against), None)
    if base is None:
        raise ValueError(f"no row is called {against!r}: there are {', '.join(row.name for row in rows)}")
    points = {row.name: (row.bytes_per_token / KIB, row.step_s / base.step_s) for row in rows}
    held = {name: x for name, (x, _) in points.items() if x}
    least = min(held, key=held.get)
    title = f"{against} holds {_words(held[against])} a token; {least} {_words(held[least])} on the device, "
    title += f"and takes {points[least][1]:.1f} times as long"

    fig = new_picture(1.05 + TALL + head_height(title))
    ax = add_axes(fig, 0.75, 1.05, WIDTH - 1.0, TALL)
    left, right = min(held.values()) / 2.2, max(held.values()) * 2.6
    low, high = min(y for _, y in points.values()) / 1.25, max(y for _, y in points.values()) * 1.35
    ax.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, high))
    for axis, unit in ((ax.xaxis, " KiB"), (ax.yaxis, " x")):
        limits = (left, right) if axis is ax.xaxis else (low, high)
        ticks = [m * 10.0**e for e in range(-4, 7) for m in (1, 2, 5) if limits[0] <= m * 10.0**e <= limits[1]]
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _, unit=unit: f"{value:,g}{unit}"))
    ax.set_xlabel("held for each token of the text, on the device", loc="left")
    ax.set_ylabel(f"time of a step, {against} = 1")
    ax.grid(True)
    places = {row.name: (points[row.name][0] or left * 1.12, points[row.name][1]) for row in rows}
    for row in rows:
        _mark(ax, *places[row.name], row)
    _labels(ax, places, {name: f"{name}{'' if points[name][0] else ': 0 KiB'}" for name in places})
    put_title(fig, title)
    _legend(fig)
    fig.alt = f"{title}. " + "; ".join(_sentence(row, points[row.name]) for row in rows) + "."
    return fig


def _mark(ax: Axes, x: float, y: float, row, size: float = 10.0) -> None:
    colour = DARK if row.exact else ACCENT
    look = {"markeredgecolor": colour, "markerfacecolor": colour if row.croppable else "white", "markeredgewidth": 2}
    ax.plot([x], [y], "o" if row.exact else "^", markersize=size, clip_on=False, linestyle="none", **look)
    if row.compileable:
        ring = {"markerfacecolor": "none", "markeredgecolor": colour, "markeredgewidth": 1.2}
        ax.plot([x], [y], "o", markersize=1.9 * size, clip_on=False, linestyle="none", **ring)


def _labels(ax: Axes, places: dict, words: dict) -> None:
    """The words of each mark beside it, lowered or raised where they would cover a mark or other words."""
    ax.figure.canvas.draw()
    dpi, frame = ax.figure.dpi, ax.bbox
    taken = [_square(ax.transData.transform(place)) for place in places.values()]
    for name in sorted(places, key=lambda name: -places[name][1]):
        x, y = ax.transData.transform(places[name])
        wide, tall, away = text_width(words[name], 9.5, "bold") * dpi, 0.15 * dpi, 0.17 * dpi
        shifts = sorted((0.6 * tall * step for step in range(-6, 7)), key=abs)
        starts = [(start, shift) for shift in shifts for start in (x + away, x - away - wide)]
        boxes = [(start, y + shift - tall / 2, start + wide, y + shift + tall / 2) for start, shift in starts]
        fits = [b for b in boxes if frame.x0 < b[0] and b[2] < frame.x1 and frame.y0 < b[1] and b[3] < frame.y1]
        box = next((b for b in fits if not any(_meet(b, other) for other in taken)), boxes[0])
        taken.append(box)
        at = ax.transData.inverted().transform((box[0], (box[1] + box[3]) / 2))
        ax.text(*at, words[name], va="center_baseline", color=DARK, weight="bold")


def _square(place, half: float = 9.0):
    return place[0] - half, place[1] - half, place[0] + half, place[1] + half


def _meet(a, b) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _legend(fig: Figure) -> None:
    """Six marks and their words, in one line under the axes."""

    class Example:
        exact = croppable = True
        compileable = False

    ax = add_axes(fig, 0.2, 0.12, WIDTH - 0.4, 0.3)
    ax.set(xlim=(0, WIDTH - 0.4), ylim=(-0.15, 0.15))
    ax.axis("off")
    x = 0.12
    for words, change in (
        ("exact, can be cropped", {}),
        ("cannot be cropped", {"croppable": False}),
        ("not exact", {"exact": False}),
        ("a compiled step keeps one shape", {"compileable": True}),
    ):
        example = Example()
        vars(example).update(change)
        _mark(ax, x, 0, example, 8.0)
        ax.text(x + 0.17, 0, words, va="center_baseline", color=GREY)
        x += 0.17 + text_width(words, 9.5) + 0.38


def _words(kib: float) -> str:
    return f"{kib:,.0f} KiB" if kib >= 10 else f"{kib:.2g} KiB"


def _sentence(row, point) -> str:
    able = [word for word, true in (("exact", row.exact), ("croppable", row.croppable)) if true]
    able += ["compilable"] if row.compileable else []
    return (
        f"{row.name}: {_words(point[0])} a token, {point[1]:.1f} times the step, {', '.join(able) or 'none of three'}"
    )
