"""Numbers in fewer bits: codes packed in bytes, what a format can represent, and an error that falls step by step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .picture import ACCENT, BLUE, DARK, GREY, WIDTH, add_axes, head_height, new_picture, plural, put_title, styled

ROW = 0.72  # inches
MOST_CODES = 16


def packing_text(codes: Sequence[int], bits: int) -> str:
    """Codes of `bits` bits, the bytes that `pack` makes of them, and under each bit the code that it belongs to.

    At most 16 codes (one hexadecimal digit names each). A dot marks a bit that pads the last byte.
    """
    import torch

    from ..quantize import pack  # loads torch, which a picture alone does not need

    if not 0 < len(codes) <= MOST_CODES:
        raise ValueError(f"1 to {MOST_CODES} codes can be drawn, got {len(codes)}")
    packed = pack(torch.tensor(codes, dtype=torch.uint8), bits).tolist()
    lines = [f"code {i:x}   {code:3} = {code:0{bits}b}" for i, code in enumerate(codes)]
    for i, byte in enumerate(packed):
        places = range(8 * i + 7, 8 * i - 1, -1)  # the highest bit of a byte is written first
        owners = [f"{place // bits:x}" if place < bits * len(codes) else "." for place in places]
        lines += ["", f"byte {i}     " + " ".join(f"{byte:08b}"), "of code    " + " ".join(owners)]
    saved = f"{plural(len(codes), 'code')} of {bits} bits: {plural(len(packed), 'byte')}"
    return "\n".join([*lines, "", saved])


@dataclass(frozen=True)
class NumberLine:
    """One line: the values that a format can represent, and numbers that have to land on them."""

    label: str
    values: Sequence[float]
    numbers: Sequence[float] = ()

    def landing(self, number: float) -> float:
        """The nearest value."""
        return min(self.values, key=lambda value: abs(value - number))

    @property
    def errors(self) -> list[float]:
        """How far each number lands from where it was."""
        return [abs(self.landing(number) - number) for number in self.numbers]

    def between(self, low: float, high: float) -> int:
        """How many of the values lie strictly between."""
        return sum(low < value < high for value in self.values)


@styled
def number_line(lines: Sequence[NumberLine], zoom: float | None = None) -> Figure:
    """Draw what formats can represent: a tick for each value, a dot for each number, and the way to where it lands.

    `zoom`: a second panel with the same lines from -zoom to zoom; the title then counts the values between -1 and 1,
    otherwise it names the largest error of each line.
    """
    if not lines or any(len(line.values) == 0 for line in lines):
        raise ValueError("nothing to draw: give at least one NumberLine with at least one value")
    if zoom:
        counted = [f"{line.between(-1, 1):,} of {len(line.values):,} values ({line.label})" for line in lines]
        title = "Between -1 and 1 lie " + " and ".join(counted)
    else:
        title = "; ".join(f"{line.label}: off by up to {max(line.errors, default=0):.2g}" for line in lines)
    title = title[:1].upper() + title[1:]
    everything = [x for line in lines for x in (*line.values, *line.numbers)]
    edge = 0.03 * ((max(everything) - min(everything)) or 1)
    spans = [(min(everything) - edge, max(everything) + edge), *([(-zoom, zoom)] if zoom else [])]
    tall, gap = ROW * len(lines), 0.55
    fig = new_picture((tall + gap) * len(spans) + head_height(title))
    for row, span in enumerate(reversed(spans)):
        ax = add_axes(fig, 0.3, gap + row * (tall + gap), WIDTH - 0.6, tall)
        _draw_lines(ax, lines, span)
    fig.axes[0].set_xlabel("number", loc="left")
    put_title(fig, title)
    parts = [(plural(len(line.values), "value"), plural(len(line.numbers), "number")) for line in lines]
    words = [
        f"{line.label}: {' and '.join(p[: 1 + bool(len(line.numbers))])}" for line, p in zip(lines, parts, strict=True)
    ]
    fig.alt = f"{title}. A tick for each value, a dot for each number, a line to where it lands. {'; '.join(words)}."
    return fig


def _draw_lines(ax: Axes, lines: Sequence[NumberLine], span: tuple[float, float]) -> None:
    ax.set(xlim=span, ylim=(len(lines) - 0.45, -0.62))
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.xaxis.set_major_locator(MaxNLocator(9))
    for y, line in enumerate(lines):
        ax.axhline(y, color=GREY, linewidth=0.8)
        seen = [value for value in line.values if span[0] <= value <= span[1]]
        crowded = len(seen) > 100
        ax.vlines(seen, y - 0.02, y + 0.3, color=DARK, linewidth=0.5 if crowded else 1.6)
        for number in line.numbers:
            if span[0] <= number <= span[1]:
                ax.plot([number, line.landing(number)], [y - 0.22, y], color=ACCENT, linewidth=1.1)
                ax.plot([number], [y - 0.22], "o", color=ACCENT, markersize=4.5)
        at = (0, y - (0.3 if line.numbers else 0.04))
        ax.annotate(line.label, at, (2, 0), ("axes fraction", "data"), textcoords="offset points", va="bottom")


@styled
def error_by_step(errors: Mapping[str, Sequence[float]]) -> Figure:
    """Lines that fall: the mean error after 0, 1, 2, ... steps, each as a share of the error before the first step."""
    if not errors or any(len(line) < 2 or not line[0] > 0 for line in errors.values()):
        raise ValueError("give {label: errors}, two or more errors each, the first one above 0")
    shares = {label: [100 * error / line[0] for error in line] for label, line in errors.items()}
    fallen = [f"{100 - line[-1]:.0f} % ({label})" for label, line in shares.items()]
    steps = max(len(line) for line in errors.values()) - 1
    title = f"{plural(steps, 'step')} lower the mean error by " + ", ".join(fallen)
    fig = new_picture(2.75 + head_height(title))
    ax = add_axes(fig, 0.75, 0.6, WIDTH - 2.3, 2.1)
    styles = (("o", DARK, "-"), ("s", BLUE, "--"), ("^", ACCENT, ":"), ("D", GREY, "-."))
    ends = sorted((line[-1], label) for label, line in shares.items())
    low = min(min(line) for line in shares.values())
    room, heights = (102 - low) * 0.08, []
    for value, _ in ends:  # labels of lines that end close together are moved apart
        heights.append(max(value, heights[-1] + room) if heights else value)
    for (label, line), (marker, colour, dash) in zip(shares.items(), styles * len(shares), strict=False):
        ax.plot(range(len(line)), line, dash, marker=marker, markersize=4, color=colour)
        height = heights[ends.index((line[-1], label))]
        ax.annotate(label, (len(line) - 1, height), (8, 0), textcoords="offset points", va="center", color=colour)
    ax.set(xlabel="steps of the solver", ylabel="mean error, % of the start", ylim=(low - room, 101.5))
    ax.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    put_title(fig, title)
    fig.alt = f"{title}. One line each, from 100 % down."
    return fig
