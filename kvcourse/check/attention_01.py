"""Task 01a: one query against all keys."""

import torch

from ..attention import attend
from .runner import run
from .task import Case, Mistake, compare, task
from .words import Phrase

OUTPUT, AFTERWARDS = "output, (batch, heads, 1, head_dim)", "q, K and V afterwards"


def numbers(*shape, start):
    """A tensor in which every number is different, between -2 and 2."""
    count = torch.Size(shape).numel()
    return 2 * torch.sin(torch.arange(start + 1, start + 1 + count, dtype=torch.float32)).view(shape)


def newest(tokens, heads, batch, head_dim=4):
    """A case: what the newest of so many tokens gets."""

    def play(answer, seen):
        size = batch * heads * tokens * head_dim
        q, keys, values = (numbers(batch, heads, tokens, head_dim, start=part * size) for part in range(3))
        handed = q[:, :, -1:].clone(), keys.clone(), values.clone()
        seen[OUTPUT] = run(answer, answer, *handed)
        same = all(mine.equal(old) for mine, old in zip(handed, (q[:, :, -1:], keys, values), strict=True))
        seen[AFTERWARDS] = Phrase("as they were" if same else "changed")

    counts = [(tokens, "token"), (heads, "head"), (batch, "sequence")]
    words = ", ".join(f"{count} {noun}{'s' if count > 1 else ''}" for count, noun in counts)
    return Case(f"{words}, head_dim {head_dim}", play, explain)


def explain(label, expected, came):
    if label == AFTERWARDS:
        return (
            "your code writes into a tensor that it was given (`*=`, `/=` or a name with `_` at its end); others still "
            "need it: make a new one, K / 2 in place of K /= 2"
        )
    return "a list came; return the tensor itself" if isinstance(came, (list, tuple)) else None


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


TURNED = "K has to be turned before it is multiplied: q @ K.transpose(-1, -2) is one number for each key"
PRODUCT = "`*` multiplies number by number; a dot product also adds them up: q @ K.transpose(-1, -2)"
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
        "the softmax went over the queries (dim=-2), of which there is one, so that each share is 1; the shares of "
        "all keys together must be 1: softmax(dim=-1)",
        variant(weigh=lambda scores: scores.softmax(-2)),
    ),
    Mistake(
        "the softmax went over the heads (dim=1); each head has shares of its own, over the keys: softmax(dim=-1)",
        variant(weigh=lambda scores: scores.softmax(1)),
    ),
    Mistake(
        "the softmax went over the sequences (dim=0); each sequence is on its own: softmax(dim=-1)",
        variant(weigh=lambda scores: scores.softmax(0)),
    ),
    Mistake("no softmax: scores are not shares yet", variant(weigh=lambda scores: scores)),
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
        "every key got the same share; the dot products with the query decide",
        lambda q, k, v: v.mean(2, keepdim=True),
    ),
    Mistake(
        "these are the shares; they are still to be multiplied with the values",
        lambda q, k, v: (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1),
    ),
    Mistake("keep the axis of the tokens: one query in, one token out", lambda q, k, v: last_row(q, k, v)[:, :, 0]),
    Mistake(TURNED, lambda q, k, v: (q @ k / 2).softmax(-1) @ v),
    Mistake(TURNED, lambda q, k, v: (q @ k.transpose(1, 2) / 2).softmax(-1) @ v),
    Mistake(
        "K.T swaps all four axes; only the last two are to be swapped: K.transpose(-1, -2)",
        lambda q, k, v: (q @ k.permute(3, 2, 1, 0) / 2).softmax(-1) @ v,
    ),
    Mistake(
        "the query goes first, q @ K.transpose(-1, -2): one row of scores, and one score for each key",
        lambda q, k, v: (k @ q.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v,
    ),
    Mistake(PRODUCT, lambda q, k, v: (q * k / q.shape[-1] ** 0.5).softmax(-1) * v),
    Mistake(PRODUCT, lambda q, k, v: (q * k / q.shape[-1] ** 0.5).softmax(-1) @ v),
    Mistake(
        "divided after the softmax: then the shares no longer sum to 1; divide the scores before it",
        lambda q, k, v: (q @ k.transpose(-1, -2)).softmax(-1) / q.shape[-1] ** 0.5 @ v,
    ),
]


@task("01a", "attend_last on 1, 2 and 7 tokens, with several heads and sequences")
def task_01a(function):
    """`function(q, K, V)`: q (batch, heads, 1, head_dim), K and V (batch, heads, kv_len, head_dim)."""
    compare(function, last_row, NEWEST, NEWEST_MISTAKES, tolerance=1e-4, layout={})
    return {"output": "the last row of full causal attention, in all five cases; and no mask was needed"}
