"""Task 06c: a cache whose text the chat template has changed."""

import torch

from ..containers import DynamicCache
from ..models.tiny import tiny_config
from .ids_06 import shared
from .playing import states
from .positions import where
from .reserved import reserved
from .runner import run
from .task import Case, Mistake, compare, task
from .words import Phrase, words


def repairing(what, held, new):
    """A case: a cache has read `held`, all but its last token; the text to go on with is `new`."""

    def play(answer, seen):
        cache, given = DynamicCache(config=tiny_config()), states(1, 2, len(held) - 1, 4)
        for layer in range(2):
            cache.update(*(part.clone() for part in given), layer)
        feed = run(answer, answer, cache, list(held), list(new))
        seen["what came back"] = feed if feed is None else Phrase("ids to feed")
        if feed is None:
            return
        for layer in range(2):
            keys = cache.layers[layer].keys
            seen[f"places of the old text that layer {layer} holds"] = [] if keys is None else where(keys, given[0])
        feed = feed.reshape(-1).tolist() if isinstance(feed, torch.Tensor) else feed
        seen["ids to feed"] = feed if isinstance(feed, list) else Phrase(words(feed))

    return Case(what, play)


START, THINKING, ANSWER, QUESTION = [11, 12, 13, 14], [71, 72, 73], [21, 22, 23, 24, 25], [31, 32, 33]
REPAIRS = [
    repairing(
        "the template dropped 3 tokens of thinking in the middle of 12, and added a question",
        START + THINKING + ANSWER,
        START + ANSWER + QUESTION,
    ),
    repairing("the template dropped nothing, and added a question", START + ANSWER, START + ANSWER + QUESTION),
    repairing(
        "the system's message was changed: another first id", START + ANSWER, [19, *START[1:]] + ANSWER + QUESTION
    ),
    repairing("the thinking was the end of the answer", START + ANSWER + THINKING, START + ANSWER + QUESTION),
    repairing(
        "the user takes the end back: the new text is the beginning of the old one", START + ANSWER, START + ANSWER[:2]
    ),
]


def repair(cache, held, new, keep=lambda held, new, length: min(shared(held, new), length, len(new) - 1)):
    """The right answer; `keep` is where it goes wrong."""
    length = cache.get_seq_length()
    kept = keep(held, new, length)
    cache.crop(kept - length)
    return new[kept:]


def keeping(keep):
    return lambda cache, held, new: repair(cache, held, new, keep)


def out_of_the_middle(cache, held, new):
    """Takes the tokens that are gone out of the middle, and keeps what stands behind them."""
    start, gone = shared(held, new), len(set(held) - set(new))
    rest = [
        (layer.keys[:, :, start + gone :].clone(), layer.values[:, :, start + gone :].clone()) for layer in cache.layers
    ]
    cache.crop(start - cache.get_seq_length())
    for layer, behind in enumerate(rest):
        cache.update(*behind, layer)
    return new[cache.get_seq_length() :]


def as_many_at_the_end(cache, held, new):
    cache.crop(-len(set(held) - set(new)))
    return new[cache.get_seq_length() :]


def ignored(cache, held, new):
    return new[cache.get_seq_length() :]


def all_again(cache, held, new):
    cache.reset()
    return new


def crops_and_feeds_all(cache, held, new):
    repair(cache, held, new)
    return new


def feeds_by_the_old_length(cache, held, new):
    length = cache.get_seq_length()
    repair(cache, held, new)
    return new[length:]


def crops_what_stays(cache, held, new):
    kept = shared(held, new)
    cache.crop(-kept)
    return new[kept:]


def feeds_the_old(cache, held, new):
    kept = len(new) - len(repair(cache, held, new))
    return held[kept:]


def never_crops(cache, held, new):
    return new[shared(held, new) :]


def crops_a_positive(cache, held, new):
    kept = min(shared(held, new), len(new) - 1)
    cache.crop(kept - cache.get_seq_length())
    return new[kept:]


def by_the_text(cache, held, new):
    """Counts from the text's length, which is one more than the cache's."""
    kept = min(shared(held, new), len(new) - 1)
    cache.crop(kept - len(held))
    return new[kept:]


BEHIND = (
    "the cache is one token behind its text: the last one was written and never fed, so at most "
    "cache.get_seq_length() tokens can stay"
)
REPAIR_MISTAKES = [
    Mistake(
        "as many tokens were cropped at the end as the template dropped, but it dropped them in the middle: what stood "
        "behind them is wrong too. Crop to the common prefix",
        as_many_at_the_end,
    ),
    Mistake(
        "tokens were taken out of the middle; those behind them have seen them and stand at other positions. Crop to "
        "the common prefix",
        out_of_the_middle,
    ),
    Mistake(
        "the change was ignored: the cache still holds what the text no longer says. Crop to the common prefix", ignored
    ),
    Mistake("everything was thrown away; the common prefix is still right", all_again),
    Mistake(
        "ids to feed were named that the cache has kept; they would be read twice. Feed new[keep:]", crops_and_feeds_all
    ),
    Mistake("cut the new text where the cache ends after the crop, not where it ended before", feeds_by_the_old_length),
    Mistake("these are ids of the old text; feed those of the new one, new[keep:]", feeds_the_old),
    Mistake(
        "crop takes minus the number of tokens to remove; how many stay was given, without a minus",
        lambda cache, held, new: cache.crop(min(shared(held, new), cache.get_seq_length(), len(new) - 1)),
    ),
    Mistake("crop takes minus the number of tokens to remove; the number that stay was given", crops_what_stays),
    Mistake("the right ids to feed, but the cache still holds what the text no longer says: crop it", never_crops),
    Mistake(BEHIND, crops_a_positive),
    Mistake(BEHIND, by_the_text),
    Mistake(BEHIND, keeping(lambda held, new, length: min(shared(held, new), len(new) - 1, len(held)))),
    Mistake(
        "nothing is left to feed: keep one token less, because only a token that is fed gives a next word",
        keeping(lambda held, new, length: min(shared(held, new), length)),
    ),
    Mistake(
        "one token less was kept than could stay",
        keeping(lambda held, new, length: max(shared(held[:length], new) - 1, 0)),
    ),
]


@task("06c", "repair on a cache of two layers: what stays in it, and what is to be fed")
def task_06c(function):
    """`function(cache, held, new)`: crops the cache, returns the ids to feed, a list."""
    with reserved(continue_from="prefix", Chat="chat"):
        compare(function, repair, REPAIRS, REPAIR_MISTAKES)
    return {
        "kept": "the longest common prefix, in all five cases",
        "fed": "the rest of the new text, and never nothing",
    }
