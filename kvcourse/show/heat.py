"""Where keys are big: a heat map token x channel with one group drawn each way, and what each way costs."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, NullLocator

from .picture import ACCENT, BLUE, DARK, GREY, WIDTH, add_axes, head_height, new_picture, put_title, styled

LEFT = 0.75  # inches
MOST_TOKENS = 160


@styled
def where_keys_are_big(keys, perplexity: Mapping[str, Mapping[int, float]], exact: float, group: int = 64) -> Figure:
    """Two panels: the size of the keys of one head, and perplexity against bits for each way to group them.

    keys: (tokens, channels), at most 160 tokens. perplexity: way -> {bits: perplexity}. exact: perplexity of the exact
    cache, a dashed line. group: values in a group, drawn once along tokens and once along channels.
    """
    tokens, channels = keys.shape
    if not group <= tokens <= MOST_TOKENS:
        raise ValueError(f"{group} to {MOST_TOKENS} tokens show a group of {group}; got {tokens}")
    if not perplexity or any(len(line) < 2 for line in perplexity.values()):
        raise ValueError("give the perplexity of at least one way to group at two numbers of bits or more")
    sizes = keys.detach().float().abs()
    by_channel = sizes.mean(0)
    top, ratio = int(by_channel.argmax()), float(by_channel.max() / by_channel.median())
    fewest = min(min(line) for line in perplexity.values())
    costs = ", ".join(f"{line[fewest]:,.0f} with {way}" for way, line in perplexity.items() if fewest in line)
    title = f"Channel {top} is {ratio:.0f} times the median; at {fewest} bits perplexity is {costs}"

    fig = new_picture(5.55 + head_height(title))
    _heat_panel(fig, sizes, top, group)
    _bits_panel(add_axes(fig, LEFT, 0.6, WIDTH - LEFT - 2.0, 1.75), perplexity, exact)
    put_title(fig, title)
    lines = [
        f"{way}: " + ", ".join(f"{bits} bits {x:,.1f}" for bits, x in line.items()) for way, line in perplexity.items()
    ]
    groups = f"a group of {group} tokens in one channel and a group of {min(group, channels)} channels in one token"
    above = f"Above: size of {tokens} keys of one head in {channels} channels, with {groups}"
    fig.alt = f"{title}. {above}. Below: {'; '.join(lines)}; exact {exact:,.1f}."
    return fig


def _heat_panel(fig, sizes, top, group):
    tokens, channels = sizes.shape
    ax = add_axes(fig, LEFT, 3.2, WIDTH - LEFT - 1.0, 2.05)
    scaled = (sizes / sizes.median()).T.numpy()
    image = ax.imshow(scaled, aspect="auto", cmap="Blues", vmin=0, vmax=10, interpolation="nearest")
    ax.set(xlabel="token", ylabel="channel")
    ax.spines[:].set_visible(False)
    looks = {"fill": False, "edgecolor": ACCENT, "linewidth": 1.8, "clip_on": False}
    start = (tokens - group) // 2
    ax.add_patch(Rectangle((start - 0.5, top - 0.9), group, 1.8, **looks))
    ax.add_patch(Rectangle((start - 6.9, -0.5), 1.8, min(group, channels), **looks))
    words = {"textcoords": "offset points", "color": "#a8450a", "weight": "bold", "va": "bottom"}
    ax.annotate("one group per token", (start - 6, -0.5), (4, 3), ha="right", **words)
    # The words stand above the map, a thin line leads down to the group.
    ax.plot([start + group / 2] * 2, [-0.5, top - 0.9], color=ACCENT, linewidth=1, clip_on=False)
    ax.annotate("one group per channel", (start + group / 2, -0.5), (0, 3), ha="center", **words)
    bar = fig.colorbar(image, cax=add_axes(fig, WIDTH - 0.85, 3.2, 0.14, 2.05), extend="max")
    bar.set_label("size (median = 1)")
    bar.outline.set_visible(False)


def _bits_panel(ax, perplexity, exact):
    styles: Sequence = (("o", DARK, "-"), ("s", ACCENT, "--"), ("^", BLUE, ":"))
    seen = sorted({bits for line in perplexity.values() for bits in line}, reverse=True)
    for (way, line), (marker, colour, dash) in zip(perplexity.items(), styles, strict=False):
        places = [seen.index(bits) for bits in sorted(line, reverse=True)]
        values = [line[bits] for bits in sorted(line, reverse=True)]
        ax.plot(places, values, dash, marker=marker, color=colour)
        ax.annotate(way, (places[-1], values[-1]), (10, 0), textcoords="offset points", va="center", color=colour)
    worst = {bits: max(line.get(bits, 0) for line in perplexity.values()) for bits in seen}
    best = {bits: min(line.get(bits, float("inf")) for line in perplexity.values()) for bits in seen}
    for place, bits in enumerate(seen):
        side = {"textcoords": "offset points", "ha": "center", "color": DARK}
        ax.annotate(f"{worst[bits]:,.1f}", (place, worst[bits]), (0, 7), va="bottom", **side)
        if len(perplexity) > 1 and best[bits] < worst[bits] / 1.35:
            ax.annotate(f"{best[bits]:,.1f}", (place, best[bits]), (0, 7), va="bottom", **side)
    ax.axhline(exact, color=GREY, linewidth=1.2, linestyle=(0, (4, 3)))
    ax.annotate(f"exact: {exact:,.1f}", (0, exact), (-8, -4), textcoords="offset points", va="top", color=GREY)
    ax.set_yscale("log")
    ax.set(xlim=(-0.25, len(seen) - 0.85), ylim=(exact / 1.45, max(worst.values()) * 1.6))
    ax.set(xlabel="bits a number", ylabel="perplexity (log)")
    ax.set_xticks(range(len(seen)), [str(bits) for bits in seen])
    powers = [x for x in (5, 10, 20, 50, 100, 200, 500, 1_000) if exact / 1.3 < x < max(worst.values()) * 1.5]
    ax.yaxis.set_major_locator(FixedLocator(powers))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_yticklabels([f"{x:,}" for x in powers])
