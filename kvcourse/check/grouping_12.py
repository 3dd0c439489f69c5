"""Task 12b: keys grouped so that big channels spoil small ones, and how to group them instead."""

import torch

from ..quantize import AffineFormat
from .grouping_mistakes import DIVIDES, MISTAKES, regroup
from .runner import Stopped
from .task import Case, Unfinished, Wrong, compare, task
from .withheld import run_without
from .words import Phrase, words

OWN = [(AffineFormat, "quantize"), (AffineFormat, "dequantize")]
RIGHT = "big and small channels share a scale"
SUSPECTS = {  # what one may suspect -> what speaks against it
    "the big channels are cut off": "look at the big channels: they come back well, and it is the others that suffer",
    "heads share a scale": "a row of reshape(-1, size) with size = head_dim is one token of one head",
    "four bits are too few for keys": "the same 4 bits will do; first look who shares a scale with whom",
    RIGHT: "",
}


def big_keys(tokens=130, heads=2, head_dim=16):
    """Keys (1, heads, tokens, head_dim) in which two channels of each head are far larger than the others."""
    dice = torch.Generator().manual_seed(7)
    keys = torch.randn(1, heads, tokens, head_dim, generator=dice)
    keys[..., 3] += 14
    keys[..., 11] -= 11
    return keys


def four_bits(groups):
    """Quantize to 4 bits and restore; the last axis holds the numbers of one group."""
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    step = ((high - low) / 15).clamp(min=1e-9)
    return ((groups - low) / step).round() * step + low


def numbered(batch, heads, tokens, head_dim):
    """Keys in which every number is different: 1, 2, 3, ..."""
    return torch.arange(1.0, 1 + batch * heads * tokens * head_dim).view(batch, heads, tokens, head_dim)


WRITTEN = "numbers of `keys` that were written over"
SHAPE = "what was returned"
NAMES = ("sequence", "head", "token", "channel")


def sharing(row, shape):
    """Who shares this group, in words: "4 tokens", "2 heads and 4 channels", or what else it is."""
    places = row.long() - 1
    if row.ne(row.round()).any() or (places < 0).any() or (places >= torch.Size(shape).numel()).any():
        return "keys and padding that is no key"
    axes = [axis.unique() for axis in torch.unravel_index(places, shape)]
    counted = [f"{len(axis)} {name}s" for axis, name in zip(axes, NAMES, strict=True) if len(axis) > 1]
    tokens = axes[2]
    if len(tokens) > 1 and int(tokens[-1] - tokens[0]) >= len(tokens):
        return f"{len(tokens)} tokens that are not neighbours"
    return " and ".join(counted) or "one number"


def regrouped(what, shape, size):
    """A case: who shares a group, and whether each number comes back to its place."""
    fine = {"one number", *(f"{count} tokens" for count in range(2, size + 1))}

    def play(answer, seen):
        keys, groups = numbered(*shape), []

        def through(given):
            groups.extend(row.clone() for row in given.reshape(-1, given.shape[-1]) if given.numel())
            return given + 1 / 64

        given = keys.clone()
        try:
            result = run_without(OWN, answer, answer, given, size, through)
        except Stopped as stop:
            if stop.kind != "error" or shape[2] % size == 0:
                raise
            seen["who shares a group"] = Phrase(str(stop))
            return
        if result is None:
            seen["who shares a group"] = None
            return
        said = [sharing(row, shape) for row in groups]
        bad = [words_ for words_ in said if words_ not in fine]
        seen["who shares a group"] = Phrase(bad[0] if bad else f"up to {size} neighbouring tokens of one channel")
        full = sum(sharing(row, shape) == f"{size} tokens" for row in groups)
        none = shape[2] >= size and not full
        largest = max((len(row) for row in groups), default=0)
        seen[f"full groups of {size} tokens"] = Phrase(f"none, the largest has {largest}" if none else str(full))
        seen[WRITTEN] = int((given != keys).sum())
        seen[SHAPE] = Phrase(words(result))
        if not isinstance(result, torch.Tensor) or result.shape != keys.shape:
            return
        seen["numbers that are not back in their place"] = int((result - keys).abs().gt(0.1).sum())
        untouched = int((result - keys).abs().lt(1e-6).sum())
        most = shape[0] * shape[1] * shape[3] * (shape[2] % size)
        seen["enough numbers went through"] = untouched <= most

    return Case(f"{what}, groups of {size} tokens", play, explain)


def explain(label, expected, came):
    if label == "who shares a group" and str(came).startswith("line "):
        return DIVIDES
    if label == WRITTEN:
        return "your function wrote over the caller's keys: put the results into new tensors, or into keys.clone()"
    if label == SHAPE and str(came).startswith("a list"):
        return "the pieces are still apart: torch.cat(pieces, dim=-1), then turn back"
    return None


CASES = [
    regrouped("8 tokens, 3 channels", (1, 1, 8, 3), 4),
    regrouped("8 tokens, 6 channels, 2 sequences, 3 heads", (2, 3, 8, 6), 4),
    regrouped("10 tokens, which 4 does not divide", (1, 2, 10, 6), 4),
    regrouped("3 tokens, less than a group", (1, 2, 3, 6), 4),
]


def _loose(cause):
    """Without capitals, blanks around it and a full stop; a list or set of one text is that text."""
    if isinstance(cause, (list, tuple, set)) and len(cause) == 1:
        (cause,) = cause
    return str(cause).strip(" .").casefold()


def mean_error(keys, back):
    """Mean error in percent of the mean size of a key."""
    return 100 * ((back - keys).abs().mean() / keys.abs().mean()).item()


@task("12b", "the cause you name, then who shares a group in regroup, for lengths that divide and that do not")
def task_12b(cause, function):
    """`cause`: one of SUSPECTS. `function(keys, size, round_trip)` -> keys that went through round_trip by groups."""
    named = {_loose(suspect): suspect for suspect in SUSPECTS}.get(_loose(cause))
    if named is None:
        one_of = "; ".join(SUSPECTS)
        raise Wrong(tested="the cause", came=words(cause), likely=f"one of the suspects, as a text: {one_of}")
    if named != RIGHT:
        raise Wrong(
            tested="the cause",
            expected="the reason why the small channels come back badly",
            came=named,
            likely=SUSPECTS[named],
        )
    try:
        compare(function, regroup, CASES, MISTAKES)
    except Stopped as stop:
        if stop.kind != "unfinished":
            raise
        raise Unfinished(
            f"the cause is right; write `regroup` in place of NotImplementedError ({stop.where})"
        ) from None
    keys = big_keys()
    wasted = mean_error(keys, four_bits(keys.reshape(-1, 16)).reshape(keys.shape))
    error = mean_error(keys, run_without(OWN, function, function, keys.clone(), 32, four_bits))
    return {
        "groups": "neighbouring tokens of one channel, whatever the length",
        "error": f"4 bits, two big channels: {wasted:.0f} % of a key's mean size before, {error:.0f} % now",
    }
