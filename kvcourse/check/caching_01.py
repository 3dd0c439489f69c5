"""Tasks 01c and 01d: positions counted at the model's door, and which models may keep their keys."""

import functools

from ..measure import decode
from .playing import some_ids, tiny
from .runner import run
from .small_models_01 import FOUR, PREFIX
from .task import Case, Mistake, Wrong, choices, compare, task


@functools.cache
def counted(prompt, new, cached):
    """The right answer, measured: what a hook at the door of a model counts while it writes."""
    from ..containers import DynamicCache

    model = tiny()
    return sum(decode(model, some_ids(model, 1, prompt), new, DynamicCache() if cached else None).positions)


def pair(prompt, new):
    """A case: what a function says for this pair."""

    def play(answer, seen):
        seen["positions without a cache"] = run(answer, answer, prompt, new, False)
        seen["positions with a cache"] = run(answer, answer, prompt, new, True)

    return Case(f"a prompt of {prompt}, {new} new", play)


PAIRS = [pair(5, 20), pair(1, 1), pair(7, 1), pair(3, 10), pair(12, 4)]


def said(without=lambda p, n: sum(p + step for step in range(n)), cached=lambda p, n: p + n - 1):
    return lambda p, n, with_cache: cached(p, n) if with_cache else without(p, n)


POSITIONS = [
    Mistake(
        "P + N: the last new token is never read, because nobody asks what comes after it",
        said(cached=lambda p, n: p + n),
    ),
    Mistake(
        "P x N: the text grows; the second step reads P + 1 tokens, the third P + 2", said(without=lambda p, n: p * n)
    ),
    Mistake(
        "not every step reads the final text: it grows from P to P + N - 1", said(without=lambda p, n: n * (p + n))
    ),
    Mistake(
        "not every step reads the final text: it grows from P to P + N - 1", said(without=lambda p, n: n * (p + n - 1))
    ),
    Mistake(
        "one too many at each step: the first step reads the prompt and nothing else",
        said(without=lambda p, n: sum(p + step for step in range(1, n + 1))),
    ),
    Mistake(
        "the prompt was forgotten: without a cache it is read again at every step",
        said(without=lambda p, n: n * (n - 1) // 2),
    ),
    Mistake(
        "the prompt was forgotten: without a cache it is read again at every step",
        said(without=lambda p, n: n * (n + 1) // 2),
    ),
    Mistake("the prompt was forgotten: a cache does not save the first reading", said(cached=lambda p, n: n)),
    Mistake("the prompt was forgotten: a cache does not save the first reading", said(cached=lambda p, n: n - 1)),
    Mistake("the prompt is read in all of its P positions, not in one step", said(cached=lambda p, n: 1 + n)),
    Mistake("this is the number with a cache: `cached` was turned round", lambda p, n, c: said()(p, n, not c)),
    Mistake("this is the number with a cache: look at `cached`", lambda p, n, c: p + n - 1),
    Mistake("this is the number without a cache: look at `cached`", lambda p, n, c: said()(p, n, False)),
]


@task("01c", "positions(P, N, cached) against what a hook counts in a model, for five pairs")
def task_01c(function):
    """`function(prompt, new, cached)`: token positions that go through the model."""
    compare(function, counted, PAIRS, POSITIONS)
    return {"positions": "as counted, with and without a cache, for all five pairs"}


ANSWERS = ("always", "after the prefix", "never")
TEXT = (3, 1, 4, 1, 5, 9, 2, 6)


def changed_layers(model, tokens):
    """Layers in which an old key changes when one token is put behind `tokens` of them."""
    before, after = model.keys(TEXT[:tokens]), model.keys(TEXT[: tokens + 1])
    gap = (after[:, :tokens] - before).abs().amax(dim=(1, 2))
    return (gap > 1e-5).nonzero().flatten().tolist()


CLAIMS = {  # what an answer says of a text with so many tokens: True, the old keys stay as they are
    "always": lambda tokens: True,
    "after the prefix": lambda tokens: tokens >= PREFIX,
    "never": lambda tokens: False,
}
BECAUSE = {
    ("causal", "never"): "no old token can see the new one, so nothing about it changes",
    ("causal", "after the prefix"): "no old token can see the new one, from the first token on; there is no prefix",
    ("encoder", "always"): "layer 0 proves nothing: there a key depends on its own token alone. Compare all layers",
    (
        "encoder",
        "after the prefix",
    ): "every token looks at every other one, so the new one changes them all",
    (
        "prefix-LM",
        "always",
    ): f"the first {PREFIX} tokens see each other: until all are there, each new one changes the others",
    ("prefix-LM", "never"): f"once the first {PREFIX} tokens are there, it is causal: no old token sees a new one",
    ("window", "never"): "the window moves on, but an old key does not mind who still looks at it. Old keys that "
    "nobody will look at can even be thrown away",
    ("window", "after the prefix"): "no old token can see the new one, from the first token on; a window is no prefix",
}


@task("01d", "your answers against the keys of the four models, before and after one more token")
def task_01d(answers):
    """`answers`: {"causal": a word of ANSWERS, ...} for each model of FOUR."""
    choices(answers, list(FOUR), ANSWERS)
    for name, model in FOUR.items():
        for tokens in range(1, len(TEXT)):
            claim, changed = CLAIMS[answers[name]](tokens), changed_layers(model, tokens)
            if claim != (not changed):
                stays = [str(layer) for layer in range(3) if layer not in changed]
                layers = f"changed in layers {', '.join(map(str, changed))}" if changed else "unchanged in all layers"
                raise Wrong(
                    tested=f"{name}: the keys of {tokens} token(s), before and after one more",
                    expected=f"{'unchanged in all layers' if claim else 'changed'}, if {answers[name]!r} were right",
                    came=layers + (f", unchanged in layer {', '.join(stays)}" if changed and stays else ""),
                    likely=BECAUSE[name, answers[name]],
                )
    return {"causal, window": "old keys never change", "encoder": "they change in layers 1 and 2"} | {
        "prefix-LM": f"they stay as soon as the first {PREFIX} tokens are there"
    }
