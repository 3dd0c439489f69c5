"""Task 03b: a prompt read in chunks."""

import functools

import torch

from ..containers import DynamicCache
from ..measure import count_positions
from .playing import some_ids, tiny
from .runner import run
from .task import Case, Mistake, Wrong, compare, task
from .words import words

TOKENS, SCORES = 10, "scores of the last token, (batch, vocabulary)"
model_once = functools.cache(tiny)  # the same for all cases: making it takes longer than running it


def reading(chunk, batch=1):
    """A case: read a prompt of TOKENS tokens in chunks."""

    @torch.no_grad()
    def play(answer, seen):
        model, cache = model_once(), DynamicCache()
        ids = some_ids(model, batch, TOKENS)
        with count_positions(model) as counted:
            scores = run(answer, answer, model, ids, chunk, cache)
        seen["positions in the cache"] = cache.positions(0)
        seen["positions read"] = sum(counted)
        seen["forwards"] = len(counted)
        seen["tokens in the largest forward"] = max(counted, default=0)
        seen[SCORES] = scores

    rows = f", {batch} sequences" if batch > 1 else ""
    return Case(f"a prompt of {TOKENS} tokens in chunks of {chunk}{rows}", play, explain)


def explain(label, expected, came):
    if label == SCORES and hasattr(came, "logits"):
        return "this is all that the model returns; its `.logits` are the scores, [:, -1] those after the last token"
    return None


READING = [reading(3), reading(7), reading(1, batch=2), reading(TOKENS)]


def read_in_chunks(model, ids, chunk, cache, parts=None, restart=False, pick=lambda scores: scores[:, -1]):
    """The right answer, with the lines that go wrong as parameters."""
    for part in ids.split(chunk, dim=1) if parts is None else parts(ids, chunk):
        places = {"position_ids": torch.arange(part.shape[1])[None]} if restart else {}
        scores = model(part, cache=cache, **places).logits
    return pick(scores)


def fresh_cache(model, ids, chunk, cache):
    for part in ids.split(chunk, dim=1):
        scores = model(part, cache=DynamicCache()).logits
    return scores[:, -1]


def own_cache(model, ids, chunk, cache):
    return read_in_chunks(model, ids, chunk, DynamicCache())


def forgetful(model, ids, chunk, cache):
    for part in ids.split(chunk, dim=1):
        cache.reset()
        scores = model(part, cache=cache).logits
    return scores[:, -1]


def full_chunks(ids, chunk):
    return [part for part in ids.split(chunk, dim=1) if part.shape[1] == chunk]


def from_the_start(ids, chunk):
    return [ids[:, : start + chunk] for start in range(0, ids.shape[1], chunk)]


def overlapping(ids, chunk):
    return [ids[:, max(start - 1, 0) : start + chunk] for start in range(0, ids.shape[1], chunk)]


def slices(start, end, rows=False, beyond=0, step=None):
    """Parts from start(place, chunk) to end(place, chunk), places from 0 to the number of tokens + `beyond` chunks."""

    def parts(ids, chunk):
        places = range(0, ids.shape[1] + beyond * chunk, step or chunk)
        ends = [slice(start(place, chunk), end(place, chunk)) for place in places]
        return (ids[part] if rows else ids[:, part] for part in ends)

    return parts


def place(place, chunk):
    return place


def behind(place, chunk):
    return place + chunk


def so_many(ids, chunk):
    return ids.chunk(chunk, dim=1)


def reads(**changes):
    return lambda *arguments: read_in_chunks(*arguments, **changes)


def picks(which):
    return reads(pick=lambda scores: scores[:, which])


def at_chunk(model, ids, chunk, cache):
    return read_in_chunks(model, ids, chunk, cache, pick=lambda scores: scores[:, chunk - 1])


AXES = "the axes of logits are (batch, tokens, vocabulary): keep all sequences, take the last token: [:, -1]"
EMPTY = "the caller's cache stays empty: {}; hand `cache` to every forward, so that a chunk sees those before it"
READING_MISTAKES = [
    Mistake(EMPTY.format("each chunk got a fresh cache, or none"), fresh_cache),
    Mistake(EMPTY.format("the chunks went into a cache of your own"), own_cache),
    Mistake("the cache was emptied between the chunks; a chunk has to see those before it", forgetful),
    Mistake(
        "the last, short chunk was dropped: a prompt is not always a multiple of the chunk", reads(parts=full_chunks)
    ),
    Mistake(
        "positions restart at 0 in each chunk: leave position_ids out, then the model counts on from the cache",
        reads(restart=True),
    ),
    Mistake(
        "each forward gets the whole text so far, though the cache has most of it; feed the chunk alone",
        reads(parts=from_the_start),
    ),
    Mistake("the chunks overlap by one token, which is then held twice", reads(parts=overlapping)),
    Mistake("`chunk` is the size of a chunk, not the number of chunks", reads(parts=so_many)),
    Mistake(
        "the sequences were split, not the tokens; in (batch, tokens) the tokens are dim=1",
        reads(parts=lambda ids, chunk: ids.split(chunk)),
    ),
    Mistake(
        "an empty part went into the model: a part goes from start to start + chunk, ids[:, start : start + chunk]",
        reads(parts=slices(place, lambda place, chunk: chunk)),
    ),
    Mistake(
        "an empty part went into the model: the loop takes a step too many; range(0, ids.shape[1], chunk) ends in time",
        reads(parts=slices(place, behind, beyond=1)),
    ),
    Mistake(
        "an empty part went into the model: the sequences were cut, not the tokens; ids[:, start : start + chunk]",
        reads(parts=slices(place, behind, rows=True)),
    ),
    Mistake(
        "the loop moves on by one token, not by a chunk: range(0, ids.shape[1], chunk)",
        reads(parts=slices(place, behind, step=1)),
    ),
    Mistake(
        "only the first part was read: is the `return` inside the loop?",
        reads(parts=lambda ids, chunk: [ids[:, :chunk]]),
    ),
    Mistake("the prompt went through at once, not in chunks", reads(parts=lambda ids, chunk: [ids])),
    Mistake("the scores after the first token of the last chunk; the last one decides: [:, -1]", picks(0)),
    Mistake("the scores after every token of the last chunk; the last one decides: [:, -1]", picks(slice(None))),
    Mistake("the last chunk may be shorter: its last token is at [:, -1], not at chunk - 1", at_chunk),
    Mistake("[:, -1:] keeps the axis of the tokens; [:, -1] leaves it out", picks(slice(-1, None))),
    Mistake(AXES, reads(pick=lambda scores: scores[-1])),
    Mistake(AXES, reads(pick=lambda scores: scores[0, -1])),
    Mistake(
        "this is one word of the vocabulary after every token; all words after the last token were asked for: [:, -1]",
        reads(pick=lambda scores: scores[:, :, -1]),
    ),
    Mistake(
        "the softmax of the scores; the scores (logits) themselves were asked for",
        reads(pick=lambda scores: scores[:, -1].softmax(-1)),
    ),
    Mistake(
        "the softmax of the scores; the scores (logits) themselves were asked for",
        reads(pick=lambda scores: scores[:, -1].log_softmax(-1)),
    ),
    Mistake(
        "the token itself was returned; the scores (logits) of the last token were asked for",
        lambda *arguments: read_in_chunks(*arguments).argmax(-1),
    ),
]


@task("03b", "a prompt read in chunks of 1, 3, 7 and all: what the cache holds, and the scores of the last token")
def task_03b(function):
    """`function(model, ids, chunk, cache)` -> logits of the last token, (batch, vocabulary)."""
    if not callable(function):
        raise Wrong(expected="a function", came=words(function))
    compare(function, read_in_chunks, READING, READING_MISTAKES, tolerance=1e-3, layout={})
    return {
        "cache": f"positions 0 to {TOKENS - 1}, each read once, whatever the chunk",
        "scores": "the same as when the prompt is read at once",
        "cost": f"chunks of 1 need {TOKENS} forwards, and each fetches all weights",
    }
