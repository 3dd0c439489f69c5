"""Step through the life of a layer, and say before each step which boxes will remain.

    >>> stories = {"window of 4": story(config, [6, -2, 1], layer_idx=1, recording=True)}
    >>> StepThrough(stories)

A story is made beforehand by a live cache that is filled with zeros; no model is needed, only the config of one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill as wrapped

from ..picture import plural
from ..steps import Recorder, Step
from ..strip import strip
from ..text import MOST_BOXES, box_rows, strip_text
from .base import NARROW, Widget


@dataclass(frozen=True)
class Move:
    """One event of a story: what the layer held before, what was read, what it holds now."""

    event: str  # "read 6", "crop(-2)"
    before: tuple[int, ...]
    new: tuple[int, ...]  # positions read in this event
    after: tuple[int, ...]
    refused: str  # the words of the error; empty where there was none
    step: Step  # the row of the strip

    @property
    def asked(self):
        """Positions that may be held afterwards."""
        return self.before + self.new


def story(config, events: Sequence[int], layer_idx: int = 0, recording: bool = False) -> list[Move]:
    """What one layer of a new `DynamicCache` held through some events.

    events: 6 reads six tokens; -2 is `crop(-2)` and 0 is `crop(0)`. recording: whether past recording is on, from the
    start. A crop that is refused is told in `Move.refused`, and changes nothing.
    """
    from ...containers import DynamicCache
    from ...measure import fill

    cache = DynamicCache(config=config)
    if recording:
        cache.activate_past_recording()
    recorder, moves = Recorder(cache, layer_idx), []
    for event in events:
        before, length = tuple(cache.positions(layer_idx)), cache.get_seq_length(layer_idx)
        name, refused = f"read {event}" if event > 0 else f"crop({event})", ""
        try:
            fill(cache, config, event) if event > 0 else cache.crop(event)
        except RuntimeError as error:
            refused = str(error)
        new = tuple(range(length, length + event))  # empty for a crop
        step = recorder.step(f"{name}, refused" if refused else name, new or None)
        moves.append(Move(name, before, new, tuple(cache.positions(layer_idx)), refused, step))
    return moves


class StepThrough(Widget):
    """A button for each story, a button for each box, "it refuses", and one button that does the next event.

    stories: {name: moves}, see `story`. The first one is shown to begin with, and is that of `picture()` and `text()`
    until another is chosen. The widget has a state to look at: `name`, `place` of the move, `guess`, `shown`.
    """

    def __init__(self, stories: Mapping[str, Sequence[Move]]):
        self.stories = {name: list(moves) for name, moves in stories.items()}
        if not self.stories or not all(self.stories.values()):
            raise ValueError("give {name: moves}, each with at least one move: see kvcourse.show.story")
        self._boxes = 1 + max(p for moves in self.stories.values() for m in moves for p in (0, *m.asked))
        if self._boxes > MOST_BOXES:
            raise ValueError(f"{self._boxes} positions are more boxes than the {MOST_BOXES} that fit on a line")
        self._begin(next(iter(self.stories)))

    def _begin(self, name):
        self.name, self.place, self.shown = name, 0, False
        self.right = 0  # moves guessed right

    @property
    def move(self) -> Move:
        return self.stories[self.name][self.place]

    @property
    def last(self):
        return self.place == len(self.stories[self.name]) - 1

    def controls(self):
        from ipywidgets import Button, HBox, Label, Layout, ToggleButton, ToggleButtons

        self.which = ToggleButtons(options=list(self.stories), description="layer", style=NARROW)
        narrow = Layout(width="44px", padding="0", margin="0 2px 0 0")
        self.boxes = [ToggleButton(description=str(p), layout=narrow) for p in range(self._boxes)]
        self.refuses = ToggleButton(description="it refuses")
        self.act = Button(button_style="primary")
        self.again = Button(description="start again")
        self.which.observe(lambda change: self._restart(), "value")
        self.act.on_click(lambda _: self._press())
        self.again.on_click(lambda _: self._restart())
        self._set_controls()
        line = Layout(flex_flow="row wrap")
        boxes = HBox([Label("I expect to remain:"), *self.boxes, self.refuses], layout=line)
        return [self.which, boxes, HBox([self.act, self.again])]

    @property
    def guess(self):
        """Positions whose box is pressed, in order."""
        return [p for p, box in enumerate(self.boxes) if box.value]

    def _restart(self):
        self._begin(self.which.value)
        self._set_controls()
        self.draw()

    def _press(self):
        """Do the event, or go on to the next one."""
        if not self.shown:
            self.shown = True
            self.right += self.is_right()
        elif not self.last:
            self.place, self.shown = self.place + 1, False
        self._set_controls()
        self.draw()

    def is_right(self):
        """Whether the guess is what happened. Who expects a refusal need not press boxes."""
        if self.move.refused or self.refuses.value:
            return bool(self.move.refused) and self.refuses.value
        return self.guess == list(self.move.after)

    def _set_controls(self):
        """Only boxes that can be held afterwards can be pressed, and none after the event."""
        for position, box in enumerate(self.boxes):
            box.disabled = self.shown or position not in self.move.asked
            box.value = box.value and self.shown
        self.refuses.value = self.refuses.value and self.shown
        self.refuses.disabled = self.shown or bool(self.move.new)
        self.act.description = "go on" if self.shown else self.move.event
        self.act.disabled = self.shown and self.last

    def page(self):
        moves, move = self.stories[self.name], self.move
        head = f"{self.name}, step {self.place + 1} of {len(moves)}: {move.event}"
        rows = {"held before": move.before} | ({"read now": move.new} if move.new else {})
        if not self.shown:
            return f"{head}\n\n{box_rows(rows)}\n\nPress the boxes that you expect to remain, then: {move.event}"
        refusal = {"your guess": "it refuses"} if self.refuses.value else None
        truth = box_rows(rows | {"your guess": [] if refusal else self.guess, "truth": move.after}, refusal)
        return f"{head}\n\n{truth}\n\n{wrapped(self._verdict(), 92)}"

    def _verdict(self):
        move, wrong = self.move, len(set(self.guess) ^ set(self.move.after))
        if move.refused:
            said = f"it was refused, and nothing has changed: {move.refused}"
        elif self.refuses.value:
            said = "it did not refuse"
        else:
            said = f"{len(move.asked) - wrong} of {plural(len(move.asked), 'box').replace('boxs', 'boxes')} as you said"
        end = f" Right in {self.right} of {len(self.stories[self.name])} steps." if self.last else ""
        return ("Right: " if self.is_right() else "Not this time: ") + said + "." * (said[-1] != ".") + end

    def picture(self):
        """The whole story that is chosen, as the strip."""
        steps = [move.step for move in self.stories[self.name]]
        refused = sum(bool(move.refused) for move in self.stories[self.name])
        held = plural(len(self.stories[self.name][-1].after), "token")
        title = f"{self.name}: {held} left after {plural(len(steps), 'step')}"
        return strip(steps, title + (f", {refused} of them refused" if refused else ""))

    def text(self):
        """The same story in characters, and what was said where it refused."""
        moves = self.stories[self.name]
        said = [f"{m.event} refused: {m.refused}" for m in moves if m.refused]
        return "\n".join([self.name, "", strip_text([m.step for m in moves]), *(wrapped(s, 92) for s in said)])

    def __repr__(self):
        return f"StepThrough({', '.join(self.stories)})"
