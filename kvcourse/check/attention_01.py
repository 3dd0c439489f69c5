"""Task 01a: one query against all keys."""

import torch

from ..attention import attend
from .runner import run
from .task import Case, Mistake, compare, task


def numbers(*shape, start):
    """A tensor in which every number is different, between -2 and 2."""
    count = torch.Size(shape).numel()
    return 2 * torch.sin(torch.arange(start + 1, start + 1 + count, dtype=torch.float32)).view(shape)


def newest(tokens, heads, batch, head_dim=4):
    """A case: what the newest of so many tokens gets."""

    def play(answer, seen):
        size = batch * heads * tokens * head_dim
        q, keys, values = (numbers(batch, heads, tokens, head_dim, start=part * size) for part in range(3))
        seen["output of the newest token"] = run(answer, answer, q[:, :, -1:], keys, values)

    noun = "token" if tokens == 1 else "tokens"
    return Case(f"{tokens} {noun}; {heads} head(s), {batch} sequence(s), head_dim {head_dim}", play)


NEWEST = [newest(1, 1, 1), newest(2, 1, 1), newest(7, 4, 1), newest(2, 4, 3), newest(7, 1, 3, head_dim=6)]


def last_row(q, keys, values):
    """The right answer: the last row of full causal attention."""
    return attend(q, keys, values, offset=keys.shape[2] - 1)


def variant(scale=lambda q, keys: q.shape[-1] ** 0.5, weigh=lambda scores: scores.softmax(-1)):
    """The right answer with one line changed."""
    return lambda q, keys, values: weigh(q @ keys.transpose(-1, -2) / scale(q, keys)) @ values


def top_corner(scores):
    """A square mask, of which the first rows were taken in place of the last ones."""
    square = torch.ones(scores.shape[-1], scores.shape[-1], dtype=torch.bool).tril()
    return scores.masked_fill(~square[: scores.shape[-2]], float("-inf")).softmax(-1)


NEWEST_MISTAKES = [
    Mistake(
        "the scores were not divided by the square root of head_dim, so the largest one takes too much",
        variant(scale=lambda q, keys: 1),
    ),
    Mistake(
        "divide by the square root of head_dim: q.shape[-1] ** 0.5, not by head_dim itself",
        variant(scale=lambda q, keys: q.shape[-1]),
    ),
    Mistake(
        "divided by the root of the number of tokens; it is head_dim, the size of one key, that makes scores large",
        variant(scale=lambda q, keys: keys.shape[2] ** 0.5),
    ),
    Mistake(
        "the softmax went over the queries (dim=-2), of which there is one, so that each weight is 1; the weights of "
        "all keys together must be 1: softmax(dim=-1)",
        variant(weigh=lambda scores: scores.softmax(-2)),
    ),
    Mistake(
        "the softmax went over the heads (dim=1); each head has weights of its own, over the keys: softmax(dim=-1)",
        variant(weigh=lambda scores: scores.softmax(1)),
    ),
    Mistake(
        "the softmax went over the sequences (dim=0); each sequence is on its own: softmax(dim=-1)",
        variant(weigh=lambda scores: scores.softmax(0)),
    ),
    Mistake("no softmax: scores are not weights yet", variant(weigh=lambda scores: scores)),
    Mistake(
        "the mask was cut from the wrong corner: the newest token sees the first key alone. Its row is the last one of "
        "the square, and there nothing is hidden, so that no mask is needed",
        variant(weigh=top_corner),
    ),
    Mistake(
        "the newest token does not look at itself; its own key is among the keys, and it counts",
        lambda q, keys, values: last_row(q, keys[:, :, :-1], values[:, :, :-1]),
    ),
    Mistake("the keys were mixed; what a token hands over is its value", lambda q, k, v: last_row(q, k, k)),
    Mistake(
        "the query was multiplied with the values; it is compared with the keys",
        lambda q, k, v: last_row(q, v, v),
    ),
    Mistake(
        "every key got the same weight; the dot products with the query decide",
        lambda q, k, v: v.mean(2, keepdim=True),
    ),
    Mistake(
        "these are the weights; they are still to be multiplied with the values",
        lambda q, k, v: (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1),
    ),
    Mistake("keep the axis of the tokens: one query in, one token out", lambda q, k, v: last_row(q, k, v)[:, :, 0]),
    Mistake(
        "K has to be turned before it is multiplied: q @ K.transpose(-1, -2) is one number for each key",
        lambda q, k, v: (q @ k / 2).softmax(-1) @ v,
    ),
]


@task("01a", "attend_last on 1, 2 and 7 tokens, with several heads and sequences")
def task_01a(function):
    """`function(q, K, V)`: q (batch, heads, 1, head_dim), K and V (batch, heads, kv_len, head_dim)."""
    compare(function, last_row, NEWEST, NEWEST_MISTAKES, tolerance=1e-4)
    return {"output": "the last row of full causal attention, in all five cases; and no mask was needed"}
