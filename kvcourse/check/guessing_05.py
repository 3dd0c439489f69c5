"""Task 05c: guessed tokens, checked by one forward of the model, and the wrong ones cropped."""

import functools

import torch

from ..containers import DynamicCache
from ..generate import greedy
from ..measure import count_positions
from .playing import some_ids, tiny
from .runner import run
from .task import Case, Mistake, compare, task
from .words import words

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
                seen[label] = text if text is None else _what_else(text, before)
                return
            seen[label] = text[0, before.shape[1] :].tolist()
            seen[f"tokens in the cache after round {number}, text minus one"] = cache.get_seq_length()
            seen[f"tokens in each forward of round {number}"] = list(counted)

    return Case(what, play)


def _is_text(text, before):
    fits = isinstance(text, torch.Tensor) and text.ndim == 2 and text.shape[0] == 1
    return fits and text.shape[1] >= before.shape[1] and bool(text[:, : before.shape[1]].equal(before))


def _what_else(text, before):
    if not isinstance(text, torch.Tensor):
        return words(text)
    return f"a tensor {tuple(text.shape)} that does not begin with the text before, {tuple(before.shape)}"


ROUNDS = [
    rounds("a prompt, then 4 guesses that all hold", (4, 4), (2, 2)),
    rounds("5 guesses, the first 2 hold; then 3 guesses that hold", (5, 2), (3, 3)),
    rounds("4 guesses, none holds; then 3 guesses that hold", (4, 0), (3, 3)),
    rounds("no guess at all, then 3 guesses of which 1 holds, then none", (0, 0), (3, 1), (0, 0)),
]


def prefix_that_holds(own, guess):
    """The right count: guesses that the model would have written, up to the first that it would not."""
    return int((own[:, :-1] == guess).cumprod(dim=1).sum())


def a_round(
    model,
    cache,
    text,
    guess,
    count=prefix_that_holds,
    start=lambda cache, text: cache.get_seq_length(),
    bonus=1,
    crop=lambda cache, text, guess, right: cache.crop(text.shape[1] - 1 - cache.get_seq_length()),
):
    """The right answer, with the lines that go wrong as parameters."""
    fed = torch.cat([text, guess], dim=1)[:, start(cache, text) :]
    own = model(fed, cache=cache).logits[:, -guess.shape[1] - 1 :].argmax(-1)
    right = count(own, guess)
    text = torch.cat([text, own[:, :right], own[:, right : right + bonus]], dim=1)
    crop(cache, text, guess, right)
    return text


def with_(**lines):
    return functools.partial(a_round, **lines)


def plain(model, cache, text, guess):
    """One token, as if there were no guess."""
    return greedy(model, text, 1, cache)


def one_at_a_time(model, cache, text, guess):
    """Right tokens, a forward for each guess."""
    for tokens in range(guess.shape[1] + 1):
        text = greedy(model, text, 1, cache)
        if tokens == guess.shape[1] or text[0, -1] != guess[0, tokens]:
            return text


def past_a_mismatch(model, cache, text, guess):
    """Takes as many guesses as agree with the model somewhere."""
    own = model(torch.cat([text, guess], dim=1)[:, cache.get_seq_length() :], cache=cache).logits
    own = own[:, -guess.shape[1] - 1 :].argmax(-1)
    right = int((own[:, :-1] == guess).sum())
    text = torch.cat([text, guess[:, :right], own[:, right : right + 1]], dim=1)
    cache.crop(right - guess.shape[1])
    return text


def trusts(model, cache, text, guess):
    fed = torch.cat([text, guess], dim=1)
    bonus = model(fed[:, cache.get_seq_length() :], cache=cache).logits[:, -1:].argmax(-1)
    return torch.cat([fed, bonus], dim=1)


def keeps_the_wrong_word(model, cache, text, guess):
    before = text.shape[1]
    text = a_round(model, cache, text, guess)
    right = text.shape[1] - before - 1
    return torch.cat([text[:, :-1], guess[:, right : right + 1]], dim=1) if right < guess.shape[1] else text


BONUS = "the model's own token is lost: after the last guess that holds, its choice is known too, and is free"
PAST = (
    "a guess behind a wrong one was accepted: it may agree with the model, but the model saw the wrong word before it. "
    "Stop at the first mismatch"
)
GUESSING_MISTAKES = [
    Mistake(
        "the accepted guesses were cropped; crop the wrong ones, so that the cache is one token behind the text",
        with_(crop=lambda cache, text, guess, right: cache.crop(-right)),
    ),
    Mistake(BONUS, with_(bonus=0)),
    Mistake(BONUS, with_(bonus=0, crop=lambda cache, text, guess, right: cache.crop(right - guess.shape[1]))),
    Mistake(PAST, with_(count=lambda own, guess: int((own[:, :-1] == guess).sum()))),
    Mistake(PAST, past_a_mismatch),
    Mistake("the guesses were trusted; compare each with what the model says before it", trusts),
    Mistake(
        "at the first mismatch the model's token goes in, not the guess: own[:, right]",
        keeps_the_wrong_word,
    ),
    Mistake(
        "the wrong guesses are still in the cache: crop them",
        with_(crop=lambda cache, text, guess, right: None),
    ),
    Mistake(
        "one token too many was cropped: the cache is to hold all of the text but its last token",
        with_(crop=lambda cache, text, guess, right: cache.crop(right - guess.shape[1] - 1)),
    ),
    Mistake(
        "all guesses were cropped, also those that hold; crop the wrong ones alone",
        with_(crop=lambda cache, text, guess, right: cache.crop(-guess.shape[1])),
    ),
    Mistake(
        "compared one place off: the model's token at place i answers for place i + 1, so own[:, 0] belongs to the "
        "first guess",
        with_(count=lambda own, guess: int((own[:, 1:] == guess).cumprod(dim=1).sum())),
    ),
    Mistake(
        "the cache holds the text already, all but its last token; feed only what is new to it",
        with_(start=lambda cache, text: 0),
    ),
    Mistake(
        "the last token of the text was never fed: the cache is one behind it; feed from cache.get_seq_length() on",
        with_(start=lambda cache, text: text.shape[1] if cache.get_seq_length() else 0),
    ),
    Mistake("the guesses were thrown away: feed them behind the text, in the same forward", plain),
    Mistake("one forward is enough: feed all guesses at once, then look at each", one_at_a_time),
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
