"""Task 14c: what can be asked of a state, and why not the rest."""

import copy
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
        how = ", recording" if self.recording else ""
        return f"{count} letter{'s' * (count > 1)} read{how}, then {self.operation}"

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
SUM = "a crop would have to take one token out of the sum; rounded and decayed, it can't be found there any more"
WHOLE = {
    NO_LIST: "no single token is needed for that: the state is a few tensors, treated as one thing",
    NO_WAY_BACK: "nothing is taken out of the state here: it is a few tensors, treated as one thing",
}
OPERATIONS = {
    "a": Asked("mango", "crop(-1)", lambda cache, model: cache.crop(-1), NO_WAY_BACK, BACK | {WORKS: SUM}),
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
        "mango",
        "crop(-2)",
        lambda cache, model: cache.crop(-2),
        NO_WAY_BACK,
        BACK
        | {WORKS: "recording helps a window, which keeps tokens; of a state it keeps the convolution's inputs alone"},
        recording=True,
    ),
    "d": Asked(
        "mango",
        "copy.deepcopy(cache)",
        lambda cache, model: copy.deepcopy(cache),
        WORKS,
        WHOLE | {NO_WAY_BACK: "copying is possible, and cheap: it is the only way back, if it is done beforehand"},
    ),
    "e": Asked(
        "mango",
        "cache.batch_repeat_interleave(4), for four beams",
        lambda cache, model: cache.batch_repeat_interleave(4),
        WORKS,
        WHOLE,
    ),
    "f": Asked(
        "mango",
        "cache.get_seq_length()",
        lambda cache, model: cache.get_seq_length(),
        NO_LIST,
        {
            WORKS: "there is nothing to count: a state has the same shape after 1 token and after 1,000",
            NO_WAY_BACK: "nothing is to be taken back; a length is asked for, and there is nothing to count",
        },
    ),
    "g": Asked(
        "mango",
        "crop(0)",
        lambda cache, model: cache.crop(0),
        WORKS,
        WHOLE | {NO_WAY_BACK: "crop(0) takes nothing back, so nothing has to be found in the state"},
    ),
    "h": Asked(
        "mango",
        "reset(), then a batch of two",
        lambda cache, model: (cache.reset(), model(torch.tensor([[5], [6]]), cache=cache)),
        WORKS,
        WHOLE,
    ),
}


@task("14c", "your eight predictions against live caches of the toy Mamba")
def task_14c(predictions):
    """`predictions`: a word of REASONS for each letter of OPERATIONS."""
    choices(predictions, list(OPERATIONS), REASONS)
    for letter, asked in OPERATIONS.items():
        outcome, error = asked.live()
        said = predictions[letter]
        if said != asked.reason:
            came = "it works" if outcome == "works" else f"refused: {error}"
            raise Wrong(tested=f"{letter}: {asked}", expected=said, came=came, likely=asked.hints[said])
    return {"works": "d, e, g, h: the state as a whole", "refused": "a, b, c have no way back; f no list to count"}
