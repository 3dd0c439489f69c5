"""Task 07b: going on from a prefix whose last token may be another one in the whole prompt."""

import functools

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ..containers import DynamicCache
from ..models.tiny import tiny_config
from .ids_06 import shared
from .playing import states
from .positions import where
from .reserved import reserved
from .runner import run
from .task import Case, Mistake, Wrong, compare, task
from .words import Phrase, words

RULES = "You are a helpful assistant."
TEXTS = [
    ("rules that end in a space", f"{RULES} ", f"{RULES} Tokyo is the capital of"),
    ("rules that end without one", RULES, f"{RULES} Tokyo is the capital of"),
    ("a number that goes on behind the seam", "It is 3.", "It is 3.14 and not less"),
    ("a prompt that is the rules and nothing else", RULES, RULES),
    ("rules that were edited at their third word", RULES, "You are no helpful assistant. Tokyo is"),
]


@functools.cache
def words_and_spaces():
    """A tokenizer of whole words, each with the space before it, as many have: so its cuts depend on what follows."""
    cut = pre_tokenizers.Split(Regex(r" ?\d+\.\d+| ?\w+|\s|[^\w\s]"), "isolated")
    pieces = {
        piece for _, rules, prompt in TEXTS for text in (rules, prompt) for piece, _ in cut.pre_tokenize_str(text)
    }
    vocabulary = {piece: number for number, piece in enumerate(sorted(pieces | {" and", "?"}), 5)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = cut
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?", clean_up_tokenization_spaces=False)


def spelled(ids):
    """Ids as one string, with a bar between tokens."""
    names = words_and_spaces().convert_ids_to_tokens(ids)
    return "|".join("?" if name is None else name for name in names)


def going_on(what, rules, prompt):
    """A case: a cache that holds the rules, and a prompt to go on with."""

    named = f"{what}: rules {rules!r}, prompt {prompt!r}"

    def play(answer, seen):
        tokenizer = words_and_spaces()
        held = tokenizer(rules).input_ids
        cache, given = DynamicCache(config=tiny_config()), states(1, 2, len(held), 4)
        for layer in range(2):
            cache.update(*(part.clone() for part in given), layer)
        both = run(answer, answer, tokenizer, cache, rules, prompt)
        if not isinstance(both, (list, tuple)) or len(both) != 2:
            pair = "two things: the ids to feed, and how many tokens were saved"
            missing = "nothing was returned: is the `return` missing?"
            likely = (
                missing if both is None else "return both, with a comma between them: the ids first, then the number"
            )
            raise Wrong(tested=named, expected=pair, came=words(both), likely=likely)
        keys = cache.layers[0].keys
        places = [] if keys is None else where(keys, given[0])
        seen["tokens that the cache holds"] = (
            spelled([held[place] for place in places]) if isinstance(places, list) and "?" not in places else "others"
        )
        seen["tokens to feed"] = _fed(both)
        seen["tokens saved"] = both[1]

    return Case(named, play, explain_the_feed)


SWAPPED = Phrase("a number; the ids came second")
SIDEWAYS = Phrase("no ids: the tensor has none along its first axis")


def _fed(both):
    """The ids to feed, spelled; what came in their place, in words."""
    feed, count = both
    if isinstance(count, (list, torch.Tensor)) and not isinstance(feed, list) and getattr(feed, "ndim", 0) == 0:
        return SWAPPED
    if isinstance(feed, torch.Tensor) and feed.ndim == 2 and not len(feed):
        return SIDEWAYS
    feed = feed.reshape(-1).tolist() if isinstance(feed, torch.Tensor) else feed
    fits = isinstance(feed, list) and all(isinstance(token, int) for token in feed)
    return spelled(feed) if fits else Phrase(words(feed))


def explain_the_feed(label, expected, came):
    if label == "tokens to feed" and came == SWAPPED:
        return "the ids come first, then the number of tokens saved"
    if label == "tokens to feed" and came == SIDEWAYS:
        return "a tensor (1, tokens) was cut along its first axis: `ids[:, saved:]`, or take the list of ids"
    return None


GOING_ON = [going_on(*texts) for texts in TEXTS]


def go_on(tokenizer, cache, rules, prompt, keep=lambda held, ids: min(shared(held, ids), len(ids) - 1), saved=None):
    """The right answer; `keep` and `saved` are where it goes wrong."""
    held, ids = tokenizer(rules).input_ids, tokenizer(prompt).input_ids
    kept = keep(held, ids)
    cache.crop(kept - len(held))
    return ids[kept:], saved(held, ids) if saved else kept


def keeping(**lines):
    return functools.partial(go_on, **lines)


def cropping(tokens):
    """The right ids and number, and another argument to `crop`: `tokens(kept, held, ids)`."""

    def go_on(tokenizer, cache, rules, prompt):
        held, ids = tokenizer(rules).input_ids, tokenizer(prompt).input_ids
        kept = min(shared(held, ids), len(ids) - 1)
        cache.crop(tokens(kept, held, ids))
        return ids[kept:], kept

    return go_on


def first_axis(tokenizer, cache, rules, prompt):
    held, ids = (tokenizer(text, return_tensors="pt").input_ids for text in (rules, prompt))
    kept = min(shared(held[0].tolist(), ids[0].tolist()), len(ids) - 1)
    cache.crop(kept - len(held))
    return ids[kept:], kept


def request_alone(tokenizer, cache, rules, prompt):
    return tokenizer(prompt.removeprefix(rules)).input_ids, cache.get_seq_length()


def request_by_length(tokenizer, cache, rules, prompt):
    return tokenizer(prompt[len(rules) :]).input_ids, len(tokenizer(rules).input_ids)


def by_length(tokenizer, cache, rules, prompt):
    length = cache.get_seq_length()
    return tokenizer(prompt).input_ids[length:], length


def never_crops(tokenizer, cache, rules, prompt):
    held, ids = tokenizer(rules).input_ids, tokenizer(prompt).input_ids
    kept = min(shared(held, ids), len(ids) - 1)
    return ids[kept:], kept


def feeds_all(tokenizer, cache, rules, prompt):
    _, kept = go_on(tokenizer, cache, rules, prompt)
    return tokenizer(prompt).input_ids, kept


ALONE = "the request was cut into tokens by itself; cut the whole prompt, and compare its ids with those of the rules"
SEAM_MISTAKES = [
    Mistake(ALONE, request_alone),
    Mistake(ALONE, request_by_length),
    Mistake(
        "one token was cropped whatever the prompt is: sometimes none has to go, sometimes more. Compare the ids",
        keeping(keep=lambda held, ids: len(held) - 1),
    ),
    Mistake(
        "one token too many was cropped; all that is equal may stay, as long as something is left to feed",
        keeping(keep=lambda held, ids: max(min(shared(held, ids), len(ids)) - 1, 0)),
    ),
    Mistake(
        "nothing is left to feed: keep one token less, because only a token that is fed gives a next word",
        keeping(keep=shared),
    ),
    Mistake(
        "the ids were cut by a length, and what the cache holds is not what the prompt begins with. Compare the ids",
        by_length,
    ),
    Mistake(
        "`crop` takes minus the number of tokens to remove, not the number to keep: saved - len(held)",
        cropping(lambda kept, held, ids: kept),
    ),
    Mistake(
        "`crop` takes minus the number of tokens to remove: those that the cache holds without those that stay",
        cropping(lambda kept, held, ids: -kept),
    ),
    Mistake(
        "more was cropped than has to go: the cache holds the ids of the rules, so count from their number, len(held)",
        cropping(lambda kept, held, ids: kept - len(ids)),
    ),
    Mistake(
        "`len` of a tensor (1, tokens) is 1, so nothing could be saved: take shape[1], or the list of ids", first_axis
    ),
    Mistake("the right ids to feed, but the cache still holds other ones: crop it", never_crops),
    Mistake("everything was thrown away; the common prefix is still right", keeping(keep=lambda held, ids: 0)),
    Mistake("ids to feed were named that the cache has kept; they would be read twice", feeds_all),
    Mistake(
        "saved are the tokens that stayed in the cache, not all that it held before",
        keeping(saved=lambda held, ids: len(held)),
    ),
    Mistake(
        "saved are the tokens that stayed in the cache; the others are fed",
        keeping(saved=lambda held, ids: len(ids) - min(shared(held, ids), len(ids) - 1)),
    ),
]


@task("07b", "go_on at four seams and after an edit: what stays in the cache, what is to be fed, what was saved")
def task_07b(function):
    """`function(tokenizer, cache, rules, prompt)` -> (ids to feed, number of tokens saved)."""
    with reserved(continue_from="prefix", Chat="chat"):
        compare(function, go_on, GOING_ON, SEAM_MISTAKES)
    return {
        "fed": "cache and feed together are the whole prompt, in all five cases",
        "saved": "6 + 6 + 2 + 5 + 2 tokens",
    }
