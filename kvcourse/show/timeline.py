"""The offload timeline: what the link carries and what the device computes, side by side, in one step.

Data are the `Event`s of an offloader (layer, kind, start, end, nbytes), the last step of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from .picture import BLUE, DARK, LIGHT, WIDTH, add_axes, head_height, new_picture, plural, put_title, styled, text_width
from .price import _time

LANES = ("fetch", "compute", "write-back")
LOOKS = {
    "fetch": {"facecolor": LIGHT, "edgecolor": BLUE},
    "compute": {"facecolor": DARK, "edgecolor": DARK},
    "write-back": {"facecolor": BLUE, "edgecolor": BLUE},
}
SHADE, SHADE_TEXT = "#fbdcc6", "#8f3a06"
LEFT, LANE = 1.05, 0.34  # inches


@dataclass(frozen=True)
class OneStep:
    """One step of a timeline; times in seconds since the last layer of the step before had computed."""

    events: tuple  # cut off at both ends of the step, in order of time
    waits: tuple  # (layer, start, end): the device had nothing to compute, that layer was not there yet
    seconds: float

    @property
    def layers(self):
        """Layers that computed."""
        return sum(event.kind == "compute" for event in self.events)

    @property
    def waited(self):
        """Seconds of waiting, all together."""
        return sum(end - start for _, start, end in self.waits)


def last_step(timeline: Sequence) -> OneStep:
    """The last step of a timeline: from one computation of the last layer to the next. ValueError if none computed."""
    computed = [event for event in timeline if event.kind == "compute"]
    if not computed:
        raise ValueError("the timeline holds no computation: run at least one step of an offloaded cache first")
    first = len(computed) - 1
    while first and computed[first - 1].layer < computed[first].layer:
        first -= 1
    step, origin = computed[first:], computed[first - 1].end if first else min(event.start for event in timeline)
    ends = [origin, *(event.end for event in step)]
    waits = [(e.layer, a - origin, e.start - origin) for e, a in zip(step, ends, strict=False) if e.start > a]
    shown = [event for event in timeline if event.end > origin and event.start < ends[-1]]
    shifted = [replace(e, start=max(e.start, origin) - origin, end=min(e.end, ends[-1]) - origin) for e in shown]
    return OneStep(tuple(shifted), tuple(waits), ends[-1] - origin)


def timeline_text(timeline: Sequence, per_character: float) -> str:
    """The last step in characters of `per_character` seconds: a digit is the layer (its last digit), · is waiting."""
    step = last_step(timeline)
    rows = {lane: [" "] * max(1, round(step.seconds / per_character)) for lane in LANES}
    marks = [(e.kind, str(e.layer % 10), e.start, e.end) for e in step.events]
    for lane, mark, start, end in [("compute", "·", *wait[1:]) for wait in step.waits] + marks:
        begin = min(round(start / per_character), len(rows[lane]) - 1)
        for column in range(begin, max(begin + 1, round(end / per_character))):
            rows[lane][column] = mark
    lines = [f"{lane:11}{''.join(row)}".rstrip() for lane, row in rows.items()]
    return "\n".join([*lines, f"A character is {_time(per_character)}, a digit a layer, · waiting."])


@styled
def offload_timeline(runs: Mapping[str, Sequence], until: float | None = None) -> Figure:
    """Draw the last step of one or more timelines, {label: events}, one below the other, on one scale.

    Three lanes each: what is fetched, what computes, what is written back; a number is a layer. Shaded: the device
    waits. A box that is cut off at an end of the step goes on in the step beside it.
    until: seconds at the right end, to give several figures one scale; by default the longest of the steps.
    """
    if not runs:
        raise ValueError("nothing to draw: give at least one timeline, {label: events}")
    steps = {label: last_step(timeline) for label, timeline in runs.items()}
    title = "; ".join(f"{label}: {_claim(step)}" for label, step in steps.items())
    title = title[:1].upper() + title[1:]
    longest = max(step.seconds for step in steps.values()) if until is None else until
    tall, gap, below = LANE * len(LANES), 0.42, 0.62
    fig = new_picture(below + (tall + gap) * len(steps) + head_height(title) - 0.1)
    for row, (label, step) in enumerate(reversed(steps.items())):
        ax = add_axes(fig, LEFT, below + row * (tall + gap), WIDTH - LEFT - 0.3, tall)
        ax.set(xlim=(0, 1000 * longest), ylim=(len(LANES) - 0.5, -0.5))
        _draw(ax, step, (WIDTH - LEFT - 0.3) / longest)
        words = f"{label}: {plural(step.layers, 'layer')} in {_time(step.seconds)}"
        ax.annotate(words, (0, 1), (0, 5), "axes fraction", textcoords="offset points", weight="bold", color=DARK)
        ax.set_yticks(range(len(LANES)), LANES)
        ax.tick_params(axis="y", length=0)
        ax.xaxis.set_major_locator(MaxNLocator(8))
        ax.tick_params(axis="x", labelbottom=row == 0)
    fig.axes[0].set_xlabel("milliseconds since the step began", loc="left")
    put_title(fig, title)
    fig.alt = f"{title}. " + " ".join(f"{label}: {_in_words(step)}." for label, step in steps.items())
    return fig


def _draw(ax: Axes, step: OneStep, inches: float) -> None:
    """One step into axes in milliseconds and lanes; inches: of one second."""
    for _, start, end in step.waits:
        ax.axvspan(1000 * start, 1000 * end, facecolor=SHADE, edgecolor="none", zorder=0)
        if (end - start) * inches > text_width("waits", 9.5) + 0.08:
            middle = 500 * (start + end), LANES.index("compute")
            ax.text(*middle, "waits", ha="center", va="center_baseline", color=SHADE_TEXT)
    for event in step.events:
        lane, wide = LANES.index(event.kind), event.end - event.start
        corner = (1000 * event.start, lane - 0.36)
        ax.add_patch(Rectangle(corner, 1000 * wide, 0.72, linewidth=1, **LOOKS[event.kind]))
        number = str(event.layer)
        if wide * inches > text_width(number, 9.5) + 0.06:
            colour = DARK if event.kind == "fetch" else "white"
            middle = 500 * (event.start + event.end)
            ax.text(middle, lane, number, ha="center", va="center_baseline", color=colour)


def _claim(step: OneStep) -> str:
    waiting = f"{_time(step.waited)} of waiting" if step.waits else "no waiting"
    return f"{_time(step.seconds)} a step, {waiting}"


def _in_words(step: OneStep) -> str:
    counts = [plural(sum(e.kind == kind for e in step.events), kind) for kind in ("fetch", "write-back")]
    counts[0] = counts[0].replace("fetchs", "fetches")
    waits = f"{plural(len(step.waits), 'wait')}, shaded" if step.waits else "no wait"
    return f"{plural(step.layers, 'layer')} compute beside {counts[0]} and {counts[1]}; {waits}"
