"""Two pictures of what a causal model computes: the staircase, and the ripple of an edit."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from .boxes import draw_legend, draw_steps, legend_lines, row_height
from .picture import ACCENT, DARK, LIGHT, WIDTH, add_axes, head_height, new_picture, plural, put_title, styled
from .steps import Step, count, span


@styled
def staircase(without: Sequence[Step], with_cache: Sequence[Step]) -> Figure:
    """The same run twice, position across and step down: without a cache, and with one.

    Both are lists of `Step` as recorded; the title counts the boxes computed in each.
    """
    without, with_cache = list(without), list(with_cache)
    both = [*without, *with_cache]
    first, last = span(both)
    rows = max(len(without), len(with_cache))
    sent = [count(steps, "computed", "recomputed") for steps in (without, with_cache)]
    again = [count(steps, "recomputed") for steps in (without, with_cache)]
    title = f"{plural(sent[0], 'position')} computed without a cache, {sent[1]:,} with one"

    left, pitch, columns = 0.75, (WIDTH - 0.75) / 2, last - first + 1.2
    cell = min(0.28, (pitch - 0.25) / columns, 6.0 / rows)
    legend = legend_lines(both, WIDTH - left)
    below, height = 0.28 * len(legend) + 0.72, row_height(cell, rows) * (rows + 0.2)
    fig = new_picture(below + height + head_height(title) + 0.4)
    ticks = [t for t in MaxNLocator(6, integer=True, min_n_ticks=1).tick_values(first, last) if first <= t <= last]
    for i, (name, steps) in enumerate({"without a cache": without, "with a cache": with_cache}.items()):
        ax = add_axes(fig, left + i * pitch, below, cell * columns, height)
        draw_steps(ax, steps, first, last, cell, numbers=False)
        ax.set_ylim(rows - 0.4, -0.6)
        ax.set_xticks(ticks)
        ax.set_xlabel("position", loc="left")
        shown = [y for y in range(rows) if rows <= 8 or y == 0 or (y + 1) % 5 == 0]
        ax.set_yticks(shown, [str(y + 1) if i == 0 else "" for y in shown])
        more = f"{again[i]:,} of them again" if again[i] else "none of them twice"
        ax.set_title(f"{name}\n{sent[i]:,} computed, {more}", fontsize=10, weight="normal", pad=6, linespacing=1.3)
        if i == 0:
            ax.set_ylabel("step", loc="top")
    put_title(fig, title)
    draw_legend(fig, legend, left)
    fig.alt = (
        f"{title}. Two panels, position across and step down. Without a cache {plural(len(without), 'step')} "
        f"compute {plural(again[0], 'position')} again; with a cache {again[1]:,}."
    )
    return fig


@styled
def ripple(changed) -> Figure:
    """Where keys changed after an edit: layer down, position across, filled where the key changed.

    changed: booleans of shape (layers, positions); a list of lists, an array or a tensor.
    """
    grid = np.asarray(changed, dtype=bool)
    if grid.ndim != 2 or 0 in grid.shape:
        raise ValueError(f"changed has the shape (layers, positions), both at least 1; got {grid.shape}")
    layers, positions = grid.shape
    per_layer = [int(n) for n in grid.sum(axis=1)]
    title = _ripple_claim(per_layer)
    wide, high = min(0.3, (WIDTH - 2.9) / positions), min(0.24, 4.2 / layers)
    fig = new_picture(0.98 + high * layers + head_height(title))
    ax = add_axes(fig, 0.75, 0.98, wide * positions, high * layers)
    ax.set(xlim=(-0.5, positions - 0.5), ylim=(layers - 0.5, -0.5))
    ax.set_xlabel("position", loc="left")
    ax.set_ylabel("layer", loc="top")
    for layer, position in np.ndindex(layers, positions):
        colour = (ACCENT if layer == 0 else DARK) if grid[layer, position] else LIGHT
        ax.add_patch(Rectangle((position - 0.45, layer - 0.42), 0.9, 0.84, facecolor=colour, edgecolor="none"))
    above = -layers
    for number, run in groupby(range(layers), key=per_layer.__getitem__):
        run = list(run)
        middle = (run[0] + run[-1]) / 2
        if high * (middle - above) < 0.17:
            continue  # no room for another line of words
        above = middle
        words = f"{number:,} of {positions:,} changed"
        ax.annotate(words, (positions - 0.5, middle), (8, 0), textcoords="offset points", va="center", color=DARK)
    ax.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(7, integer=True))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    keys = ((ACCENT, "changed in layer 0"), (DARK, "changed in a deeper layer"), (LIGHT, "as before"))
    for x, (colour, words) in zip((0.75, 2.55, 4.85), keys, strict=True):
        key = add_axes(fig, x, 0.17, 0.2, 0.18)
        key.set(facecolor=colour, xticks=[], yticks=[])
        key.spines[:].set_visible(False)
        key.annotate(words, (1.35, 0.5), xycoords="axes fraction", va="center_baseline")
    put_title(fig, title)
    size = f"{plural(layers, 'layer')} by {plural(positions, 'position')}"
    fig.alt = f"{title}. A grid of {size}, filled where the key changed."
    return fig


def _ripple_claim(per_layer: Sequence[int]) -> str:
    """How many keys changed in layer 0, and in the layers after it."""
    first, deeper = per_layer[0], per_layer[1:]
    if not any(per_layer):
        return "No key changed in any layer"
    claim = f"Keys change at {plural(first, 'position')} in layer 0"
    if not deeper:
        return claim
    low, high = min(deeper), max(deeper)
    return f"{claim}, at {low:,}" + ("" if low == high else f" to {high:,}") + " in every deeper layer"
