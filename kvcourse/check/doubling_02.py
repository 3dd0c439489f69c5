"""Task 02b: a layer with spare room, which doubles when it is full."""

import functools

import torch

from .cost import held
from .layers_02 import MISTAKES, Reference, cases, explain_shared, variant
from .playing import in_model, make, moved, states
from .runner import Stopped, run
from .task import Mistake, Wrong, compare, task

STUCK = (
    "self.length is still 0 after an update, so the next tokens are written over the old ones: set self.length = end "
    "at each update, the first one too"
)
AHEAD = "self.length is {} after {} token{}: set it to `end`, in which the old tokens are counted already"
FROM_NOTHING = (
    "if the loop doubles the slots: a new buffer has 0 of them, and twice 0 is 0. max(end, 2 * slots) needs no loop"
)
TOKENS, FREE = 65, 32  # appended one by one; slots that are not worth a word


def explain_spare(layer_class, label, expected, came):
    """Where spare room, or the count of the tokens, shows in what an update returned."""
    shared = explain_shared(label, expected, came)
    if shared or not isinstance(came, torch.Tensor) or came.ndim != 4:
        return shared
    if came.shape[:2] + came.shape[3:] != expected.shape[:2] + expected.shape[3:]:
        return None
    if came.dtype != expected.dtype:
        return (
            f"the buffer has numbers of type {came.dtype}, whatever the tokens have; a model stops at a mixture. "
            "keys.new_empty(shape) makes room of the same type, torch.empty(shape, dtype=keys.dtype) too"
        )
    slots, tokens = came.shape[-2], expected.shape[-2]
    if slots < tokens:
        return stuck(layer_class) or (
            "the keys got room and the values did not: do for the values all that is done for the keys"
            if label.startswith("values")
            else None
        )
    if slots > tokens and came[:, :, :tokens].equal(expected):
        return f"spare room was returned: {slots} slots for {tokens} tokens. Return the first self.length slots alone"
    newest = (came == expected[:, :, -1:]).all(dim=-1).all(dim=1).all(dim=0).nonzero()
    if not len(newest):
        return "the newest token is not among what was returned: was it written behind the spare room, or not at all?"
    if int(newest[0]) >= tokens:
        return ahead(layer_class) or (
            f"the newest token was written into slot {int(newest[0])}, behind the spare room, and belongs into slot "
            f"{tokens - 1}: the buffer's shape counts slots; count the tokens in self.length"
        )
    if slots == tokens and int(newest[0]) == tokens - 1:
        return (
            "the new tokens are there, the old ones are lost: move them into the new buffer, with torch.cat or with "
            "new[:, :, :start] = old[:, :, :start]"
        )
    return None


def lengths(layer_class):
    """What is in `length` after one token and after two, as far as the class has such a number and gets there."""
    layer, found = make(layer_class), []
    for start in (0, 2):
        try:
            run(layer_class, layer.update, *states(1, 1, 1, 2, start))
        except Stopped:
            break
        length = getattr(layer, "length", None)
        found += [length] if isinstance(length, int) else []
    return found


def stuck(layer_class):
    """The sentence for a length that is never set, else None."""
    return STUCK if lengths(layer_class)[:1] == [0] else None


def ahead(layer_class):
    """The sentence for a length that runs ahead of the tokens, else None."""
    found = lengths(layer_class)
    tokens = next((tokens for tokens, length in enumerate(found, 1) if length > tokens), None)
    return tokens and AHEAD.format(found[tokens - 1], tokens, "s" if tokens > 1 else "")


def grown(size, empty_at_first=True, added=None, both=True, axes=4):
    """A layer with lines that go wrong as parameters: `size(end, slots)` of a full buffer, tokens added to `end`."""

    def room(states, slots):
        return states.new_empty(*states.shape[: axes - 2], slots, states.shape[-1])

    def update(self, keys, values):
        start = getattr(self, "length", 0)
        end = start + (added or keys.shape[-2])
        if self.keys is None:
            self.keys, self.values = (
                (keys[:, :, :0], values[:, :, :0]) if empty_at_first else (keys.clone(), values.clone())
            )
        slots = self.keys.shape[-2]
        if end > slots:
            self.keys = torch.cat([self.keys, room(keys, size(end, slots) - slots)], dim=-2)
            if both:
                self.values = torch.cat([self.values, room(values, size(end, slots) - slots)], dim=-2)
        self.keys[:, :, start:end], self.values[:, :, start:end], self.length = keys, values, end
        return self.keys[:, :, :end], self.values[:, :, :end]

    return variant(update)


def twice_from_the_start(self, keys, values):
    """The first buffer is twice the first tokens, each later one twice the one before."""
    tokens, self.length = getattr(self, "length", 0), getattr(self, "length", 0) + keys.shape[-2]
    if self.keys is None or self.length > self.keys.shape[-2]:
        old = (keys, values) if self.keys is None else (self.keys, self.values)
        self.keys, self.values = (torch.cat([part, torch.empty_like(part)], dim=-2) for part in old)
    self.keys[:, :, tokens : self.length], self.values[:, :, tokens : self.length] = keys, values
    return self.keys[:, :, : self.length], self.values[:, :, : self.length]


def double(end, slots):
    return max(end, 2 * slots)


ONCE = "doubling once is not enough for a long update: make room for at least all tokens, max(end, 2 * slots)"
SHORT = (
    "the new tokens do not fit: `end` is start + keys.shape[-2], and the new size at least `end`: max(end, 2 * slots)"
)
DOUBLING = [
    Mistake(ONCE, grown(lambda end, slots: 2 * slots, empty_at_first=False)),
    Mistake(ONCE, grown(lambda end, slots: 2 * slots)),
    Mistake(SHORT, grown(lambda end, slots: max(1, 2 * slots))),
    Mistake(SHORT, grown(double, added=1)),
    Mistake(ONCE, variant(twice_from_the_start)),
    Mistake(
        "the keys got room and the values did not: do for the values all that is done for the keys",
        grown(double, empty_at_first=False, both=False),
    ),
    Mistake("fresh room has four axes, too: (batch, kv_heads, spare, head_dim)", grown(double, axes=3)),
]


def check_room(layer_class, parts, how):
    """Wrong if after any update of `parts` tokens the buffers hold more than twice the tokens."""
    layer, before, length = make(layer_class), 0, 0
    for tokens in parts:
        run(layer_class, layer.update, *states(1, 1, tokens, 2, 2 * length))
        length += tokens
        slots = held(layer) // 4  # keys and values of 2 channels
        if slots > max(2 * length, FREE):
            raise Wrong(
                tested=f"the room held after {length} token{'s' if length > 1 else ''}, {how}",
                expected=f"at most {max(2 * length, FREE)} slots: 32 or twice the tokens, whichever is more",
                came=f"{slots} slots",
                likely=f"the buffer grew again although {before - length + tokens} of its {before} slots were free: "
                "double it only when the new tokens do not fit"
                if before >= length
                else _grew(before, slots, length),
            )
        before = slots


def _grew(before, slots, length):
    if not before:
        return f"{slots} slots from the start, before anybody knows that they are needed: begin with the first tokens"
    if slots == 3 * before:
        return (
            f"the buffer tripled, from {before} to {slots} slots: join to it no more than the spare room, the new size "
            "minus the old slots"
        )
    return f"the buffer grew from {before} to {slots} slots to hold {length} tokens: twice the old slots is enough"


@task("02b", "DoublingLayer.update: the tokens it returns, its spare room at every length, its copies")
def task_02b(layer_class, model=None):
    """`layer_class`: a class with `update(keys, values)` whose buffers double when they are full."""
    explain = functools.partial(explain_spare, layer_class)
    try:
        compare(layer_class, Reference, cases(explain, explain_shared), MISTAKES + DOUBLING)
    except Wrong as wrong:
        endless = "does the loop ever end?" in wrong.lines["came"]
        likely = FROM_NOTHING if endless else wrong.lines.get("likely") or ahead(layer_class)
        raise Wrong(**wrong.lines | {"likely": likely}) from None
    check_room(layer_class, [1] * TOKENS, "one at a time")
    check_room(layer_class, [40, *[1] * 50], "a prompt of 40 and then one at a time")
    old, limit, every = moved(layer_class, TOKENS) - TOKENS, 2 * TOKENS, TOKENS * (TOKENS - 1) // 2
    if old > limit:
        raise Wrong(
            tested=f"the cost of {TOKENS} tokens appended one by one",
            expected=f"at most {limit:,} old tokens copied in all moves together, twice the final number of tokens",
            came=f"{old:,} copied",
            likely="all old tokens are copied at every update, as concatenation does; write the new token into the "
            "spare room: buffer[:, :, start:end] = keys"
            if old >= every
            else "the buffer grows too often: when it is full, make one of twice its size",
        )
    return {
        "small": "six cases, every number as expected, no spare slot returned",
        "model": in_model(layer_class, model),
        "cost": f"{TOKENS} tokens appended one by one: {old:,} old tokens copied; concatenation copies {every:,}, the "
        f"limit is {limit:,}",
    }
