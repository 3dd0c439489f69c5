"""The memory ruler: bytes of the cache against bytes of the weights."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from .picture import (
    ACCENT,
    BLUE,
    DARK,
    GREY,
    WIDTH,
    add_axes,
    head_height,
    new_picture,
    plural,
    put_title,
    styled,
    text_width,
)

GIB = 2**30
CONTEXTS = (1024, 8192, 131072)  # tokens


@dataclass(frozen=True)
class ModelMemory:
    """What the ruler needs of a model: bytes of its weights, bytes of cache a token takes."""

    name: str
    weight_bytes: int
    bytes_per_token: int

    def __post_init__(self):
        if self.weight_bytes <= 0 or self.bytes_per_token <= 0:
            raise ValueError(f"{self.name}: both byte counts must be above 0, got {self}")

    @property
    def meeting(self) -> int:
        """The first token count at which the cache is no smaller than the weights."""
        return -(-self.weight_bytes // self.bytes_per_token)


@styled
def memory_ruler(models: Sequence[ModelMemory], contexts: Sequence[int] = CONTEXTS) -> Figure:
    """For each model a ruler of tokens laid on the scale of GiB, with a mark where its weights lie.

    Where the mark meets the ruler, cache and weights are equal: a token count. batch is 1.
    """
    models, contexts = list(models), sorted(contexts)
    if not models or not contexts or contexts[0] <= 0:
        raise ValueError("memory_ruler needs at least one ModelMemory and contexts above 0 tokens")
    title = _ruler_claim(models, contexts[-1])
    ends = [x / GIB for m in models for x in (m.weight_bytes, *(c * m.bytes_per_token for c in contexts))]
    row, left = 0.78, 0.45 + max(text_width(m.name, 10) for m in models)
    fig = new_picture(row * len(models) + 0.95 + head_height(title))
    ax = add_axes(fig, left, 0.65, WIDTH - left - 0.3, row * len(models))
    ax.set(xscale="log", xlim=(min(ends) / 1.6, max(ends) * 1.6), ylim=(len(models) - 0.4, -0.6))
    for y, model in enumerate(models):
        _ruler(ax, y, model, contexts)
    ax.set_yticks(range(len(models)), [m.name for m in models])
    ax.tick_params(axis="y", length=0, labelsize=10)
    ax.xaxis.set_major_locator(FixedLocator([10.0**e for e in range(-6, 7)]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,g} GiB"))
    ax.set_xlabel("memory, batch 1; each grid line is ten times the one before", loc="left")
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x")
    put_title(fig, title)
    words = "dots: the cache at so many tokens; bar: the weights, and the tokens whose cache is as large"
    fig.text(0.2 / WIDTH, 1 - (head_height(title) - 0.12) / fig.get_figheight(), words, va="top", color=GREY)
    met = "; ".join(f"{m.name} at {m.meeting:,} tokens" for m in models)
    fig.alt = f"{title}. Cache and weights are equal for {met}."
    return fig


def _ruler_claim(models: Sequence[ModelMemory], tokens: int) -> str:
    over = sum(tokens * m.bytes_per_token > m.weight_bytes for m in models)
    if len(models) == 1:
        ratio = tokens * models[0].bytes_per_token / models[0].weight_bytes
        return f"At {tokens:,} tokens the cache of {models[0].name} is {ratio:.2g} times its weights"
    return f"At {tokens:,} tokens the cache outweighs the weights in {over} of {len(models)} models"


def _ruler(ax, y: float, model: ModelMemory, contexts: Sequence[int]) -> None:
    size = [c * model.bytes_per_token / GIB for c in contexts]
    weights = model.weight_bytes / GIB
    ax.plot([min(size[0], weights), max(size[-1], weights)], [y, y], color=BLUE, linewidth=1.4, linestyle=(0, (1, 1.5)))
    ax.plot([size[0], size[-1]], [y, y], color=BLUE, linewidth=3, solid_capstyle="butt")
    ax.plot(size, [y] * len(size), "o", color=DARK, markersize=7)
    for x, tokens in zip(size, contexts, strict=True):
        words = f"{tokens // 1024}k" if tokens % 1024 == 0 else f"{tokens:,}"
        ax.annotate(words, (x, y), (0, -8), textcoords="offset points", ha="center", va="top", color=DARK)
    # The bar of the weights ends on the ruler, so that it never covers the words under a dot.
    ax.plot([weights, weights], [y - 0.24, y + 0.08], color=ACCENT, linewidth=4, solid_capstyle="butt")
    low, high = ax.get_xlim()
    side = "right" if weights / low > (high / low) ** 0.6 else "left"  # keep the words inside the axes
    words = f"weights {_gib(weights)} = cache of {plural(model.meeting, 'token')}"
    at = (weights, y - 0.24)
    place = {"xytext": (2 if side == "right" else -2, 3), "textcoords": "offset points", "ha": side}
    ax.annotate(words, at, va="bottom", color="#a8450a", **place)


def _gib(x: float) -> str:
    return f"{x:,.0f} GiB" if x >= 10 else f"{x:.2g} GiB"
