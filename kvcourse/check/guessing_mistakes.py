"""The right round for task 05c, and the wrong ones that people write."""

import functools

import torch

from ..generate import greedy
from .task import Mistake


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


def places_late(model, cache, text, guess):
    """Takes the last k places of the logits, not the last k + 1."""
    fed = torch.cat([text, guess], dim=1)[:, cache.get_seq_length() :]
    own, right = model(fed, cache=cache).logits[:, -guess.shape[1] :].argmax(-1), 0
    while right < guess.shape[1] and own[0, right] == guess[0, right]:
        right += 1
    text = torch.cat([text, own[:, : right + 1]], dim=1)
    cache.crop(text.shape[1] - 1 - cache.get_seq_length())
    return text


def added(parts):
    """A round that adds `parts(own, guess, right)` to the text."""

    def one_round(model, cache, text, guess):
        fed = torch.cat([text, guess], dim=1)[:, cache.get_seq_length() :]
        own = model(fed, cache=cache).logits[:, -guess.shape[1] - 1 :].argmax(-1)
        right = prefix_that_holds(own, guess)
        cache.crop(right - guess.shape[1])
        return torch.cat([text, *parts(own, guess, right)], dim=1)

    return one_round


def own_tokens(model, cache, text, guess, places):
    """(what the model says at `places`, as many guesses as hold) of one forward."""
    own = model(torch.cat([text, guess], dim=1)[:, cache.get_seq_length() :], cache=cache).logits.argmax(-1)
    return own[:, places]


def from_the_start(start):
    """Looks at the model's tokens from place `start(text)` of what was fed on."""

    def one_round(model, cache, text, guess):
        own, right = own_tokens(model, cache, text, guess, slice(start(text), None)), 0
        while right < guess.shape[1] and own[0, right] == guess[0, right]:
            right += 1
        text = torch.cat([text, own[:, : right + 1]], dim=1)
        cache.crop(min(0, text.shape[1] - 1 - cache.get_seq_length()))
        return text

    return one_round


def without_a_bound(as_lists=False):
    def one_round(model, cache, text, guess):
        own, right = own_tokens(model, cache, text, guess, slice(-guess.shape[1] - 1, None))[0], 0
        said, guessed = (own.tolist(), guess[0].tolist()) if as_lists else (own[None], guess)
        while said[right] == guessed[right] if as_lists else said[0, right] == guessed[0, right]:
            right += 1
        text = torch.cat([text, own[None, : right + 1]], dim=1)
        cache.crop(right - guess.shape[1])
        return text

    return one_round


def joined_by_default(model, cache, text, guess):
    return model(torch.cat([text, guess])[:, cache.get_seq_length() :], cache=cache)


def without_a_cache(model, cache, text, guess):
    own = model(torch.cat([text, guess], dim=1), use_cache=False).logits[:, -guess.shape[1] - 1 :].argmax(-1)
    return torch.cat([text, own[:, : prefix_that_holds(own, guess) + 1]], dim=1)


AS_LONG = (
    "the cache would be as long as the text; it is to be one token behind, so crop to text.shape[1] - 1. The last "
    "token of the text is fed in the next round"
)
ALL_TAKEN = "the guesses were trusted; compare each with what the model says before it"
BONUS = "the model's own token is lost: after the last guess that holds, its choice is known too, and is free"
PAST = (
    "a guess behind a wrong one was accepted: it may agree with the model, but the model saw the wrong word before it. "
    "Stop at the first mismatch"
)
PROMPT_TOO = (
    "the first answer used is that of the first token that was fed: in the first round the prompt stands before the "
    "guesses. Only the last k + 1 places are asked for"
)
ALL_HOLD = "all guesses hold, and the loop looks for one more: stop at guess.shape[1]"
AXIS_LOST = "own[:, right] leaves the axis of the tokens out; own[:, right : right + 1] keeps it"
GUESSING_MISTAKES = [
    Mistake(AS_LONG, with_(crop=lambda cache, text, guess, right: cache.crop(text.shape[1] - cache.get_seq_length()))),
    Mistake(
        AS_LONG,
        with_(crop=lambda cache, text, guess, right: cache.crop(min(0, text.shape[1] - cache.get_seq_length()))),
    ),
    Mistake(
        "crop was given how many tokens to remove; it takes minus that number",
        with_(crop=lambda cache, text, guess, right: cache.crop(guess.shape[1] - right)),
    ),
    Mistake(
        "the places are one late: for k guesses the last k + 1 places of the logits, not the last k. The first of them "
        "is that of the last token of the text",
        places_late,
    ),
    Mistake(
        "the model's own token was taken from the last place; the one to take stands behind the last guess that holds, "
        "own[:, right]",
        added(lambda own, guess, right: [guess[:, :right], own[:, -1:]]),
    ),
    Mistake(
        "the guesses that hold are missing: they belong to the text, in front of the model's own token",
        added(lambda own, guess, right: [own[:, right : right + 1]]),
    ),
    Mistake(PROMPT_TOO, from_the_start(lambda text: 0)),
    Mistake(
        "places were counted in the text; the logits have a place for each token that was fed, so count from the end: "
        "the last k + 1",
        from_the_start(lambda text: text.shape[1] - 1),
    ),
    Mistake(ALL_HOLD, without_a_bound()),
    Mistake(ALL_HOLD, without_a_bound(as_lists=True)),
    Mistake(AXIS_LOST, added(lambda own, guess, right: [guess[:, :right], own[:, right]])),
    Mistake(AXIS_LOST, added(lambda own, guess, right: [own[:, :right], own[0, right]])),
    Mistake(AXIS_LOST, added(lambda own, guess, right: [own[0, right]])),
    Mistake("text and guess are joined along the tokens: torch.cat([text, guess], dim=1)", joined_by_default),
    Mistake("nothing went into the cache: hand it to the model, cache=cache", without_a_cache),
    Mistake(
        "the accepted guesses were cropped; crop the wrong ones, so that the cache is one token behind the text",
        with_(crop=lambda cache, text, guess, right: cache.crop(-right)),
    ),
    Mistake(BONUS, with_(bonus=0)),
    Mistake(BONUS, with_(bonus=0, crop=lambda cache, text, guess, right: cache.crop(right - guess.shape[1]))),
    Mistake(PAST, with_(count=lambda own, guess: int((own[:, :-1] == guess).sum()))),
    Mistake(PAST, past_a_mismatch),
    Mistake(ALL_TAKEN, trusts),
    Mistake(ALL_TAKEN, with_(count=lambda own, guess: guess.shape[1])),
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
    Mistake(
        "the model returns an object; its scores are in .logits",
        lambda model, cache, text, guess: model(text, cache=cache).argmax(-1),
    ),
    Mistake("one forward is enough: feed all guesses at once, then look at each", one_at_a_time),
]
