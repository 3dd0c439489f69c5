"""What happened to each position in each step: the data behind the strip and its text twin.

A `Step` is one row of the strip. A `Recorder` makes the rows by asking a live cache, after every
event, one question only: `cache.positions(layer_idx)`, the positions that the layer holds now.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import index

# mark -> (one character for the text twin, words of the legend)
MARKS = {
    "computed": ("█", "computed now"),
    "read": ("░", "kept, read from the cache"),
    "recomputed": ("╱", "recomputed"),
    "dropped": ("·", "dropped"),
    "quantized": ("▄", "quantized"),
    "offloaded": ("▒", "offloaded"),
}


def check_positions(positions: Iterable[int], who: str = "positions") -> tuple[int, ...]:
    """Return the positions as a tuple of ints, or raise a ValueError that says what is wrong with them."""
    given = list(positions)
    try:
        found = tuple(index(p) for p in given)
    except TypeError:
        raise ValueError(f"{who}: positions are whole numbers, got {given}") from None
    if any(p < 0 for p in found):
        raise ValueError(f"{who}: a position is never negative, got {given}; the first token is 0")
    if any(a >= b for a, b in zip(found, found[1:], strict=False)):
        raise ValueError(f"{who}: positions must ascend and not repeat, got {given}; sort them first")
    return found


@dataclass(frozen=True)
class Step:
    """One row: a label and, for each position that has something to show, the name of its mark."""

    label: str
    marks: dict[int, str] = field(default_factory=dict)

    def __post_init__(self):
        check_positions(sorted(self.marks), f"step {self.label!r}")
        for position, mark in self.marks.items():
            if mark not in MARKS:
                known = ", ".join(MARKS)
                raise ValueError(f"step {self.label!r}, position {position}: no mark {mark!r}; known: {known}")

    def with_mark(self, mark: str, positions: Iterable[int]) -> "Step":
        """The same row with another mark at these positions: what `positions()` can't tell (quantized, offloaded)."""
        return replace(self, marks={**self.marks, **dict.fromkeys(positions, mark)})


def count(steps: Iterable[Step], *marks: str) -> int:
    """How many boxes of all rows carry one of the marks: `count(steps, "computed", "recomputed")`."""
    return sum(mark in marks for step in steps for mark in step.marks.values())


def span(steps: Sequence[Step]) -> tuple[int, int]:
    """First and last position of all rows. ValueError when there is nothing to draw."""
    positions = [p for step in steps for p in step.marks]
    if not positions:
        raise ValueError("nothing to draw: no step has a marked position; record at least one step")
    return min(positions), max(positions)


class Recorder:
    """Takes a snapshot of one layer after each event and turns the difference into a `Step`.

    Call `step(label)` once after every forward and once after every crop. Then
    a position that is new was computed now (recomputed, if it had been computed in an earlier step);
    a position held before the forward was read; a position of the past that is not held was dropped.

    Without a cache (`Recorder()`) nothing can be asked, so say what was sent: `step(label, computed=range(n))`.
    """

    def __init__(self, cache=None, layer_idx: int = 0):
        self._cache, self._layer_idx = cache, layer_idx
        self._held = self._positions()
        self._length = self._held[-1] + 1 if self._held else 0
        self._ever = set(self._held)
        self.steps: list[Step] = []

    def _positions(self) -> tuple[int, ...]:
        return check_positions(self._cache.positions(self._layer_idx), "cache") if self._cache is not None else ()

    def step(self, label: str, computed: Iterable[int] | None = None) -> Step:
        """Record one event. `computed`: the positions sent through the model, where the layer can't tell.

        The layer can't tell when it holds nothing afterwards (a window of 1, no cache).
        """
        held = self._positions()
        end = held[-1] + 1 if held else 0
        # Whatever lies between the old length and the new one went through the model, even if a window
        # dropped it at once. After a crop the new length is smaller and the range is empty.
        new = check_positions(range(self._length, end) if computed is None else computed, f"step {label!r}")
        if new:
            read, end = [p for p in self._held if p < new[0]], max(end, new[-1] + 1)
        else:
            read = held  # nothing ran: a crop, or nothing at all. What is left is kept.
        past = [p for p in self._ever if p < max(end, self._length)]
        marks = dict.fromkeys(past, "dropped") | dict.fromkeys(read, "read")
        marks |= {p: "recomputed" if p in self._ever else "computed" for p in new}
        made = Step(label, dict(sorted(marks.items())))
        self._ever.update(new)
        self._held, self._length = held, end
        self.steps.append(made)
        return made
