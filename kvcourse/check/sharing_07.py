"""Task 07a: one filled cache, several questions."""

import copy
import functools

import torch

from ..containers import DynamicCache
from ..generate import greedy
from ..measure import count_positions
from .playing import some_ids, tiny
from .runner import run
from .task import Case, Mistake, compare, task
from .words import Phrase, words

PREFIX, NEW = 12, 4
ENDS = {"short": (40, 41), "middle": (60, 33, 71, 20, 90, 24, 35, 77, 15), "long": (*range(41, 56), 30)}


@functools.cache
def model():
    return tiny()


def filled():
    """A cache that has read the prefix."""
    cache = DynamicCache(config=model().config)
    model()(some_ids(model(), 1, PREFIX), cache=cache)
    return cache


def prompt(name):
    return torch.cat([some_ids(model(), 1, PREFIX), torch.tensor([ENDS[name]])], dim=1)


def asking(what, *names):
    """A case: continue the prompts of these names, in this order, from one prefix."""

    def play(answer, seen):
        prefix, prompts = filled(), [prompt(name) for name in names]
        keys = [layer.keys.clone() for layer in prefix.layers]
        with count_positions(model()) as counted:
            texts = run(answer, answer, model(), prefix, prompts, NEW)
        if not isinstance(texts, (list, tuple)):
            seen["texts that came back"] = texts if texts is None else Phrase(f"{words(texts)}, and not a list")
            return
        seen["texts that came back"] = len(texts)
        if len(texts) != len(prompts):
            return
        for name, ids, text in zip(names, prompts, texts, strict=True):
            seen[f"new tokens behind the {name} prompt"] = _new_tokens(text, ids)
        seen["tokens in the prefix afterwards"] = prefix.get_seq_length()
        seen["its keys are what they were"] = all(map(_same, keys, prefix.layers))
        needed = sum(ids.shape[1] - PREFIX + NEW - 1 for ids in prompts)
        only = sum(counted) <= needed
        seen["positions that were read"] = Phrase(
            "only what is new" if only else f"{sum(counted)}, and {needed} are new"
        )

    return Case(what, play, explain_texts)


def explain_texts(label, expected, came):
    """Where the form of what came gives the mistake away."""
    if label == "texts that came back":
        if isinstance(came, Phrase):
            return "return a list with a text for each prompt"
        if came is not None and came < expected:
            return "is the `return` inside the loop?" if came == 1 else "append the text of each prompt to the list"
    if label.startswith("new tokens") and isinstance(came, Phrase):
        if came == NO_IDS:
            return "return the ids as `kv.greedy` gives them, not decoded"
        if came.startswith("a tensor"):
            return "each text is a tensor (1, tokens): keep the first axis"
    return None


NO_IDS = Phrase("a string, not a tensor of ids")


def _new_tokens(text, ids):
    if isinstance(text, str):
        return NO_IDS
    if not isinstance(text, torch.Tensor) or text.ndim != 2:
        return text if text is None else Phrase(words(text))
    if text.shape[1] < ids.shape[1] or not text[:, : ids.shape[1]].equal(ids):
        return Phrase(f"ids of {text.shape[1]} tokens that do not begin with its prompt")
    return text[0, ids.shape[1] :].tolist()


def _same(keys, layer):
    return layer.keys is not None and layer.keys.shape == keys.shape and bool(layer.keys.equal(keys))


ASKING = [
    asking("three prompts, each longer than the one before", "short", "middle", "long"),
    asking("the same three in another order", "long", "short", "middle"),
    asking("the same prompt twice", "middle", "middle"),
]


def continue_all(model, prefix, prompts, new, copied=copy.deepcopy):
    """The right answer; `copied` is where it goes wrong."""
    return [greedy(model, ids, new, copied(prefix)) for ids in prompts]


def one_copy(model, prefix, prompts, new):
    mine = copy.deepcopy(prefix)
    return [greedy(model, ids, new, mine) for ids in prompts]


def copies_after_the_first(model, prefix, prompts, new):
    first = greedy(model, prompts[0], new, prefix)
    return [first, *(greedy(model, ids, new, copy.deepcopy(prefix)) for ids in prompts[1:])]


def copies_too_late(model, prefix, prompts, new):
    texts = []
    for ids in prompts:
        texts.append(greedy(model, ids, new, prefix))
        prefix = copy.deepcopy(prefix)
    return texts


def from_nothing(model, prefix, prompts, new):
    return [greedy(model, ids, new, DynamicCache(config=model.config)) for ids in prompts]


def without_cache(model, prefix, prompts, new):
    return [greedy(model, ids, new) for ids in prompts]


def ends_alone(model, prefix, prompts, new):
    return [greedy(model, ids[:, prefix.get_seq_length() :], new, copy.deepcopy(prefix)) for ids in prompts]


def forgets_the_prefix(model, prefix, prompts, new):
    texts = continue_all(model, prefix, prompts, new)
    prefix.reset()
    return texts


def new_alone(model, prefix, prompts, new):
    texts = continue_all(model, prefix, prompts, new)
    return [text[:, ids.shape[1] :] for text, ids in zip(texts, prompts, strict=True)]


AGAIN = "right answers, but the prefix was read again for each of them: go on from a copy of the filled cache"
SHARING_MISTAKES = [
    Mistake(
        "the second question met what the first had left in the prefix: no copy was made, or a shallow one "
        "(copy.copy), whose layers are those of the original. Take copy.deepcopy for each question",
        lambda *given: continue_all(*given, copied=lambda prefix: prefix),
    ),
    Mistake(
        "the prefix was copied after the first answer, when that answer stood in it already; copy before each",
        copies_after_the_first,
    ),
    Mistake(
        "the prefix was copied after the first answer, when that answer stood in it already; copy before each",
        copies_too_late,
    ),
    Mistake("one copy served all questions; each needs a copy of its own", one_copy),
    Mistake(AGAIN, from_nothing),
    Mistake(AGAIN, without_cache),
    Mistake("hand over the whole prompt: kv.greedy cuts off what the cache holds", ends_alone),
    Mistake("the prefix is empty afterwards, and the next reader needs it; leave it as it was", forgets_the_prefix),
    Mistake("only the new tokens came back; return the whole texts", new_alone),
]


@task("07a", "one prefix and three prompts in several orders: the texts, the prefix afterwards, the positions read")
def task_07a(function):
    """`function(model, prefix, prompts, new)` -> one text for each prompt, a list of tensors (1, tokens + new)."""
    with torch.no_grad():
        compare(function, continue_all, ASKING, SHARING_MISTAKES)
    return {"texts": "as from an empty cache, in any order", "prefix": "as it was, and read once"}
