"""Tasks 02a and 02b: a layer that grows, by concatenation and with spare room."""

import torch

from .cost import held
from .playing import in_model, make, moved, states, updates
from .runner import run
from .task import Mistake, Wrong, compare, task


class Reference:
    """The right answer to both, as far as what it returns."""

    keys = values = None

    def update(self, keys, values):
        held = ([], []) if self.keys is None else ([self.keys], [self.values])
        self.keys, self.values = (torch.cat([*old, new], dim=-2) for old, new in zip(held, (keys, values), strict=True))
        return self.keys, self.values


def cases(explain):
    """From the smallest to the most crowded; the last is about who owns what."""
    return [
        updates("three tokens one at a time, 1 sequence, 1 head", [1, 1, 1], explain=explain),
        updates("two layers of one model, fed in turns", [1, 2, 1], layers=2, explain=explain),
        updates("a prompt of 4 tokens, then 1, 1, 2; 1 sequence, 3 heads", [4, 1, 1, 2], 1, 3, 4, explain=explain),
        updates("a prompt of 2 tokens, then 7, 1, 1; 3 sequences, 2 heads", [2, 7, 1, 1], 3, 2, 4, explain=explain),
        updates("the caller writes over its tensors after each update", [2, 1, 1], 1, 2, 2, overwrite=True),
    ]


def explain_shared(label, expected, came):
    """Where objects of the class are not independent."""
    longer = isinstance(came, torch.Tensor) and came.ndim == 4 and came.shape[-2] > expected.shape[-2]
    if "update 1" in label and longer and came[:, :, -expected.shape[-2] :].equal(expected):
        return (
            "a new layer already holds the tokens of another one: assign to self.keys in update, not to the class, "
            "nor to a list made once for the class"
        )
    return None


def variant(update):
    """A class like the learner's, with this `update`."""
    return type("Layer", (), {"keys": None, "values": None, "update": update})


def joined(dim, order=1):
    def update(self, keys, values):
        if self.keys is not None:
            keys, values = torch.cat([self.keys, keys][::order], dim), torch.cat([self.values, values][::order], dim)
        self.keys, self.values = keys.clone(), values.clone()
        return self.keys, self.values

    return variant(update)


def keeps_the_callers(self, keys, values):
    first = self.keys is None
    self.keys = keys if first else torch.cat([self.keys, keys], dim=-2)
    self.values = values if first else torch.cat([self.values, values], dim=-2)
    return self.keys, self.values


def without_values(self, keys, values):
    self.keys = keys.clone() if self.keys is None else torch.cat([self.keys, keys], dim=-2)
    return self.keys, values


def old_alone(self, keys, values):
    before = self.keys, self.values
    now = Reference.update(self, keys, values)
    return now if before[0] is None else before


WRONG_AXIS = (
    "the new tokens were joined along the axis of the {}; in (batch, kv_heads, kv_len, head_dim) tokens are dim=-2"
)
MISTAKES = [
    Mistake(
        "only the new tokens were returned; attention has to look at the old ones too, so return all that are held",
        variant(lambda self, keys, values: (keys, values)),
    ),
    Mistake(WRONG_AXIS.format("sequences (dim=0)"), joined(0)),
    Mistake(WRONG_AXIS.format("heads (dim=1)"), joined(1)),
    Mistake(WRONG_AXIS.format("channels (dim=-1)"), joined(-1)),
    Mistake("the new tokens stand before the old ones; the order is that of the text, old then new", joined(-2, -1)),
    Mistake("the tokens held were returned before the new ones were added", variant(old_alone)),
    Mistake("the keys grow and the values do not; both have to", variant(without_values)),
    Mistake("the values were put among the keys", variant(lambda s, k, v: Reference.update(s, k, k.clone()))),
    Mistake(
        "your layer kept the caller's own tensor, not a copy, so its history changed when the caller reused that "
        "memory; keep keys.clone(), or what torch.cat returns",
        variant(keeps_the_callers),
    ),
]


@task("02a", "GrowingLayer.update on small numbers in several shapes, then inside a model")
def task_02a(layer_class, model=None):
    """`layer_class`: a class with `update(keys, values)`. `model`: where to try it; the tiny random one if None."""
    compare(layer_class, Reference, cases(explain_shared), MISTAKES)
    sentence, tokens = in_model(layer_class, model), 40
    cost = f"to append {tokens} tokens one by one, {moved(layer_class, tokens):,} tokens were copied ({tokens} are new)"
    return {"small": "five cases, every number as expected", "model": sentence, "cost": cost}


def explain_spare(label, expected, came):
    """Where spare room shows in what an update returned."""
    shared = explain_shared(label, expected, came)
    if shared:
        return shared
    if not isinstance(came, torch.Tensor) or came.ndim != 4 or came.shape[-2] < expected.shape[-2]:
        return None
    if came.shape[:2] + came.shape[3:] != expected.shape[:2] + expected.shape[3:]:
        return None
    slots, tokens = came.shape[-2], expected.shape[-2]
    if slots > tokens and came[:, :, :tokens].equal(expected):
        return f"spare room was returned: {slots} slots for {tokens} tokens. Return the first self.length slots alone"
    newest = (came == expected[:, :, -1:]).all(dim=-1).all(dim=1).all(dim=0).nonzero()
    if len(newest) and int(newest[0]) >= tokens:
        return (
            f"the newest token was written into slot {int(newest[0])}, behind the spare room, and belongs into slot "
            f"{tokens - 1}: the buffer's shape counts slots; count the tokens in self.length"
        )
    if not len(newest):
        return "the newest token is not among what was returned: was it written behind the spare room, or not at all?"
    return None


@task("02b", "DoublingLayer.update: the tokens it returns, its spare room, its copies")
def task_02b(layer_class, model=None):
    """`layer_class`: a class with `update(keys, values)` whose buffers double when they are full."""
    compare(layer_class, Reference, cases(explain_spare), MISTAKES + DOUBLING)
    check_room(layer_class)
    tokens = 65
    old, limit = moved(layer_class, tokens) - tokens, 2 * tokens
    if old > limit:
        every = tokens * (tokens - 1) // 2
        raise Wrong(
            tested=f"the cost of {tokens} tokens appended one by one",
            expected=f"at most {limit:,} old tokens copied, twice the final length",
            came=f"{old:,} copied",
            likely="all old tokens are copied at every update, as concatenation does; write the new token into the "
            "spare room: buffer[:, :, start:end] = keys"
            if old >= every
            else "the buffer grows too often: when it is full, make one of twice its size",
        )
    return {
        "small": "five cases, every number as expected, no spare slot returned",
        "model": in_model(layer_class, model),
        "cost": f"{tokens} tokens appended one by one: {old:,} old tokens copied; concatenation copies "
        f"{tokens * (tokens - 1) // 2:,}, the limit is {limit:,}",
    }


def doubles_once(self, keys, values):
    start, end = getattr(self, "length", 0), getattr(self, "length", 0) + keys.shape[-2]
    if self.keys is None:
        self.keys, self.values = keys.clone(), values.clone()
    if end > self.keys.shape[-2]:
        self.keys = torch.cat([self.keys, torch.zeros_like(self.keys)], dim=-2)
        self.values = torch.cat([self.values, torch.zeros_like(self.values)], dim=-2)
    self.keys[:, :, start:end], self.values[:, :, start:end], self.length = keys, values, end
    return self.keys[:, :, :end], self.values[:, :, :end]


DOUBLING = [
    Mistake("doubling once is not enough for a long update: make room for at least all tokens", variant(doubles_once))
]


def check_room(layer_class, tokens=10, free=32):
    """Wrong if the buffers hold more than twice the tokens (up to `free` slots are not worth a word)."""
    layer, before = make(layer_class), 0
    for length in range(1, tokens + 1):
        run(layer_class, layer.update, *states(1, 1, 1, 2, length))
        slots = held(layer) // 4  # keys and values of 2 channels
        if slots > max(2 * length, free):
            raise Wrong(
                tested=f"the room held after {length} tokens, one at a time",
                expected=f"at most {2 * length} slots, twice the tokens",
                came=f"{slots} slots",
                likely=f"the buffer grew again although {before - length + 1} of its {before} slots were free: "
                "double it only when the new tokens do not fit"
                if before >= length
                else "the buffer grows by more than it needs to: double it",
            )
        before = slots
