"""Task 14c: what can be asked of a state, and why not the rest."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from ..containers import DynamicCache
from .objects import toy
from .task import Wrong, choices, task

REASONS = ["works", "refused: no way back", "refused: no list of tokens"]


@dataclass(frozen=True)
class Asked:
    """One operation on the cache of the toy Mamba, after it has read some letters."""

    letters: str
    operation: str
    do: Callable = field(repr=False)
    reason: str
    hints: dict = field(repr=False)  # a wrong word -> what speaks against it
    recording: bool = False

    def __str__(self):
        count = len(self.letters)
        how = "recording switched on, " if self.recording else ""
        return f"{how}{count} letter{'s' * (count > 1)} read, then {self.operation}"

    def live(self):
        """("works" or "refused", what the cache said)."""
        model, tokenizer = toy("toy-mamba")
        cache = DynamicCache(config=model.config)
        if self.recording:
            cache.activate_past_recording()
        with torch.no_grad():
            model(tokenizer(self.letters, return_tensors="pt").input_ids, cache=cache)
            try:
                self.do(cache, model)
            except (RuntimeError, ValueError) as error:
                return "refused", str(error)
        return "works", "no error"


WORKS, NO_WAY_BACK, NO_LIST = REASONS
BACK = {
    NO_LIST: "it is not that it can't find the token: it has been added to all others, and can't be taken out again"
}
WHOLE = {
    NO_LIST: "no single token is needed for that: the state is a few tensors, treated as one thing",
    NO_WAY_BACK: "nothing is taken out of the state here: it is a few tensors, treated as one thing",
}
OPERATIONS = {
    "a": Asked(
        "mango",
        "crop(-5), so all of them",
        lambda cache, model: cache.crop(-5),
        NO_WAY_BACK,
        BACK
        | {
            WORKS: "a crop would have to take five tokens out of the sum; rounded and decayed, they can't be found "
            "there any more. To forget everything there is reset()"
        },
    ),
    "b": Asked(
        "ma",
        "crop(-1)",
        lambda cache, model: cache.crop(-1),
        NO_WAY_BACK,
        BACK
        | {
            WORKS: "a short text does not help: the window of 4 inputs still has both letters, but the recurrent state "
            "has folded them together from the first one on"
        },
    ),
    "c": Asked(
        "man",
        "crop(-1)",
        lambda cache, model: cache.crop(-1),
        NO_WAY_BACK,
        BACK
        | {WORKS: "recording helps a window, which keeps tokens; of a state it keeps the convolution's inputs alone"},
        recording=True,
    ),
    "d": Asked(
        "mango",
        "the cache is written to a file and read back (Python's pickle)",
        lambda cache, model: pickle.loads(pickle.dumps(cache)),
        WORKS,
        WHOLE | {NO_WAY_BACK: "copying is possible, into a file as well: a few tensors, treated as one thing"},
    ),
    "e": Asked(
        "mango",
        "four beams: batch_repeat_interleave(4), reorder_cache([3, 3, 0, 1])",
        lambda cache, model: (cache.batch_repeat_interleave(4), cache.reorder_cache(torch.tensor([3, 3, 0, 1]))),
        WORKS,
        WHOLE,
    ),
    "f": Asked(
        "mango",
        "batch_repeat_interleave(3), then get_seq_length()",
        lambda cache, model: (cache.batch_repeat_interleave(3), cache.get_seq_length()),
        NO_LIST,
        {
            WORKS: "there is nothing to count, in three rows no more than in one: a state has the same shape after one "
            "token and after 1,000",
            NO_WAY_BACK: "nothing is to be taken back; a length is asked for, and there is nothing to count",
        },
    ),
    "g": Asked(
        "mango",
        "copy.deepcopy(cache), then crop(-1) of the copy",
        lambda cache, model: copy.deepcopy(cache).crop(-1),
        NO_WAY_BACK,
        BACK
        | {
            WORKS: "a copy leads back to the moment when it was made, and no further: this one was made after the "
            "letters had been read"
        },
    ),
    "h": Asked(
        "mango",
        "reset(), then a batch of two",
        lambda cache, model: (cache.reset(), model(torch.tensor([[5], [6]]), cache=cache)),
        WORKS,
        WHOLE,
    ),
}


def in_full(predictions):
    """Predictions in which "no way back" stands for "refused: no way back"; anything else as it is."""
    if not isinstance(predictions, dict):
        return predictions
    short = {reason.removeprefix("refused: "): reason for reason in REASONS}
    return {letter: short.get(str(said).strip().casefold(), said) for letter, said in predictions.items()}


@task("14c", "your eight predictions against live caches of the toy Mamba")
def task_14c(predictions):
    """`predictions`: a word of REASONS for each letter of OPERATIONS."""
    predictions = choices(in_full(predictions), list(OPERATIONS), REASONS)
    for letter, asked in OPERATIONS.items():
        outcome, _ = asked.live()
        said = predictions[letter]
        if said != asked.reason:
            came = "it works" if outcome == "works" else asked.reason
            raise Wrong(tested=f"{letter}: {asked}", predicted=said, came=came, likely=asked.hints[said])
    return {"works": "d, e, h: the state as a whole", "refused": "a, b, c, g have no way back; f no list to count"}
