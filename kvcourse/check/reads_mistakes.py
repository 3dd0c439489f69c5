"""Answers that people give to task 03c, bytes for a token and where the cache takes over, and what to say to each."""

import functools
import math

from .fitting_02 import guessed, one, query_heads
from .task import Mistake


def read(
    config, parameters, tokens, batch, dtype, share=True, cache=lambda batch: 1, weight=None, together=False, **token
):
    """Bytes for a token by formula, with the lines that go wrong as parameters; `token` as in `fitting_02.one`."""
    weights = parameters * (dtype.itemsize if weight is None else weight)
    held = tokens * one(config, dtype, **token) * cache(batch)
    return (weights / (batch if share else 1) + held) * (batch if together else 1)


def meet(config, parameters, batch, dtype, shared=lambda batch: batch, weight=None, whole=math.ceil, **token):
    weights = parameters * (dtype.itemsize if weight is None else weight)
    return whole(weights / (shared(batch) * one(config, dtype, **token)))


def other_tokens(change):
    """`bytes_for_a_token` with another number in the place of `tokens`."""
    return lambda config, parameters, tokens, *others: read(config, parameters, change(tokens), *others)


def step_is(function):
    return function, meet


def step_with(**changes):
    return functools.partial(read, **changes), meet


def meets_with(**changes):
    return read, functools.partial(meet, **changes)


NUMBERS = "parameters are numbers, not bytes: each takes dtype.itemsize bytes"
TYPE = (
    "a cached number takes dtype.itemsize bytes: bytes_per_token(config, dtype) wants the type, else it takes 2 bytes"
)
ALWAYS = "the type decides: a number of type `dtype` takes dtype.itemsize bytes, not always 2"
GUESS = "head_dim was guessed as hidden size over heads; a config may state one of its own: config.head_dim"
UP = "round up: at this length the cache is still a little smaller than the weights"
VALUES = "the values were forgotten: a token leaves a key and a value, and a step reads both"
GROUPED = "query heads were counted; a step reads the keys that are held, and those have kv_heads"
OWN = "the cache is not shared: a step reads that of every sequence, so each token pays for its own in full"
MISTAKES = [
    Mistake(
        "each token pays for all weights: a step fetches them once, and all sequences of the batch share them",
        step_with(share=False),
    ),
    Mistake(OWN, step_with(cache=lambda batch: 1 / batch)),
    Mistake(VALUES, step_with(part=1)),
    Mistake(
        "this is what the whole step reads; it writes one token for each sequence, so divide by the batch",
        step_with(together=True),
    ),
    Mistake(
        "each token pays for the caches of all sequences; its own is the only one that it needs",
        step_with(cache=lambda batch: batch),
    ),
    Mistake(NUMBERS, step_with(weight=1)),
    Mistake("the weights alone; a step reads the cache too", step_with(part=0)),
    Mistake("the cache alone; a step reads the weights too", step_with(weight=0)),
    Mistake(
        "the cache of a single token; a step reads that of all `tokens` tokens", step_is(other_tokens(lambda tokens: 1))
    ),
    Mistake(
        "one token too many: the token of this step is among the `tokens` already",
        step_is(other_tokens(lambda tokens: tokens + 1)),
    ),
    Mistake(
        "one token too few: the step reads the key and value of its own token, too",
        step_is(other_tokens(lambda tokens: tokens - 1)),
    ),
    Mistake(
        "shared out among the tokens in the caches; a step writes one token for each sequence, so divide by the batch",
        step_is(lambda c, p, tokens, batch, d: read(c, p, tokens, batch, d) / tokens),
    ),
    Mistake(GROUPED, step_with(heads=query_heads)),
    Mistake(GUESS, step_with(head_dim=guessed)),
    Mistake(TYPE, step_with(itemsize=2)),
    Mistake(ALWAYS, step_with(itemsize=2, weight=2)),
    Mistake(
        "the batch: with twice the sequences a step reads twice the cache, so they meet at half the tokens",
        meets_with(shared=lambda batch: 1),
    ),
    Mistake(
        "more sequences read more cache, so the two meet earlier, not later", meets_with(shared=lambda batch: 1 / batch)
    ),
    Mistake(VALUES, meets_with(part=1)),
    Mistake(NUMBERS, meets_with(weight=1)),
    Mistake(UP, meets_with(whole=int)),
    Mistake(f"{UP}; round() goes to the nearer side", meets_with(whole=round)),
    Mistake(
        "one too many where it comes out even: math.ceil leaves a whole number as it is",
        meets_with(whole=lambda ratio: int(ratio) + 1),
    ),
    Mistake("a part of a token does not exist: round up", meets_with(whole=float)),
    Mistake(GROUPED, meets_with(heads=query_heads)),
    Mistake(GUESS, meets_with(head_dim=guessed)),
    Mistake(TYPE, meets_with(itemsize=2)),
    Mistake(
        "tokens are asked for; these are the bytes of that many",
        (read, lambda config, *others: meet(config, *others) * one(config, others[-1])),
    ),
]
