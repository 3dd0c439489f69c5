"""Task 08a: a layer in fixed slots, whose update a compiler has to record only once."""

from contextlib import contextmanager
from unittest import mock

import torch

from ..layers import StaticLayer
from .playing import is_pair, states
from .positions import where
from .recorded_08 import RECORDED_MISTAKES, STEPS, recording
from .reserved import Reserved
from .runner import run
from .slots_mistakes import FILLING_MISTAKES, Right
from .task import Case, Wrong, compare, task
from .words import Phrase, words


def fixed(answer, batch, kv_heads, slots, head_dim):
    """An object of the learner's class, which must have `update` and `reset`."""
    for method in ("update", "reset"):
        if not isinstance(answer, type) or not callable(getattr(answer, method, None)):
            wanted = f"a class with a method `{method}`"
            if isinstance(answer, type):
                raise Wrong(expected=wanted, came=f"the class {answer.__name__} without it")
            hint = "hand the class itself to the check, not an object of it and not a result"
            raise Wrong(expected=wanted, came=words(answer), likely=hint)
    return run(answer, answer, batch, kv_heads, slots, head_dim)


@contextmanager
def without_ours():
    """Inside, the package's own layer says that it is the task."""

    def refuse(*args, **kwargs):
        raise Reserved("StaticLayer of the package does what this task builds; write it with lines of your own")

    with mock.patch.object(StaticLayer, "update", refuse):
        yield


def filling(what, slots, texts, batch=1, heads=1, head_dim=2, layers=1):
    """A case: feed one text after the other, with `reset()` between them; `texts`: the tokens of each update.

    Written down is what lies in the slots that should be filled, as positions in the text, and whether it moved.
    """

    def play(answer, seen):
        made = [fixed(answer, batch, heads, slots, head_dim) for _ in range(layers)]
        start, first, alive = 0, {}, []  # `alive`: a freed place may be given out again
        for text, chunks in enumerate(texts, 1):
            given = [None] * layers
            for turn, tokens in enumerate(chunks, 1):
                for number, layer in enumerate(made):
                    new = states(batch, heads, tokens, head_dim, start)
                    start += new[0].numel()
                    old = given[number]
                    given[number] = new if old is None else [torch.cat(two, 2) for two in zip(old, new, strict=True)]
                    name = f"update {turn}" + (f" of text {text}" if len(texts) > 1 else "")
                    name += f" of layer {number}" if layers > 1 else ""
                    returned = run(answer, layer.update, *(part.clone() for part in new))
                    if not _look(seen, name, returned, given[number]):
                        return
                    alive.append(returned)
                    places = zip(first.setdefault(number, returned), returned, strict=True)
                    stay = all(a.data_ptr() == b.data_ptr() for a, b in places)
                    seen[f"keys and values lie where they lay at first, after {name}"] = stay
            for layer in made if text < len(texts) else ():
                run(answer, layer.reset)

    return Case(what, play)


def _look(seen, name, returned, given):
    """Write down the slots that an update returned; False where there are none to look at."""
    if not is_pair(returned):
        seen[f"slots that {name} returned"] = returned if returned is None else Phrase(words(returned))
        return False
    for part, tensor in zip(("keys", "values"), returned, strict=True):
        seen[f"slots of {part} that {name} returned"] = tensor.shape[2] if tensor.ndim == 4 else Phrase(words(tensor))
    for part, tensor, origin in zip(("keys", "values"), returned, given, strict=True):
        places = where(tensor, origin)
        filled = places[: origin.shape[2]] if isinstance(places, list) else places
        seen[f"tokens in the first slots of {part} after {name}"] = filled
    return True


FILLING = [
    filling("three tokens one at a time, in 6 slots", 6, [[1, 1, 1]]),
    filling("two layers of one model, fed in turns, in 6 slots", 6, [[1, 2, 1]], layers=2),
    filling("a prompt of 3 tokens, then 1, 2, 1, in 7 slots; 2 sequences, 3 heads", 7, [[3, 1, 2, 1]], 2, 3, 4),
    filling("two texts with a reset between them, in 12 slots", 12, [[4, 1, 1], [2, 1]], 1, 2, 2),
]


@task("08a", "FixedLayer: which slots are filled, whether they move, and how many graphs 30 compiled steps need")
def task_08a(layer_class):
    """`layer_class(batch, kv_heads, slots, head_dim)` with `update(keys, values)` and `reset()`."""
    with without_ours():
        compare(layer_class, Right, FILLING, FILLING_MISTAKES)
        compare(layer_class, Right, [recording(fixed)], RECORDED_MISTAKES)
    return {
        "small": "four cases, the right tokens in the right slots, and nothing moved",
        "compiled": f"1 graph for {STEPS} steps and, after a reset, for {STEPS} more; all that it reads stands still",
    }
