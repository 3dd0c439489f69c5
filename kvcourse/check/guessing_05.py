"""Task 05c: guessed tokens, checked by one forward of the model, and the wrong ones cropped."""

import functools

import torch

from ..containers import DynamicCache
from ..generate import greedy
from ..measure import count_positions
from .guessing_mistakes import GUESSING_MISTAKES, a_round
from .playing import some_ids, tiny
from .runner import run
from .task import Case, compare, task
from .words import Phrase

PROMPT = 7


@functools.cache
def truth():
    """(model, text): the tiny model and its greedy text, a prompt of 7 tokens and 40 new ones."""
    model = tiny()
    return model, greedy(model, some_ids(model, 1, PROMPT), 40, DynamicCache(config=model.config))


def guess_after(text, tokens, right):
    """So many guessed tokens, of which the first `right` hold. What follows a wrong one is what the model would say
    after it: it agrees with the model again, and is wrong all the same."""
    model, written = truth()
    good = written[:, text.shape[1] : text.shape[1] + right]
    if right >= tokens:
        return good
    wrong = (written[:, text.shape[1] + right : text.shape[1] + right + 1] + 1) % 97 + 3
    start = torch.cat([text, good, wrong], dim=1)
    return greedy(model, start, tokens - right - 1, DynamicCache(config=model.config))[:, text.shape[1] :]


def rounds(what, *guesses):
    """A case: several rounds on one cache. `guesses`: (tokens guessed, how many of them hold) of each round."""

    def play(answer, seen):
        model, written = truth()
        cache, text = DynamicCache(config=model.config), written[:, :PROMPT]
        for number, (tokens, right) in enumerate(guesses, 1):
            before, guess = text, guess_after(text, tokens, right)
            with count_positions(model) as counted:
                text = run(answer, answer, model, cache, text.clone(), guess)
            label = f"tokens that round {number} adds to the text"
            if not _is_text(text, before):
                seen[label] = text if text is None else Phrase(_what_else(text, before))
                return
            seen[label] = text[0, before.shape[1] :].tolist()
            seen[f"tokens in the cache after round {number}, text minus one"] = cache.get_seq_length()
            seen[f"tokens in each forward of round {number}"] = list(counted)

    return Case(what, play, explain)


def explain(label, expected, came):
    if not isinstance(came, Phrase):
        return None
    return WHOLE if came.startswith("a tensor") else "return a tensor of ids, (1, tokens), made with torch.cat"


WHOLE = "return the whole text: the one before, then the guesses that hold and the model's own token; (1, tokens)"


def _is_text(text, before):
    fits = isinstance(text, torch.Tensor) and text.ndim == 2 and text.shape[0] == 1
    return fits and text.shape[1] >= before.shape[1] and bool(text[:, : before.shape[1]].equal(before))


def _what_else(text, before):
    if not isinstance(text, torch.Tensor):
        return f"an object of type {type(text).__name__}, not a tensor"
    return f"a tensor {tuple(text.shape)} that does not begin with the text before, {tuple(before.shape)}"


ROUNDS = [
    rounds("a prompt, then 4 guesses that all hold", (4, 4), (2, 2)),
    rounds("5 guesses, of which 1 holds; then 3 guesses that hold", (5, 1), (3, 3)),
    rounds("4 guesses, none holds; then 3 guesses that hold", (4, 0), (3, 3)),
    rounds("no guess at all, then 3 guesses of which 1 holds, then none", (0, 0), (3, 1), (0, 0)),
]


@task("05c", "your round of guessing: the tokens it accepts, what it leaves in the cache, its forwards")
def task_05c(function):
    """`function(model, cache, text, guess)` -> the longer text, (1, tokens)."""
    with torch.no_grad():
        compare(function, a_round, ROUNDS, GUESSING_MISTAKES)
        forwards, new = _forwards(function), 24
    return {
        "tokens": "those that the model writes alone, in all four cases",
        "cost": f"{new} tokens in {forwards} forwards, where two of three guesses hold; without guesses {new}",
    }


def _forwards(function, new=24):
    model, written = truth()
    cache, text = DynamicCache(config=model.config), written[:, :PROMPT]
    with count_positions(model) as counted:
        while text.shape[1] < PROMPT + new:
            guess = written[:, text.shape[1] : text.shape[1] + 3].clone()
            guess[:, 2:] += 1
            text = run(function, function, model, cache, text, guess)
    return len(counted)
