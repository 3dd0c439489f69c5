"""Task 04b: a layer that keeps a window."""

import functools

import torch

from .playing import in_model, tiny
from .positions import check_held, returned
from .task import Mistake, compare, task


class Sliding:
    """The right answer to 04b, with the lines that go wrong as parameters."""

    keys = values = None

    def __init__(self, window):
        self.window = window

    def update(self, keys, values):
        if self.keys is not None:
            keys, values = self.joined(self.keys, keys), self.joined(self.values, values)
        self.keys, self.values = self.kept(keys), self.kept(values)
        return self.shown(keys), self.shown(values)

    def joined(self, old, new):
        return torch.cat([old, new], dim=-2)

    def kept(self, states):
        return states[:, :, max(0, states.shape[2] - (self.window - 1)) :].clone()

    def shown(self, states):
        return states


def sliding(**methods):
    return type("Layer", (Sliding,), methods)


def last(states, count):
    return states[:, :, max(0, states.shape[2] - count) :]


def new_alone(self, keys, values):
    Sliding.update(self, keys, values)
    return keys, values


def chunk_alone(self, keys, values):
    shown = Sliding.update(self, keys, values)
    self.keys, self.values = self.kept(keys), self.kept(values)
    return shown


def chunk_trimmed(self, keys, values):
    return Sliding.update(self, last(keys, self.window), last(values, self.window))


def held_alone(self, keys, values):
    Sliding.update(self, keys, values)
    return self.keys, self.values


def keys_alone_slide(self, keys, values):
    before = self.values
    shown = Sliding.update(self, keys, values)
    self.values = values.clone() if before is None else torch.cat([before, values], dim=-2)
    return shown[0], self.values


def swapped(self, keys, values):
    return Sliding.update(self, keys, values)[::-1]


def cut_elsewhere():
    """Mistakes of those who cut the right number along an axis that is not the tokens'."""
    said = "the {} were cut, not the tokens: in (batch, kv_heads, kv_len, head_dim) tokens are dim=-2, so [:, :, ...]"
    cuts = {
        "sequences": lambda states, count: states[-count:],
        "heads": lambda states, count: states[:, -count:],
        "channels": lambda states, count: states[..., -count:],
    }
    for name, cut in cuts.items():
        for extra in (0, 1):
            kept = functools.partialmethod(_cut, cut, extra)
            yield Mistake(said.format(name), sliding(kept=kept))


def _cut(self, cut, extra, states):
    return cut(states, self.window - 1 + extra).clone()


def joined_elsewhere():
    said = "joined along the {}; tokens are dim=-2: torch.cat([old, new], dim=-2)"
    for dim, name in ((0, "sequences, as torch.cat does without a dim"), (1, "heads"), (3, "channels")):
        yield Mistake(said.format(name), sliding(joined=functools.partialmethod(_joined, dim)))


def _joined(self, dim, old, new):
    return torch.cat([old, new], dim=dim)


BEFORE = "the tokens were dropped before they were returned: {}. Return first what was held and all that is new, then "
BEFORE += "forget"
SLIDING_MISTAKES = [
    Mistake(
        "W are kept, and with the new token it sees W + 1: keep window - 1",
        sliding(kept=lambda self, states: last(states, self.window).clone()),
    ),
    Mistake(
        "one too few are kept: the next token sees itself and window - 1 old ones",
        sliding(kept=lambda self, states: last(states, max(self.window - 2, 0)).clone()),
    ),
    Mistake(
        BEFORE.format("the early tokens of a long prompt never had their turn to look"),
        sliding(
            kept=lambda self, states: last(states, self.window).clone(),
            shown=lambda self, states: last(states, self.window),
        ),
    ),
    Mistake(
        BEFORE.format("the early tokens of a long prompt never had their turn to look"),
        sliding(shown=lambda self, states: last(states, self.window)),
    ),
    Mistake(
        BEFORE.format("so a new token sees only window - 1 tokens, itself included, one too few"),
        sliding(update=held_alone),
    ),
    Mistake(BEFORE.format("the chunk was cut to the window as it came in"), sliding(update=chunk_trimmed)),
    Mistake(
        "after a chunk only tokens of that chunk are held; the window may reach further back",
        sliding(update=chunk_alone),
    ),
    Mistake(
        "only the new tokens were returned; a window looks back, so return the held ones too", sliding(update=new_alone)
    ),
    Mistake(
        "nothing is ever dropped: keep the last window - 1 tokens", sliding(kept=lambda self, states: states.clone())
    ),
    Mistake(
        "the first tokens were kept, not the last ones",
        sliding(kept=lambda self, states: states[:, :, : self.window - 1].clone()),
    ),
    Mistake("the keys slide and the values do not; both have to", sliding(update=keys_alone_slide)),
    Mistake("keys and values have changed places: return keys, values", sliding(update=swapped)),
    *cut_elsewhere(),
    *joined_elsewhere(),
    Mistake(
        "your layer kept a view of the caller's own tensor; keep a copy: [...].clone()",
        sliding(kept=lambda self, states: last(states, self.window - 1)),
    ),
]
MANY = (5, 6, 7)  # sequences, heads, channels: more than a window, so that a cut along any of them is seen
SLIDING = [
    returned("window 4: seven tokens, one at a time; 5 sequences, 6 heads", [1] * 7, [4], *MANY),
    returned("window 2: five tokens, one at a time; 5 sequences, 6 heads", [1] * 5, [2], *MANY),
    returned("window 4: a prompt of 9 tokens, then 1, 1; 5 sequences, 6 heads", [9, 1, 1], [4], *MANY),
    returned("window 4: chunks of 2, 3, 1, 5, 1; 2 sequences, 3 heads", [2, 3, 1, 5, 1], [4], 2, 3, 4),
    returned("window 3: the caller writes over its tensors", [4, 1, 2, 1], [3], overwrite=True),
    returned("window 4: what is held after a prompt of 9 tokens, then 1, 1, 5", [9, 1, 1, 5], [4], most=3),
]
PROMPT = 1_000
WAYS = {"12 tokens one by one": (1,) * 12, "in chunks of 5": (5, 5, 2), "at once, then one": (11, 1)}


@task("04b", "SlidingLayer: the positions it returns step by step, in chunks and at once; then inside a windowed model")
def task_04b(layer_class):
    """`layer_class(window)`, with `update(keys, values)`."""
    compare(layer_class, Sliding, SLIDING, SLIDING_MISTAKES)
    check_held(layer_class, 2 * 4, [4])
    behind = check_held(layer_class, 2 * 4, [4], PROMPT, at_once=True)
    model = tiny(window=4)
    for how, parts in WAYS.items():
        in_model(layer_class, model, 2, parts, how)
    return {
        "small": "six cases, every position as expected",
        "held": "after each update window - 1 tokens at most, also after a prompt: with a window of 4, one of "
        f"{PROMPT:,} tokens leaves memory for {behind}",
        "model": f"a window of 4, {'; '.join(WAYS)}: the scores that the model gives without a cache",
    }
