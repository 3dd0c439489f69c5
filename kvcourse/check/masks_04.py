"""Tasks 04a and 04d: who sees whom in a window, and in chunks."""

import functools

import torch

from ..models.chunked import tiny_chunked
from .positions import rows_of
from .runner import run
from .task import Case, Mistake, Unfinished, Wrong, compare, task
from .words import Phrase, words


def looking(what, *questions):
    """A case: who sees whom. `questions`: (first query, number of queries, kv_len, offset, window)."""

    def play(answer, seen):
        for first, q_len, kv_len, offset, window in questions:
            mask = run(answer, answer, torch.arange(first, first + q_len), kv_len, offset, window)
            rows = mask if mask is None else rows_of(mask, q_len, kv_len)
            usable = isinstance(rows, list)
            name = f"the mask for {q_len} queries and {kv_len} keys"
            seen[name] = Phrase(f"True and False, ({q_len}, {kv_len})") if usable else rows
            if not usable:
                return
            for number, row in enumerate(rows):
                name = f"window {window}: token {first + number} sees the positions"
                seen[name] = [offset + column for column in row]

    return Case(what, play)


LOOKING = [
    looking("a prompt of 7 tokens, with windows of 1 to 8", *((0, 7, 7, 0, window) for window in range(1, 9))),
    looking("one new token; the cache kept 3 of 9", (9, 1, 4, 6, 4)),
    looking("three new tokens; the cache kept 3 of 9", (9, 3, 6, 6, 4)),
    looking("one new token; the cache kept all 9", (9, 1, 10, 0, 4)),
]


def at_once(distance, window):
    return (distance >= 0) & (distance < window)


def window_mask(queries, kv_len, offset, window):
    """The right answer."""
    return at_once(queries[:, None] - torch.arange(offset, offset + kv_len), window)


def by_distance(rule):
    """An answer from a rule about the distance between query and key."""

    def answer(queries, kv_len, offset, window):
        return rule(queries[:, None] - torch.arange(offset, offset + kv_len), window)

    return answer


LOOKING_MISTAKES = [
    Mistake(
        "one too many: a window of W counts the token that looks, so the distance is less than W",
        by_distance(lambda distance, window: (distance >= 0) & (distance <= window)),
    ),
    Mistake(
        "the current token is one of the W that it sees; at distance 0 it looks at itself",
        by_distance(lambda distance, window: (distance > 0) & (distance < window)),
    ),
    Mistake(
        "the current token is one of the W that it sees; at distance 0 it looks at itself",
        by_distance(lambda distance, window: (distance > 0) & (distance <= window)),
    ),
    Mistake(
        "one too few: a window of W shows the current token and W - 1 before it",
        by_distance(lambda distance, window: (distance >= 0) & (distance < window - 1)),
    ),
    Mistake(
        "the first key stands at position `offset`, not at 0: the cache has dropped those before it",
        lambda queries, kv_len, offset, window: window_mask(queries, kv_len, 0, window),
    ),
    Mistake(
        "the queries were counted from 0; their positions are in `queries`",
        lambda queries, kv_len, offset, window: window_mask(torch.arange(len(queries)), kv_len, offset, window),
    ),
    Mistake(
        "the queries were counted from `offset`, where the keys begin; their positions are in `queries`",
        lambda queries, kv_len, offset, window: window_mask(
            offset + torch.arange(len(queries)), kv_len, offset, window
        ),
    ),
    Mistake(
        "the offset was taken off twice",
        lambda queries, kv_len, offset, window: window_mask(queries - offset, kv_len, offset, window),
    ),
    Mistake(
        "the future is visible: a token never looks at those after it, distance >= 0",
        by_distance(lambda distance, window: distance < window),
    ),
    Mistake(
        "the future is visible: a window looks back only",
        by_distance(lambda distance, window: distance.abs() < window),
    ),
    Mistake(
        "this is the causal mask: the window is not used, or `&` took the 0 in front of it, since it binds before >= "
        "does. Brackets around both: (distance >= 0) & (distance < window)",
        by_distance(lambda distance, window: distance >= 0),
    ),
    Mistake(
        "brackets around both: `&` binds before < and >= do, so write (distance >= 0) & (distance < window)",
        by_distance(lambda distance, window: (distance >= 0) & distance < window),
    ),
    Mistake(
        "the sign of the distance: queries[:, None] - keys is 0 or more for the tokens before a query",
        by_distance(lambda distance, window: at_once(-distance, window)),
    ),
    Mistake(
        "torch.arange takes the first and the end: the keys end before offset + kv_len, not before kv_len",
        lambda queries, kv_len, offset, window: at_once(queries[:, None] - torch.arange(offset, kv_len), window),
    ),
    Mistake(
        "torch.arange leaves its end out: torch.arange(offset, offset + kv_len) has kv_len positions",
        lambda queries, kv_len, offset, window: window_mask(queries, kv_len - 1, offset, window),
    ),
    Mistake(
        "two axes are asked for, (number of queries, kv_len): leave [None, None] away",
        lambda *arguments: window_mask(*arguments)[None, None],
    ),
    Mistake(
        "True and False are swapped: True means may look",
        by_distance(lambda distance, window: (distance < 0) | (distance >= window)),
    ),
    Mistake(
        "rows and columns are swapped: a row for each query, a column for each key",
        lambda *arguments: window_mask(*arguments).T,
    ),
    Mistake(
        "each query was compared with one key only; queries[:, None] - keys compares each query with every key",
        lambda queries, kv_len, offset, window: at_once(queries - torch.arange(offset, offset + kv_len), window),
    ),
    Mistake(
        "`and` and a chain such as 0 <= d < W want a single True or False; for tensors write (...) & (...), with both "
        "pairs of brackets",
        by_distance(lambda distance, window: distance >= 0 and distance < window),
    ),
    Mistake(
        "True and False were asked for, not numbers to be added to the scores",
        lambda *arguments: torch.zeros(()).masked_fill(~window_mask(*arguments), float("-inf")),
    ),
]


@task("04a", "window_mask on a prompt for windows of 1 to 8, then with keys that a cache has kept")
def task_04a(function):
    """`function(queries, kv_len, offset, window)` -> bool, (number of queries, kv_len)."""
    compare(function, window_mask, LOOKING, LOOKING_MISTAKES)
    return {"masks": "every token sees itself and the window - 1 before it, whatever the cache has kept"}


CHUNK, ASKED = 8, (7, 8, 9)


@functools.cache
def live(position, chunk=CHUNK):
    """The right answer, measured: where the attention weights of a chunked model are above zero."""
    model = tiny_chunked(chunk, layers=1, attn_implementation="eager")
    with torch.no_grad():
        weights = model(torch.arange(1, 21)[None], use_cache=False, output_attentions=True).attentions[0]
    return (weights[0, 0, position] > 0).nonzero().flatten().tolist()


def sees(position):
    """A case: the positions that the token at this one sees."""

    def play(answer, seen):
        seen[f"token {position} sees"] = answer(position)

    return Case(f"chunks of {CHUNK}, token {position}", play)


SEES = [
    Mistake(
        "the chunk ends at its border and does not slide along with the token", lambda t: list(range(t - 7, t + 1))
    ),
    Mistake(
        "the border: positions are counted from 0, so the first chunk is 0 to 7, and token 8 begins the second",
        lambda t: list(range(0 if t < 8 else 1, t + 1)) if t < 9 else [9],
    ),
    Mistake(
        "the border: positions are counted from 0, so the first chunk is 0 to 7, and token 8 begins the second",
        lambda t: list(range(0 if t <= 8 else 9, t + 1)),
    ),
    Mistake(
        "the border: positions are counted from 0, so the first chunk is 0 to 7, and token 7 is in it",
        lambda t: list(range(0 if t < 7 else 7, t + 1)),
    ),
    Mistake(
        "positions count from 0: token 0 is the first of its chunk, and token 8 begins the second",
        lambda t: list(range(1, t + 1)) if t < 9 else [9],
    ),
    Mistake("nothing before the border of its chunk is seen", lambda t: list(range(t + 1))),
    Mistake("a token sees itself too", lambda t: list(range(0 if t < 8 else 8, t))),
    Mistake(
        "the chunk as far as the token itself: the later ones are its future",
        lambda t: list(range(0, 8) if t < 8 else range(8, 16)),
    ),
]


@task("04d", "your three sets against the attention weights of a chunked model")
def task_04d(answers):
    """`answers`: {7: positions that token 7 sees, 8: ..., 9: ...}; lists, sets or ranges."""
    if not isinstance(answers, dict):
        raise Wrong(expected="a dict such as {7: [...], 8: [...], 9: [...]}", came=words(answers))
    if any(isinstance(name, str) for name in answers):
        likely = "the names in the dict are the numbers 7, 8 and 9, without quotes"
        raise Wrong(expected="a dict such as {7: [...], 8: [...], 9: [...]}", came=words(answers), likely=likely)
    missing = [str(position) for position in ASKED if answers.get(position, ...) is ...]
    if missing:
        raise Unfinished(f"the positions that token {', '.join(missing)} can see")
    plain = {position: _positions(position, answers[position]) for position in ASKED}
    compare(plain.get, live, [sees(position) for position in ASKED], SEES)
    return {"chunks": f"as a model with chunks of {CHUNK} looks: 8 positions, then 1, then 2"}


def _positions(token, said):
    """Positions given in any form, as a sorted list."""
    if isinstance(said, torch.Tensor) and said.ndim == 1:
        said = said.tolist()
    form = "a list of positions, or a range"
    if not isinstance(said, (list, tuple, set, frozenset, range)):
        raise Wrong(tested=f"token {token}", expected=form, came=words(said))
    numbers = [position.item() if hasattr(position, "item") else position for position in said]
    odd = [position for position in numbers if isinstance(position, bool) or position not in range(99)]
    if odd:
        likely = "a range in a list is one thing, not its numbers: leave the brackets away"
        likely = likely if isinstance(odd[0], range) else "positions are whole numbers, counted from 0"
        raise Wrong(tested=f"token {token}", expected=form, came=words(said), likely=likely)
    return sorted({int(position) for position in numbers})
