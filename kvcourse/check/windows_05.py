"""Task 05b: what a window holds after a crop, or that it refuses."""

from dataclasses import dataclass

import torch

from ..cache import Cache
from ..layers import DynamicSlidingLayer
from .task import Case, Mistake, Unfinished, Wrong, compare, task
from .words import Phrase, words


@dataclass(frozen=True)
class Crop:
    """One question: what does a windowed layer do?"""

    window: int
    tokens: int
    recording: bool
    remove: int

    def __str__(self):
        how = "recording" if self.recording else "not recording"
        tokens = f"{self.tokens} token{'s' * (self.tokens > 1)}"
        return f"window of {self.window}, {tokens} read at once, {how}, then crop({-self.remove})"

    def live(self):
        """(positions held, length) after the crop; "refused"."""
        cache = Cache(layers=[DynamicSlidingLayer(self.window)])
        if self.recording:
            cache.activate_past_recording()
        cache.update(*(torch.zeros(1, 1, self.tokens, 2) for _ in "kv"), 0)
        try:
            cache.crop(-self.remove)
        except RuntimeError:
            return "refused"
        return cache.positions(0), cache.get_seq_length()


CROPS = {
    "a": Crop(4, 3, False, 1),
    "b": Crop(4, 6, False, 1),
    "c": Crop(2, 6, True, 3),
    "d": Crop(4, 6, True, 2),
    "e": Crop(4, 4, False, 1),
    "f": Crop(4, 9, False, 0),
    "g": Crop(2, 1, False, 1),
    "h": Crop(4, 9, True, 0),
}


def asked(letter):
    """A case: what was said about one row."""

    def play(answer, seen):
        said = answer[letter]
        if isinstance(said, str):
            seen["outcome"] = Phrase(said)
            return
        seen["outcome"] = Phrase("it crops")
        seen["positions held afterwards"], seen["length afterwards"] = list(said[0]), said[1]

    return Case(f"{letter}: {CROPS[letter]}", play)


def said(rule):
    """The answers of somebody who follows this rule: a Crop -> (positions, length), or "refused"."""
    return {letter: rule(crop) for letter, crop in CROPS.items()}


def keeps(crop, kept):
    """Cropped, with the last `kept` of what is left."""
    length = crop.tokens - crop.remove
    return list(range(max(length - kept, 0), length)), length


def takes_from(crop, held):
    """The last `held` tokens were there, and those to remove are taken from them."""
    length = crop.tokens - crop.remove
    return list(range(max(crop.tokens - held, 0), length)), length


def right_but(crop, change):
    live = crop.live()
    return live if live == "refused" else change(crop, *live)


BEFORE = (
    "it was recording, so what the window would have dropped is still there; of all that is left after the crop it "
    "keeps the last W - 1"
)
WINDOW_MISTAKES = [
    Mistake(
        "a window of W counts the token that looks, so W - 1 are kept for the next one",
        said(lambda crop: right_but(crop, lambda *_: keeps(crop, crop.window))),
    ),
    Mistake(
        "the length says how far the text goes, not how many tokens are held",
        said(lambda crop: right_but(crop, lambda _, held, length: (held, len(held)))),
    ),
    Mistake(
        "as long as the window has dropped nothing, a crop needs no recording",
        said(lambda crop: crop.live() if crop.recording or not crop.remove else "refused"),
    ),
    Mistake(
        "it was recording: what it would have dropped is still there, so it can go back",
        said(lambda crop: crop.live() if crop.tokens < crop.window or not crop.remove else "refused"),
    ),
    Mistake(
        "it would need a token that the window has dropped, so it refuses",
        said(lambda crop: crop.live() if crop.recording else keeps(crop, crop.window - 1)),
    ),
    Mistake(
        "it would need a token that the window has dropped, so it refuses",
        said(lambda crop: crop.live() if crop.recording else takes_from(crop, crop.window - 1)),
    ),
    Mistake(BEFORE, said(lambda crop: takes_from(crop, crop.window - 1) if crop.recording else crop.live())),
    Mistake(BEFORE, said(lambda crop: takes_from(crop, crop.window) if crop.recording else crop.live())),
    Mistake(
        "positions count from 0: the first token of the text is at 0",
        said(lambda crop: right_but(crop, lambda _, held, length: ([position + 1 for position in held], length))),
    ),
    Mistake(
        "a window of W keeps W - 1: with W tokens read, the first one has been dropped already",
        said(
            lambda crop: (
                keeps(crop, crop.window - 1) if crop.tokens <= crop.window and not crop.recording else crop.live()
            )
        ),
    ),
    Mistake(
        "what was recorded is kept until the next crop, not beyond it: then the last W - 1 are left",
        said(lambda crop: keeps(crop, crop.tokens) if crop.recording else crop.live()),
    ),
    Mistake(
        "crop(0) removes no token from the text: it says what is read so far is settled",
        said(lambda crop: crop.live() if crop.remove else ([], 0)),
    ),
    Mistake(
        "crop(0) never raises: nothing has to be taken back",
        said(lambda crop: crop.live() if crop.remove else "refused"),
    ),
    Mistake(
        "these are the positions of a layer that keeps everything; a window holds the last W - 1",
        said(lambda crop: keeps(crop, crop.tokens)),
    ),
    Mistake(
        "nothing has gone yet: that is what the layer held before the crop",
        said(lambda crop: right_but(crop, lambda *_: keeps(Crop(crop.window, crop.tokens, True, 0), crop.window - 1))),
    ),
]


@task("05b", "your eight predictions against live caches")
def task_05b(predictions):
    """`predictions`: letter of CROPS -> (positions, length) as in ([0, 1], 2), or "refused"."""
    if not isinstance(predictions, dict):
        raise Wrong(expected='a dict such as {"a": ([0, 1], 2), ...}', came=words(predictions))
    missing = [letter for letter in CROPS if predictions.get(letter, ...) is ...]
    if missing:
        raise Unfinished(f'a prediction for {", ".join(missing)}: ([positions], length), or "refused"')
    read = {letter: _read(letter, predictions[letter]) for letter in CROPS}
    compare(read, said(Crop.live), [asked(letter) for letter in CROPS], WINDOW_MISTAKES)
    return {"predicted": "all eight as the live caches did", "refused": "b and e: a token would be missing"}


REFUSED = ("refused", "refuses", "refuse", "it refuses", "it refused", "it is refused")


def _read(letter, value):
    """A prediction as (positions, length) or "refused", in whatever form it was given; Wrong if in none."""
    if isinstance(value, str) and value.strip().casefold() in REFUSED:
        return "refused"
    if isinstance(value, (tuple, list)) and len(value) == 2:
        positions, length = (part.tolist() if hasattr(part, "tolist") else part for part in value)
        if isinstance(positions, (list, tuple, range, set)) and isinstance(length, int):
            return (sorted(positions) if isinstance(positions, set) else list(positions)), length
    form = 'a list of positions and a length, as in ([0, 1], 2), or the word "refused"'
    raise Wrong(tested=f"{letter}: {CROPS[letter]}", expected=form, came=words(value))
