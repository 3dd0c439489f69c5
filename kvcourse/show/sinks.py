"""Attention sinks: how much attention each position gets, and what it costs to drop the first ones."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .picture import ACCENT, BLUE, DARK, GREY, WIDTH, add_axes, head_height, new_picture, put_title, styled, text_width


@styled
def sinks(attention: Sequence[float], perplexity: Mapping[str, float]) -> Figure:
    """Two panels: mean attention by position, and a bar of perplexity for each way to attend.

    attention: for each position the share of attention that it gets, a mean over layers, heads and queries; the shares
    add up to 1. perplexity: label -> perplexity, first of full attention, then of what is compared with it.
    """
    shares = [float(share) for share in attention]
    if len(shares) < 2 or abs(sum(shares) - 1) > 0.01:
        raise ValueError(f"shares of attention add up to 1; got {len(shares)} that add up to {sum(shares):.3g}")
    if len(perplexity) < 2:
        raise ValueError(f"give the perplexity of full attention and of one other way at least; got {dict(perplexity)}")
    top = max(range(len(shares)), key=shares.__getitem__)
    claim = "perplexity " + ", then ".join(f"{value:,.0f}" for value in perplexity.values())
    title = f"Position {top} gets {shares[top]:.0%} of the attention; {claim}"

    fig = new_picture(2.75 + head_height(title))
    _attention_panel(add_axes(fig, 0.7, 0.6, 3.35, 2.05), shares, top)
    _bar_panel(add_axes(fig, 4.75, 0.6, WIDTH - 4.75 - 0.65, 2.05), perplexity)
    put_title(fig, title)
    bars = ", ".join(f"{label} {value:,.0f}" for label, value in perplexity.items())
    fig.alt = f"{title}. Left: mean attention by position, {len(shares):,} positions. Right: perplexity, {bars}."
    return fig


def _attention_panel(ax, shares, top):
    percent = [100 * share for share in shares]
    ax.bar(range(len(shares)), percent, width=1.0, color=BLUE)
    ax.bar([top], [percent[top]], width=max(1.0, len(shares) / 90), color=ACCENT)  # one in hundreds must be visible
    ax.set(xlabel="position of the key", ylabel="share of attention, %", ylim=(0, 1.15 * percent[top]))
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.margins(x=0.02)
    rest = (sum(percent) - percent[top]) / (len(shares) - 1)
    at = {"textcoords": "offset points", "va": "top", "ha": "left" if top < len(shares) / 2 else "right"}
    side = 8 if top < len(shares) / 2 else -8
    ax.annotate(
        f"position {top}: {percent[top]:.0f} %", (top, percent[top]), (side, 2), weight="bold", color=DARK, **at
    )
    ax.annotate(f"the others: {rest:.1f} % each, on average", (top, percent[top]), (side, -14), color=GREY, **at)


def _bar_panel(ax, perplexity):
    values = list(perplexity.values())
    room = max(text_width(label, 9.5) for label in perplexity)
    ax.barh(
        range(len(values)),
        values,
        height=0.34,
        color=[DARK] + [ACCENT if v == max(values) else BLUE for v in values[1:]],
    )
    for y, (label, value) in enumerate(perplexity.items()):
        ax.annotate(label, (0, y - 0.24), (0, 0), textcoords="offset points", va="bottom", color=DARK)
        ax.annotate(f"{value:,.0f}", (value, y), (5, 0), textcoords="offset points", va="center", weight="bold")
    ax.set(ylim=(len(values) - 0.6, -0.75), xlabel="perplexity (lower is better)")
    ax.set_xlim(0, max(values) * max(1.0, room / 2.5))
    ax.set_yticks([])
    ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.spines["left"].set_visible(True)
