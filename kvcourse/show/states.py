"""States in pictures: what each token does to one, and its bytes beside those of keys and values."""

from collections.abc import Sequence
from math import ceil

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from .picture import ACCENT, BLUE, DARK, LIGHT, WIDTH, add_axes, head_height, new_picture, plural, put_title, styled

SIZES = LinearSegmentedColormap.from_list("sizes", ["white", LIGHT, BLUE, DARK])
A_ROW = 5  # pictures side by side


@styled
def state_pictures(states: Sequence, labels: Sequence[str]) -> Figure:
    """One heat map for each state, in the order of the steps; the darker, the larger the number without its sign.

    states: tensors or arrays of one shape (rows, columns), as they were after each step; labels: what was read in each
    step. All maps share one scale, on which
    half as dark is an eighth as large.
    """
    maps = [_numbers(state) for state in states]
    if len(maps) < 2 or len(maps) != len(labels):
        raise ValueError(f"give two states or more and a label for each: got {len(maps)} and {len(labels)}")
    if any(m.ndim != 2 or m.shape != maps[0].shape for m in maps):
        raise ValueError(f"states are of one shape (rows, columns); got {sorted({m.shape for m in maps})}")
    changed = int((maps[-1] != maps[-2]).sum())
    title = f"{plural(len(maps), 'token')} read, and still {maps[0].size:,} numbers: the last one changed {changed:,}"
    rows, columns = maps[0].shape
    lines = ceil(len(maps) / A_ROW)
    width = (WIDTH - 0.4 - 0.18 * (A_ROW - 1)) / A_ROW
    height = width * rows / columns
    fig = new_picture(0.42 + lines * (height + 0.36) + head_height(title))
    top = max(abs(m).max() for m in maps) or 1.0
    for place, (numbers, label) in enumerate(zip(maps, labels, strict=True)):
        line, column = divmod(place, A_ROW)
        bottom = 0.42 + (lines - 1 - line) * (height + 0.36)
        ax = add_axes(fig, 0.2 + column * (width + 0.18), bottom, width, height)
        scale = PowerNorm(1 / 3, vmin=0, vmax=top)  # else a few large numbers leave the rest white
        ax.imshow(abs(numbers), cmap=SIZES, norm=scale, aspect="auto", interpolation="nearest")
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(True)
        ax.annotate(label, (0, 1), (0, 3), xycoords="axes fraction", textcoords="offset points", va="bottom")
        ax.texts[-1].set_weight("bold")
    put_title(fig, title)
    fig.text(
        0.2 / WIDTH,
        0.12 / fig.get_figheight(),
        f"one scale for all: white 0, half dark {top / 8:.2g}, dark {top:.2g}, of either sign",
    )
    fig.alt = f"{title}. A heat map of {rows} x {columns} numbers after each of {', '.join(map(repr, labels))}."
    return fig


@styled
def constant_or_growing(tokens: Sequence[int], growing: Sequence[int], constant: Sequence[int]) -> Figure:
    """Bytes against the length of the text, both axes logarithmic: keys and values, and a state.

    tokens: lengths, ascending; growing: bytes of keys and values at these lengths; constant: bytes of a state, the same
    number each time.
    """
    tokens, growing, constant = ([int(n) for n in numbers] for numbers in (tokens, growing, constant))
    if not len(tokens) == len(growing) == len(constant) or len(tokens) < 2 or tokens != sorted(set(tokens)):
        raise ValueError("give lengths that ascend, two or more, and as many bytes of each kind")
    if len(set(constant)) > 1:
        raise ValueError(f"the bytes of the state are not constant: {sorted(set(constant))}")
    size = constant[0]
    more = next((n for n, held in zip(tokens, growing, strict=True) if held > size), None)
    crossing = f"keys and values pass that at {plural(more, 'token')}" if more else "keys and values need less"
    title = f"A state: {size:,} bytes at any length; {crossing}"

    fig = new_picture(0.65 + 2.7 + head_height(title))
    ax = add_axes(fig, 1.3, 0.65, WIDTH - 3.45, 2.7)
    ax.plot(tokens, growing, color=DARK)
    ax.plot(tokens, constant, color=ACCENT, linestyle=(0, (6, 2)))
    ax.set(xscale="log", yscale="log", xlabel="tokens read", ylabel="bytes held")
    for axis, low, high in ((ax.xaxis, tokens[0], tokens[-1]), (ax.yaxis, min(growing[0], size), growing[-1])):
        axis.set_major_locator(FixedLocator([10**e for e in range(12) if low / 2 <= 10**e <= 2 * high]))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
    ax.grid(axis="y")
    end = {"textcoords": "offset points", "va": "center", "weight": "bold"}
    ax.annotate(f"keys and values:\n{growing[-1]:,} bytes", (tokens[-1], growing[-1]), (9, 0), color=DARK, **end)
    ax.annotate(f"a state:\n{size:,} bytes", (tokens[-1], size), (9, 0), color="#a8450a", **end)
    if more:
        ax.plot([more], [size], "o", color=DARK)
        ax.annotate(plural(more, "token"), (more, size), (8, -12), color=DARK, **end)
    put_title(fig, title)
    fig.alt = f"{title}. At {plural(tokens[-1], 'token')}: keys and values {growing[-1]:,} bytes, the state {size:,}."
    return fig


def _numbers(state):
    """A numpy array of what was given, detached from any graph."""
    return np.array(state.detach().float().cpu().numpy() if hasattr(state, "detach") else state, dtype=float)
