"""Playing a learner's cache layer: on small tensors of distinct numbers, then inside a model.

The learner writes a class with `update(keys, values)`; both are (batch, kv_heads, q_len, head_dim).
"""

import torch

from ..cache import Cache
from ..hf import layer_specs
from ..layers import DynamicLayer
from ..layers.base import Layer
from .cost import CopyCounter
from .runner import run
from .task import Case, Wrong
from .words import Phrase, words


def states(batch, heads, tokens, head_dim, start=0, dtype=torch.float32):
    """Keys and values in which every number is different, also between the two (few of them in bfloat16)."""
    count = batch * heads * tokens * head_dim
    keys = torch.arange(start + 1, start + 1 + count, dtype=dtype).view(batch, heads, tokens, head_dim)
    return keys, -keys - 0.5


def make(answer, *arguments):
    """An object of the learner's class, which must have `update`; `arguments` go to its constructor."""
    if not isinstance(answer, type) or not callable(getattr(answer, "update", None)):
        raise Wrong(
            expected="a class with a method `update(self, keys, values)`",
            came=f"the class {answer.__name__} without one" if isinstance(answer, type) else words(answer),
            likely="hand the class itself to the check, not an object of it and not a result",
        )
    return run(answer, answer, *arguments)


def updates(what, chunks, batch=1, heads=1, head_dim=2, overwrite=False, layers=1, explain=None, dtype=torch.float32):
    """A case: feed `chunks` (tokens in each update) and look at what each update returns.

    `overwrite`: the caller writes over its tensors after each update, as a program that reuses them does.
    `layers`: so many objects of the class side by side, fed in turns with different numbers.
    """

    def play(answer, seen):
        made, start = [make(answer) for _ in range(layers)], 0
        for turn, tokens in enumerate(chunks, 1):
            for number, layer in enumerate(made):
                keys, values = states(batch, heads, tokens, head_dim, start, dtype)
                start += keys.numel()
                returned = run(answer, layer.update, keys, values)
                name = f"update {turn}" + (f" of layer {number}" if layers > 1 else "")
                pair = is_pair(returned)
                seen[f"what {name} returned"] = (
                    Phrase("two tensors, the keys and the values") if pair else kind(returned)
                )
                if not pair:
                    return
                for part, tensor in zip(("keys", "values"), returned, strict=True):
                    seen[f"{part} after {name}"] = tensor.clone()
                if overwrite:
                    keys.fill_(0), values.fill_(0)

    return Case(what, play, explain)


def kind(returned):
    """What came in place of two tensors, in words; None for None."""
    return returned if returned is None else Phrase(words(returned))


def is_pair(returned):
    """Whether `update` returned two tensors."""
    pair = isinstance(returned, (tuple, list)) and len(returned) == 2
    return pair and all(isinstance(item, torch.Tensor) for item in returned)


def moved(answer, tokens, heads=2, head_dim=4):
    """Append `tokens` tokens one at a time; how many tokens' worth of elements were copied, the new ones included."""
    layer, new = make(answer), [states(1, heads, 1, head_dim, start) for start in range(tokens)]
    with CopyCounter() as counter:
        for keys, values in new:
            run(answer, layer.update, keys, values)
    return counter.elements // (2 * heads * head_dim)


class Adapter(Layer):
    """What a model needs around a learner's layer: the number of tokens so far, from which masks and positions come.

    `window`: that of the model's layer, None for full attention. `arguments` go to the constructor of the class.
    """

    def __init__(self, answer, *arguments, window=None):
        self._answer, self.layer, self._length = answer, make(answer, *arguments), 0
        self._window, self.is_sliding = window, window is not None

    def update(self, key_states, value_states, *args, **kwargs):
        self._length += key_states.shape[-2]
        return run(self._answer, self.layer.update, key_states, value_states)

    def get_seq_length(self):
        return self._length

    def get_mask_sizes(self, query_length):
        visible = self._length if self._window is None else min(self._length, self._window - 1)
        return visible + query_length, self._length - visible


def cache_of(answer, model):
    """A cache for `model` in which every layer is an object of the learner's class.

    Where layers of the model have a window, the class is made with it, for those layers; full layers then get ours.
    """
    windows = [spec.window for spec in layer_specs(model.config)]
    if not any(windows):
        return Cache(layers=[Adapter(answer) for _ in windows])
    return Cache(layers=[Adapter(answer, width, window=width) if width else DynamicLayer() for width in windows])


ONE_BY_ONE = (5, *[1] * 7), "a prompt of 5 tokens and 7 more one at a time"


@torch.no_grad()
def in_model(answer, model=None, batch=2, parts=ONE_BY_ONE[0], how=ONE_BY_ONE[1]):
    """Run the learner's class inside a model (by default the tiny one); Wrong unless it computes what no cache does.

    `parts`: tokens fed in each forward, and `how` the same in words. Returns the sentence to say when all is right.
    """
    model = model or tiny()
    ids, cache = some_ids(model, batch, sum(parts)), cache_of(answer, model)
    plain = model(ids, use_cache=False).logits
    cached = torch.cat([model(part, cache=cache).logits for part in ids.split(list(parts), dim=1)], dim=1)
    size = f"{batch} sequences, {how}"
    mine = sum(isinstance(layer, Adapter) for layer in cache.layers)
    start = first_difference(plain, cached)
    if start is not None:
        raise Wrong(
            tested=f"the whole model with {mine} layers of yours: {size}",
            expected="the scores (logits) that the model gives without a cache",
            came=f"other scores from position {start} on",
        )
    return f"{mine} layers of yours, {size}: they give the scores that the model gives without a cache"


def first_difference(plain, cached):
    """The first position at which logits (batch, tokens, vocabulary) differ by more than rounding; None if nowhere."""
    allowed = 1_000 * torch.finfo(plain.dtype).eps * plain.abs().max()  # rounding, after some thirty layers
    beyond = ((cached - plain).float().abs().amax(dim=(0, 2)) > allowed).nonzero()
    return int(beyond[0]) if len(beyond) else None


def some_ids(model, batch, tokens):
    """Token ids for a model, (batch, tokens), that look like nothing in particular."""
    ids = (torch.arange(batch * tokens).view(batch, tokens) * 37 + 11) % min(model.config.vocab_size, 20_000)
    return ids.to(model.device)


def tiny(window=None):
    """The tiny random model, in float32; with a `window`, every layer slides."""
    from ..models.tiny import tiny_model

    return tiny_model((None, window), dtype=torch.float32).eval()
