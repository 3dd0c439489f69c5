"""Task 01c: what goes through a model, and what is multiplied in it, counted while it runs."""

import functools

import torch

from ..attention import AttentionByHand
from ..measure import decode
from .plain import number
from .playing import some_ids, tiny
from .runner import run
from .task import Case, Mistake, compare, task
from .words import Phrase, words


@functools.cache
def counted(prompt, new, cached):
    """The right answer, measured: positions at the door of a model that writes, dot products in the lesson's layer."""
    from ..containers import DynamicCache

    model, layer, memory = tiny(), AttentionByHand(), None
    positions = sum(decode(model, some_ids(model, 1, prompt), new, DynamicCache() if cached else None).positions)
    text, read = torch.zeros(1, prompt + new, 8), 0
    for length in range(prompt, prompt + new):
        if cached:
            _, memory = layer.cached(text[:, read:length], memory)
        else:
            layer.recomputed(text[:, :length])
        read = length
    return positions, layer.cost.dot_products


def pair(prompt, new):
    """A case: what a function says for this pair."""

    def play(answer, seen):
        for cached, how in ((False, "without a cache"), (True, "with a cache")):
            both = run(answer, answer, prompt, new, cached)
            if both is None:
                seen[f"numbers returned {how}"] = None
                return
            if not isinstance(both, (tuple, list, torch.Tensor)) or len(both) != 2:
                seen[f"numbers returned {how}"] = Phrase(f"{words(both)}, and not two numbers")
                return
            seen[f"numbers returned {how}"] = Phrase("two")
            for what, said in zip(("positions", "dot products"), both, strict=True):
                seen[f"{what} {how}"] = number(said)

    return Case(f"a prompt of {prompt}, {new} new", play, explain)


def explain(label, expected, came):
    if came is None:
        return None
    if isinstance(came, str) and not isinstance(came, Phrase):
        return "text came; return the number itself"
    if isinstance(came, Phrase) and "[" in came and "positions" in label:
        return "this is a number for each step; the card asks for their sum"
    if label.startswith("numbers"):
        return "two numbers are asked for: positions, then dot products. A step has one of each; add them up"
    return None


PAIRS = [pair(5, 20), pair(1, 1), pair(7, 1), pair(3, 10), pair(12, 4)]


def steps(prompt, new, cached):
    """(queries, keys) of each step."""
    if not cached:
        return [(prompt + step, prompt + step) for step in range(new)]
    return [(prompt, prompt), *((1, prompt + step) for step in range(1, new))]


def right(prompt, new, cached):
    both = steps(prompt, new, cached)
    return sum(fed for fed, _ in both), sum(fed * seen for fed, seen in both)


def said(positions=None, products=None, cached=None):
    """The right answer, with other positions or dot products, given (P, N); both ways, or for one `cached` alone."""

    def answer(p, n, with_cache):
        both = list(right(p, n, with_cache))
        if cached in (None, with_cache):
            both[0] = positions(p, n) if positions else both[0]
            both[1] = products(p, n) if products else both[1]
        return tuple(both)

    return answer


def without(**other):
    return said(cached=False, **other)


def cached(**other):
    return said(cached=True, **other)


FINAL = "not every step reads the final text: it grows from P to P + N - 1"
AGAIN = "the prompt was forgotten: without a cache it is read again at every step"
FIRST = "the prompt was forgotten: a cache does not save the first reading"
LAST = "P + N: the last new token is never read, because nobody asks what comes after it"
MORE = "one too many at each step: the first step reads the prompt and nothing else"
PROMPT = "dot products: the first step reads the prompt, P queries that meet P keys each"
HALF = "dot products: a product that is hidden afterwards was computed, too; count every query with every key"
LINEAR = "dot products: a cache saves queries, not keys; the one new query meets all the keys so far"
POSITIONS = [
    Mistake(LAST, cached(positions=lambda p, n: p + n)),
    Mistake(
        "P x N: the text grows; the second step reads P + 1 tokens, the third P + 2",
        without(positions=lambda p, n: p * n),
    ),
    Mistake(FINAL, without(positions=lambda p, n: n * (p + n))),
    Mistake(FINAL, without(positions=lambda p, n: n * (p + n - 1))),
    Mistake(MORE, without(positions=lambda p, n: sum(p + step for step in range(1, n + 1)))),
    Mistake(
        "a step is missing: N new tokens take N steps, the first of which reads the prompt",
        without(positions=lambda p, n: sum(p + step for step in range(n - 1))),
    ),
    Mistake(
        "the sum begins at the first token; the first step reads all P at once, so it begins at P",
        without(positions=lambda p, n: (p + n) * (p + n - 1) // 2),
    ),
    Mistake(
        "the sum begins at the first token; the first step reads all P at once, so it begins at P",
        without(positions=lambda p, n: (p + n) * (p + n + 1) // 2),
    ),
    Mistake(AGAIN, without(positions=lambda p, n: n * (n - 1) // 2)),
    Mistake(AGAIN, without(positions=lambda p, n: n * (n + 1) // 2)),
    Mistake(FIRST, cached(positions=lambda p, n: n)),
    Mistake(FIRST, cached(positions=lambda p, n: n - 1)),
    Mistake("the prompt is read in all of its P positions, not in one step", cached(positions=lambda p, n: 1 + n)),
    Mistake(
        "one position too many: a prompt of P, and N - 1 tokens after it", cached(positions=lambda p, n: p + n + 1)
    ),
    Mistake("this is the number with a cache: `cached` was turned round", lambda p, n, c: right(p, n, not c)),
    Mistake("this is the number with a cache: look at `cached`", lambda p, n, c: right(p, n, True)),
    Mistake("this is the number without a cache: look at `cached`", lambda p, n, c: right(p, n, False)),
    Mistake("the two are swapped: positions first", lambda *a: right(*a)[::-1]),
]
PRODUCTS = [
    Mistake(
        "dot products: these are the positions once more; each query meets many keys",
        lambda p, n, c: right(p, n, c)[:1] * 2,
    ),
    Mistake(
        "dot products: without a cache each step has as many queries as keys, and each query meets each key",
        without(products=lambda p, n: sum(p + step for step in range(n))),
    ),
    Mistake(HALF, without(products=lambda p, n: sum((p + step) * (p + step + 1) // 2 for step in range(n)))),
    Mistake(HALF, without(products=lambda p, n: right(p, n, False)[1] // 2)),
    Mistake(HALF, without(products=lambda p, n: sum((p + step) * (p + step - 1) // 2 for step in range(n)))),
    Mistake(
        "dot products: the square of the sum is not the sum of the squares; multiply in each step, then add",
        without(products=lambda p, n: right(p, n, False)[0] ** 2),
    ),
    Mistake("dot products: " + FINAL, without(products=lambda p, n: n * (p + n - 1) ** 2)),
    Mistake("dot products: " + MORE, without(products=lambda p, n: sum((p + step) ** 2 for step in range(1, n + 1)))),
    Mistake(
        "dot products: all queries were counted, as without a cache; with one, later steps have one query",
        cached(products=lambda p, n: right(p, n, False)[1]),
    ),
    Mistake(PROMPT, cached(products=lambda p, n: sum(p + step for step in range(n)))),
    Mistake(PROMPT, cached(products=lambda p, n: sum(p + step for step in range(1, n)))),
    Mistake(HALF, cached(products=lambda p, n: p * (p + 1) // 2 + sum(p + step for step in range(1, n)))),
    Mistake(LINEAR, cached(products=lambda p, n: p + n - 1)),
    Mistake(LINEAR, cached(products=lambda p, n: p * p + n - 1)),
    Mistake(
        "dot products: a new token looks at itself, too: the first one after the prompt meets P + 1 keys",
        cached(products=lambda p, n: p * p + sum(p + step for step in range(n - 1))),
    ),
    Mistake(
        "dot products: a step too many; the last new token is never read",
        cached(products=lambda p, n: p * p + sum(p + step for step in range(1, n + 1))),
    ),
    Mistake(
        "dot products: a step too many; the first one, of P queries, is counted already",
        cached(products=lambda p, n: p * p + sum(p + step for step in range(n))),
    ),
]


@task("01c", "costs(P, N, cached) against what a model and the layer of the lesson count, for five pairs")
def task_01c(function):
    """`function(prompt, new, cached)`: token positions that go through the model, and dot products of one head."""
    compare(function, counted, PAIRS, POSITIONS + PRODUCTS)
    (positions, products), (few, fewer) = counted(3, 10, False), counted(3, 10, True)
    return {
        "counts": "as counted, with and without a cache, for all five pairs",
        "your guess": f"P = 3, N = 10: {products} dot products without a cache ({positions} positions), {fewer} with "
        f"one ({few} positions)",
    }
