"""Task 08a: a layer in fixed slots, whose update a compiler has to record only once."""

from contextlib import contextmanager
from unittest import mock

import torch

from ..graphs import compiled
from ..layers import StaticLayer
from .playing import is_pair, states
from .positions import where
from .reserved import Reserved
from .runner import run
from .task import Case, Mistake, Wrong, compare, task
from .words import Phrase, words

STEPS = 30


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


class Right:
    """The right answer, with the lines that go wrong as methods."""

    def __init__(self, batch, kv_heads, slots, head_dim):
        self.keys = torch.zeros(batch, kv_heads, slots, head_dim)
        self.values = torch.zeros_like(self.keys)
        self.seen = torch.zeros((), dtype=torch.long)

    def update(self, keys, values):
        slots = torch.arange(keys.shape[-2]) + self.seen
        self.keys[:, :, slots], self.values[:, :, slots] = keys, values
        self.seen += keys.shape[-2]
        return self.keys, self.values

    def reset(self):
        self.seen.zero_()


def variant(update=Right.update, reset=Right.reset):
    """The right answer with another `update` or `reset`."""
    return type("Layer", (Right,), {"update": update, "reset": reset})


def concatenates(self, keys, values):
    self.keys, self.values = torch.cat([self.keys, keys], 2), torch.cat([self.values, values], 2)
    return self.keys, self.values


def concatenates_what_is_filled(self, keys, values):
    n = int(self.seen)
    self.keys, self.values = torch.cat([self.keys[:, :, :n], keys], 2), torch.cat([self.values[:, :, :n], values], 2)
    self.seen += keys.shape[2]
    return self.keys, self.values


def pads_anew(self, keys, values):
    room = self.keys.shape[2]
    keys, values = concatenates_what_is_filled(self, keys, values)
    spare = (0, 0, 0, room - keys.shape[2])
    self.keys, self.values = (torch.nn.functional.pad(part, spare) for part in (keys, values))
    return self.keys, self.values


def copies(self, keys, values):
    keys, values = Right.update(self, keys, values)
    return keys.clone(), values.clone()


def filled_alone(self, keys, values):
    keys, values = Right.update(self, keys, values)
    return keys[:, :, : int(self.seen)], values[:, :, : int(self.seen)]


def new_alone(self, keys, values):
    Right.update(self, keys, values)
    return keys, values


def never_counts(self, keys, values):
    returned = Right.update(self, keys, values)
    self.seen.zero_()
    return returned


def counts_updates(self, keys, values):
    returned = Right.update(self, keys, values)
    self.seen += 1 - keys.shape[2]
    return returned


def counts_first(self, keys, values):
    self.seen += keys.shape[2]
    slots = (torch.arange(keys.shape[2]) + self.seen) % self.keys.shape[2]
    self.keys[:, :, slots], self.values[:, :, slots] = keys, values
    return self.keys, self.values


def one_slot(self, keys, values):
    self.keys[:, :, self.seen], self.values[:, :, self.seen] = keys[:, :, -1], values[:, :, -1]
    self.seen += keys.shape[2]
    return self.keys, self.values


def keys_alone(self, keys, values):
    Right.update(self, keys, torch.zeros_like(values))
    return self.keys, self.values


def new_buffers(self):
    self.keys, self.values = torch.zeros_like(self.keys), torch.zeros_like(self.values)
    self.seen.zero_()


MOVED = "new buffers, or copies of them, came back at each update: write into the old ones and return those themselves"
FILLING_MISTAKES = [
    Mistake(
        "the new tokens were joined behind the empty slots: write them into the slots that are there",
        variant(concatenates),
    ),
    Mistake(
        "concatenation, as in a cache that grows: another length and another place at each step. Write into the slots",
        variant(concatenates_what_is_filled),
    ),
    Mistake(
        "only the filled slots were returned, another shape at each step; return all of them, the mask hides the rest",
        variant(filled_alone),
    ),
    Mistake("only the new tokens were returned; return all slots", variant(new_alone)),
    Mistake(MOVED, variant(pads_anew)),
    Mistake(MOVED, variant(copies)),
    Mistake("the tokens are not counted, so each update writes over the one before", variant(never_counts)),
    Mistake("updates were counted, not tokens: a prompt has many", variant(counts_updates)),
    Mistake("the count was raised before the tokens were written, so slots stay free in front", variant(counts_first)),
    Mistake("only one slot was written for an update of several tokens: they need one each", variant(one_slot)),
    Mistake("the keys were written and the values not; both have to be", variant(keys_alone)),
    Mistake(
        "after reset() the count goes on where it was, so the next text begins behind the old one; count from 0",
        variant(reset=lambda self: self.keys.zero_()),
    ),
    Mistake("reset() made new buffers; it has to forget the count and move nothing", variant(reset=new_buffers)),
]


def compiled_twice(answer, seen):
    """Two texts of a prompt and STEPS compiled tokens: graphs after each, and what lies in the slots."""
    layer, (keys, values) = fixed(answer, 1, 1, STEPS + 8, 2), states(1, 1, STEPS + 5, 2)
    step, graphs = compiled(layer.update)
    for text in ("", ", a reset and 30 more"):
        if text:
            run(answer, layer.reset)
        run(answer, layer.update, keys[:, :, :5], values[:, :, :5])
        for token in range(5, STEPS + 5):
            try:
                returned = step(keys[:, :, token : token + 1], values[:, :, token : token + 1])
            except Exception as error:
                line = (str(error).strip() or "nothing more").splitlines()[0]
                said = f"no graph: torch.compile says {type(error).__name__}: {line[:120]}"
                seen[f"graphs after {STEPS} steps{text}"] = Phrase(said)
                return
        seen[f"graphs after {STEPS} steps{text}"] = len(graphs)
        seen[f"tokens in the slots after {STEPS} steps{text}"] = where(returned[0], keys)[: STEPS + 5]


def explain_graphs(label, expected, came):
    """Where the step could not be recorded at all."""
    if isinstance(came, str) and "data-dependent" in came:
        return (
            "a Python number was needed out of a tensor, and a recording has none yet: index with a tensor of slot "
            "numbers, `torch.arange(...) + self.seen`"
        )
    return None


class PythonCount(Right):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.seen = 0

    def reset(self):
        self.seen = 0


COMPILED = Case(
    f"a prompt of 5 tokens, then {STEPS} compiled steps of one token, twice", compiled_twice, explain_graphs
)
COMPILED_MISTAKES = [
    Mistake(
        "the count is a Python number: it was recorded as it was, and when it changed the step was recorded anew. "
        "A tensor that is changed in place is read at each step",
        PythonCount,
    )
]


@task("08a", "FixedLayer: which slots are filled, whether they move, and how many graphs 30 compiled steps need")
def task_08a(layer_class):
    """`layer_class(batch, kv_heads, slots, head_dim)` with `update(keys, values)` and `reset()`."""
    with without_ours():
        compare(layer_class, Right, FILLING, FILLING_MISTAKES)
        compare(layer_class, Right, [COMPILED], COMPILED_MISTAKES)
    return {
        "small": "four cases, the right tokens in the right slots, and nothing moved",
        "compiled": f"1 graph for {STEPS} steps, and still 1 after a reset and {STEPS} more",
    }
