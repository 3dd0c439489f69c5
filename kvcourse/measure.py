"""Bytes, positions and seconds: the formula beside the measurement."""

import math
import time
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from .generate import stream
from .layer_bytes import shapes
from .show.steps import Recorder, Step


def bytes_per_token(config, dtype=torch.bfloat16):
    """Bytes that one more token adds to the layers of a cache that grow, by formula.

    The sum over layers of 2 (key and value) x kv_heads x head_dim x itemsize, and of the index key where there is one.
    Layers that keep a window or a state stop growing, so they count nothing here. `config`: a transformers config; no
    weights are needed.
    """
    size = dtype.itemsize
    growing = [layer for layer in shapes(config, size, state_bytes=0) if layer.keeps == "all"]
    return sum(layer.entry(size) + layer.index_dim * size for layer in growing)


def fill(cache, config, tokens, batch=1, dtype=torch.bfloat16):
    """Put `tokens` tokens of zeros into every layer of a cache that keeps keys, as many bytes as a model of this config
    would. Returns the cache."""
    for layer_idx, layer in enumerate(shapes(config, dtype.itemsize, state_bytes=0)):
        if layer.index_dim:
            cache.update_indexer(torch.zeros(batch, tokens, layer.index_dim, dtype=dtype), layer_idx)
        if layer.keeps in ("all", "window"):
            zeros = torch.zeros(batch, layer.kv_heads, tokens, layer.head_dim, dtype=dtype)
            cache.update(zeros, zeros, layer_idx)
    return cache


@contextmanager
def count_positions(model):
    """Count the token positions sent through a model's layers.

    >>> with count_positions(model) as counted: ...
    gives a list with the number of positions of each forward, batch x tokens.
    """
    counted = []
    hook = model.get_input_embeddings().register_forward_hook(lambda _, args, out: counted.append(args[0].numel()))
    try:
        yield counted
    finally:
        hook.remove()


@dataclass(frozen=True)
class Decode:
    """One greedy decode, measured."""

    text: torch.Tensor  # (batch, tokens + new): the prompt and its continuation
    positions: list[int]  # positions sent through the layers, step by step
    seconds: list[float]  # of each step; the first one reads the prompt
    nbytes: int  # bytes that the cache held at the end; 0 without a cache
    steps: list[Step]  # what happened to each position in each step, for the pictures

    @property
    def first_token_s(self):
        """Seconds until the first new token: the time to read the prompt."""
        return self.seconds[0]

    @property
    def per_token_s(self):
        """Seconds for each further token, on average."""
        return sum(self.seconds[1:]) / max(len(self.seconds) - 1, 1)


def decode(model, input_ids, max_new_tokens, cache=None, on_token=None):
    """Run `stream` and measure it: positions, seconds of each step, bytes held. See `Decode`.

    `input_ids`: (batch, tokens). `on_token(token)` is called with each new token, (batch, 1), as it comes.
    """
    seconds, tokens, recorder = [], [], Recorder(cache)
    with count_positions(model) as counted:
        start = time.perf_counter()
        for step, token in enumerate(stream(model, input_ids, max_new_tokens, cache), start=1):
            seconds.append(time.perf_counter() - start)
            tokens.append(token)
            recorder.step(f"token {step}", None if cache is not None else range(counted[-1] // len(token)))
            if on_token is not None:
                on_token(token)
            start = time.perf_counter()
    text = torch.cat([input_ids, *tokens], dim=1)
    return Decode(text, counted, seconds, 0 if cache is None else cache.nbytes(), recorder.steps)


@torch.no_grad()
def perplexity(model, input_ids, cache=None, chunk=64, **options):
    """How surprised the model is by a text: exp of the mean of -log p(token | tokens before it). Lower is better.

    `input_ids`: (batch, tokens), 2 tokens or more; the first one is not judged. Without a `cache` the text goes through
    in one forward, and `options` (an attention_mask of (1, 1, tokens, tokens), for example) go to the model. With an
    empty cache it is fed in chunks of `chunk` tokens, so that each chunk reads what the cache kept of those before it.
    """
    tokens = input_ids.shape[1]
    if tokens < 2 or chunk < 1:
        raise ValueError(f"a text of 2 tokens or more and a chunk of 1 or more are needed; got {tokens} and {chunk}")
    if cache is not None and cache.get_seq_length():
        raise ValueError(f"the cache has seen {cache.get_seq_length()} tokens; give an empty one, or call reset()")
    size, surprise = tokens if cache is None else chunk, 0.0
    for start in range(0, tokens, size):
        fed = input_ids[:, start : start + size]
        logits = model(fed, cache=cache, use_cache=cache is not None, **options).logits
        judged = input_ids[:, start + 1 : start + size + 1]
        logits = logits[:, : judged.shape[1]].float()
        surprise += torch.nn.functional.cross_entropy(logits.flatten(0, 1), judged.flatten(), reduction="sum").item()
    return math.exp(surprise / input_ids[:, 1:].numel())
