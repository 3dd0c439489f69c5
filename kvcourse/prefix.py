"""Going on from what a cache already holds: compare token ids, keep what is equal, feed the rest.

A cache holds keys and values, no words. So it can't know whether the next text begins as the last one did, and a wrong
guess gives a plausible wrong answer. Only token ids tell: a text that looks the same may be cut into other tokens.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch


def common_prefix(a, b):
    """How many leading token ids two texts share.

    `a`, `b`: ids of one text each, a list of ints, a tensor (tokens,) or (1, tokens). ValueError for anything else:
    text, for example, because equal beginnings of text need not be equal tokens.
    """
    a, b = as_ids(a)[0].cpu(), as_ids(b)[0].cpu()
    shorter = min(len(a), len(b))
    differ = (a[:shorter] != b[:shorter]).nonzero()
    return int(differ[0]) if len(differ) else shorter


@dataclass(frozen=True)
class Continuation:
    """How to go on: `cache` holds the first `saved` tokens of `ids`, and `feed` is what the model has to read."""

    cache: object
    ids: torch.Tensor  # (1, tokens): the whole text
    saved: int  # tokens that need not be computed: the cache holds them
    rolled_back: int  # tokens that the cache held before, and that this text cannot use
    note: str = ""  # where the cache could not roll back: why, and what was done instead

    @property
    def feed(self):
        """The ids that are new to the cache, (1, fed), for `model(feed, cache=cache)`. Never empty."""
        return self.ids[:, self.saved :]

    @property
    def recomputed(self):
        """How many of the fed positions the cache had held before."""
        return min(self.rolled_back, self.feed.shape[1])

    @property
    def inputs(self):
        """What `model.generate(**inputs)` needs with a filled cache: the whole text and a mask for all of it.

        With a cache of states alone only what is new, as nobody can ask such a cache how much it has read; what
        `generate` returns then begins there, too.
        """
        ids = self.feed if states_alone(self.cache) else self.ids
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "cache": self.cache}

    def __repr__(self):
        line = f"{self.ids.shape[1]:,} tokens: {self.saved:,} from the cache, {self.feed.shape[1]:,} to feed"
        again = f", {self.recomputed:,} of them again" if self.recomputed else ""
        return line + again + (f" ({self.note})" if self.note else "")


def continue_from(cache, held_ids, new_ids, safe=None):
    """Make `cache`, filled with one text, ready to go on with another. Returns a `Continuation`.

    `held_ids`: the text that the cache has read; ids behind its length, such as a last generated token that was never
    fed, are ignored. `new_ids`: the whole text to go on with. Both as in `common_prefix`, without padding. A cache of
    states alone (Mamba) has no length: there `held_ids` must be what it has read and no more, so leave out the last
    token that `generate` returned.

    The cache is cropped to the longest common prefix, less if nothing would be left to feed. A window that has dropped
    tokens and a recurrent state can't go back: then the text starts again from a copy of `safe`, (cache, ids) put aside
    earlier with `copy.deepcopy`, and without one from the same cache, emptied. `note` says so. ValueError, with nothing
    changed, for ids that can't be compared or do not belong to the cache.
    """
    held, new = as_ids(held_ids), as_ids(new_ids)
    length = _length(cache, held, new)
    saved = min(common_prefix(held[:, :length], new), new.shape[1] - 1)
    try:
        if saved < length:
            cache.crop(saved - length)
        return Continuation(cache, new, saved, length - saved)
    except RuntimeError as error:
        reason = str(error).split(". ")[0]
    if safe is None:
        cache.reset()
        return Continuation(cache, new, 0, length, f"{reason}; started again from an empty cache")
    start = continue_from(copy.deepcopy(safe[0]), safe[1], new)
    note = f"{reason}; started again from the safe copy" + (f", which {start.note}" if start.note else "")
    return Continuation(start.cache, new, start.saved, max(length - start.saved, 0), note)


def states_alone(cache):
    """Whether no layer of a cache counts tokens, as in Mamba models."""
    return bool(len(cache)) and all(cache.is_linear)


def as_ids(ids):
    """The token ids of one text as a tensor (1, tokens). ValueError says what else was given and what to do."""
    if isinstance(ids, str) or (isinstance(ids, (list, tuple)) and ids and isinstance(ids[0], str)):
        raise ValueError(
            "token ids are compared, not text: a tokenizer may cut the same words into other tokens when more text "
            "follows. Give tokenizer(text).input_ids"
        )
    if isinstance(ids, Mapping):
        raise ValueError("give the token ids alone: inputs['input_ids']")
    found = torch.as_tensor(ids)
    if found.ndim not in (1, 2) or (found.numel() and (found.is_floating_point() or found.dtype == torch.bool)):
        raise ValueError(f"token ids are whole numbers, (tokens,) or (1, tokens); got {found.dtype} {found.shape}")
    if found.ndim == 2 and found.shape[0] != 1:
        raise ValueError(
            f"one text at a time; got {found.shape[0]}. For beams or several answers go on with one row, then call "
            f"batch_repeat_interleave({found.shape[0]}) on the cache"
        )
    return found.long().reshape(1, -1)


def _length(cache, held, new):
    """Tokens that the cache holds, once it is sure that held and new ids can belong to it."""
    if not new.shape[1]:
        raise ValueError("new_ids is empty: a model needs at least one token to read")
    if cache.batch_size > 1:
        raise ValueError(
            f"the cache holds a batch of {cache.batch_size}; keep one row first, as with batch_select_indices([0])"
        )
    if states_alone(cache):
        return held.shape[1]  # take the caller's word
    length = cache.get_seq_length()
    if length > held.shape[1]:
        raise ValueError(
            f"the cache has read {length:,} tokens and held_ids has {held.shape[1]:,}: give all that it has read, "
            "prompt and answer"
        )
    return length
