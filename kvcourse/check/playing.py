"""Playing a learner's cache layer: on small tensors of distinct numbers, then inside a model.

The learner writes a class with `update(keys, values)`; both are (batch, kv_heads, q_len, head_dim).
"""

import torch

from ..cache import Cache
from ..layers.base import Layer
from .cost import CopyCounter
from .runner import run
from .task import Case, Wrong
from .words import words


def states(batch, heads, tokens, head_dim, start=0):
    """Keys and values in which every number is different, also between the two."""
    count = batch * heads * tokens * head_dim
    keys = torch.arange(start + 1, start + 1 + count, dtype=torch.float32).view(batch, heads, tokens, head_dim)
    return keys, -keys - 0.5


def make(answer):
    """An object of the learner's class, which must have `update`."""
    if not isinstance(answer, type) or not callable(getattr(answer, "update", None)):
        raise Wrong(
            expected="a class with a method `update(self, keys, values)`",
            came=f"the class {answer.__name__} without one" if isinstance(answer, type) else words(answer),
            likely="hand the class itself to the check, not an object of it and not a result",
        )
    return run(answer, answer)


def updates(what, chunks, batch=1, heads=1, head_dim=2, overwrite=False, layers=1, explain=None):
    """A case: feed `chunks` (tokens in each update) and look at what each update returns.

    `overwrite`: the caller writes over its tensors after each update, as a program that reuses them does.
    `layers`: so many objects of the class side by side, fed in turns with different numbers.
    """

    def play(answer, seen):
        made, start = [make(answer) for _ in range(layers)], 0
        for turn, tokens in enumerate(chunks, 1):
            for number, layer in enumerate(made):
                keys, values = states(batch, heads, tokens, head_dim, start)
                start += keys.numel()
                returned = run(answer, layer.update, keys, values)
                name = f"update {turn}" + (f" of layer {number}" if layers > 1 else "")
                if not _is_pair(returned):
                    seen[f"keys after {name}"] = returned if returned is None else f"{returned!r:.60}"
                    return
                for part, tensor in zip(("keys", "values"), returned, strict=True):
                    seen[f"{part} after {name}"] = tensor.clone()
                if overwrite:
                    keys.fill_(0), values.fill_(0)

    return Case(what, play, explain)


def _is_pair(returned):
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
    """What a model needs around a learner's class: the number of tokens so far, from which masks and positions come."""

    def __init__(self, answer):
        self._answer, self._layer, self._length = answer, make(answer), 0

    def update(self, key_states, value_states, *args, **kwargs):
        self._length += key_states.shape[-2]
        return run(self._answer, self._layer.update, key_states, value_states)

    def get_seq_length(self):
        return self._length

    def get_mask_sizes(self, query_length):
        return self._length + query_length, 0


def cache_of(answer, model):
    """A cache for `model` in which every layer is an object of the learner's class."""
    return Cache(layers=[Adapter(answer) for _ in range(model.config.num_hidden_layers)])


@torch.no_grad()
def in_model(answer, model=None, batch=2, prompt=5, steps=7):
    """Run the learner's class inside a model (by default the tiny one); Wrong unless it computes what no cache does.

    Returns the sentence to say when it does.
    """
    model = model or _tiny()
    count = prompt + steps
    ids = (torch.arange(batch * count).view(batch, count) * 37 + 11) % min(model.config.vocab_size, 20_000)
    ids, cache = ids.to(model.device), cache_of(answer, model)
    plain = model(ids, use_cache=False).logits.float()
    parts = ids.split([prompt] + [1] * steps, dim=1)
    cached = torch.cat([model(part, cache=cache).logits for part in parts], dim=1).float()
    allowed = 1_000 * torch.finfo(model.dtype).eps * plain.abs().max()  # rounding, after some thirty layers
    beyond = ((cached - plain).abs().amax(dim=(0, 2)) > allowed).nonzero()
    size = f"{batch} sequences, a prompt of {prompt} tokens and {steps} more one at a time"
    if len(beyond):
        raise Wrong(
            tested=f"the whole model with {len(cache)} layers of yours: {size}",
            expected="the scores (logits) that the model gives without a cache",
            came=f"other scores from position {int(beyond[0])} on",
        )
    return f"{len(cache)} layers of yours, {size}: the scores that the model gives without a cache"


def _tiny():
    from ..models.tiny import tiny_model

    return tiny_model(dtype=torch.float32)
