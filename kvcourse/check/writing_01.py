"""Task 01b: a loop that keeps keys and values in two lists."""

import torch

from .runner import run
from .small_models_01 import OneHead
from .task import Case, Mistake, compare, task


def writing(prompt, count):
    """A case: write `count` tokens after a prompt."""

    def play(answer, seen):
        model = OneHead()
        text = run(answer, answer, model, list(prompt), count)
        seen["new tokens"] = list(text) if isinstance(text, (tuple, torch.Tensor)) else text
        seen["positions that the model read"] = model.positions

    return Case(f"a prompt of {len(prompt)} token{'s' if len(prompt) > 1 else ''}, {count} new", play)


WRITING = [writing([7, 4, 11, 11, 14], 20), writing([2], 3), writing([3, 14, 13, 19, 15, 0, 13], 1)]


def kept(model, prompt, count, start=len, put=lambda lists, k, v: (lists[0].extend(k), lists[1].extend(v)), ask=-1):
    """The right answer, with the lines that go wrong as parameters."""
    keys, values, text, new = [], [], [], list(prompt)
    for _ in range(count):
        q, k, v = model.read(new, start(keys))
        put((keys, values), k, v)
        text.append(model.next_token(q[ask], keys, values))
        new = text[-1:]
    return text


def from_where(place):
    """A loop that reads its prompt at position 0 and each new token at `place(keys held, tokens of the prompt)`."""
    return lambda model, prompt, count: kept(
        model, prompt, count, start=lambda keys: place(len(keys), len(prompt)) if keys else 0
    )


def swapped(lists, k, v):
    lists[0].extend(v), lists[1].extend(k)


def swapped_later(lists, k, v):
    lists[bool(lists[0])].extend(k), lists[not lists[1]].extend(v)


def one_query(model, prompt, count):
    queries, keys, values = model.read(prompt, 0)
    keys, values, text = list(keys), list(values), []
    while len(text) < count:
        text.append(model.next_token(queries[-1], keys, values))
        if len(text) < count:
            _, k, v = model.read(text[-1:], len(keys))
            keys.extend(k), values.extend(v)
    return text


def nothing_kept(model, prompt, count):
    text = list(prompt)
    for _ in range(count):
        q, keys, values = model.read(text, 0)
        text.append(model.next_token(q[-1], list(keys), list(values)))
    return text[len(prompt) :]


def whole_text_again(model, prompt, count):
    keys, values, text = [], [], list(prompt)
    for _ in range(count):
        q, k, v = model.read(text, 0)
        keys.extend(k), values.extend(v)
        text.append(model.next_token(q[-1], keys, values))
    return text[len(prompt) :]


def also_the_last(model, prompt, count):
    text = kept(model, prompt, count)
    model.read(text[-1:], 0)
    return text


def prompt_alone_kept(model, prompt, count):
    q, keys, values = model.read(prompt, 0)
    text = [model.next_token(q[-1], list(keys), list(values))]
    while len(text) < count:
        q, k, v = model.read(text[-1:], len(prompt) + len(text) - 1)
        text.append(model.next_token(q[-1], list(keys), list(values)))
    return text


def newest_alone(model, prompt, count):
    def replace(lists, k, v):
        lists[0][:], lists[1][:] = k, v

    text, new, seen, lists = [], list(prompt), 0, ([], [])
    for _ in range(count):
        q, k, v = model.read(new, seen)
        seen += len(new)
        replace(lists, k, v)
        text.append(model.next_token(q[-1], *lists))
        new = text[-1:]
    return text


def one_list(start=None):
    """Keys and values in one list under two names; positions are its length, or right ones."""

    def loop(model, prompt, count):
        rows, text, new, seen = [], [], list(prompt), 0
        for _ in range(count):
            q, k, v = model.read(new, seen if start is None else start(rows))
            seen += len(new)
            rows.extend(k), rows.extend(v)
            text.append(model.next_token(q[-1], rows, rows))
            new = text[-1:]
        return text

    return loop


ONE_LIST = "keys and values are one and the same list under two names: make two, keys, values = [], []"
RESTART = "the new token was read {}: positions go on where the text stands, at len(keys)"
SWAPPED = "keys and values are swapped: `read` returns q, k, v, and `next_token` takes the query, the keys, the values"
WRITING_MISTAKES = [
    Mistake(
        "right tokens, but nothing was kept: the whole text goes through again at each step. Read the prompt once, "
        "then the newest token alone",
        nothing_kept,
    ),
    Mistake(
        "the whole text was read again although its keys are in the lists, so they are there twice; read only what "
        "the lists do not have yet",
        whole_text_again,
    ),
    Mistake(RESTART.format("at position 0 again"), lambda *a: kept(*a, start=lambda keys: 0)),
    Mistake(
        "the prompt was forgotten: its tokens stand before the new ones, so a new token is read at len(keys), not at "
        "the number of new tokens",
        from_where(lambda held, prompt: held - prompt + 1),
    ),
    Mistake(
        "the prompt was read as if it began at its own end; it begins at position 0, and each new token stands at "
        "len(keys)",
        lambda m, p, n: kept(m, p, n, start=lambda keys: len(keys) + 1 if keys else len(p)),
    ),
    Mistake(SWAPPED, lambda *a: kept(*a, put=swapped)),
    Mistake(SWAPPED, lambda *a: kept(*a, put=swapped_later)),
    Mistake(
        "the query of the prompt asked at every step; each new token brings a query of its own: "
        "q, k, v = model.read(...)",
        one_query,
    ),
    Mistake(
        "another OneHead was read, not the `model` that your function is given",
        lambda model, prompt, count: kept(OneHead(), prompt, count),
    ),
    Mistake("nothing was written: put each new token into the list that you return", lambda *_: []),
    Mistake("a token too many: the first one comes from reading the prompt", lambda m, p, n: kept(m, p, n + 1)),
    Mistake(
        "the keys went into both lists; the values belong into the second",
        lambda *a: kept(*a, put=lambda lists, k, v: (lists[0].extend(k), lists[1].extend(k))),
    ),
    Mistake(
        "the list of values is empty: keys go into one list, values into the other",
        lambda *a: kept(*a, put=lambda lists, k, v: (lists[0].extend(k), lists[0].extend(v))),
    ),
    Mistake(
        "the keys grow and the values do not; put the new value behind the others too",
        lambda *a: kept(*a, put=lambda lists, k, v: (lists[0].extend(k), lists[1].extend(v) if not lists[1] else 0)),
    ),
    Mistake("the keys and values of the new tokens were not kept; only the prompt is in the lists", prompt_alone_kept),
    Mistake(ONE_LIST, one_list()),
    Mistake(ONE_LIST, one_list(start=len)),
    Mistake("old keys and values were replaced; put the new ones behind them", newest_alone),
    Mistake("the query of the first token was used; the newest token asks: q[-1]", lambda *a: kept(*a, ask=0)),
    Mistake("the prompt is among what was returned; return the new tokens alone", lambda m, p, n: [*p, *kept(m, p, n)]),
    Mistake("a token is missing: reading the prompt gives the first one already", lambda m, p, n: kept(m, p, n - 1)),
    Mistake("one position too many: the last token was read too, and nobody asks what comes after it", also_the_last),
    Mistake(RESTART.format("one position too far on"), lambda *a: kept(*a, start=lambda keys: len(keys) + 1)),
    Mistake(RESTART.format("one position too far on"), from_where(lambda held, prompt: held + 1)),
    Mistake(RESTART.format("one position too far back"), lambda *a: kept(*a, start=lambda keys: max(len(keys) - 1, 0))),
]


@task("01b", "the tokens that your loop writes, and how many positions the model had to read for them")
def task_01b(function):
    """`function(model, prompt, count)` -> the new tokens, a list of numbers."""
    compare(function, kept, WRITING, WRITING_MISTAKES)
    return {
        "tokens": "the same as without a cache, in all three cases",
        "cost": "24 positions read for 20 new tokens after 5; without the two lists it would be 290",
    }
