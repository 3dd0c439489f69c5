"""Task 12b: keys grouped so that big channels spoil small ones, and how to group them instead."""

import torch

from ..quantize import AffineFormat
from .runner import Stopped
from .task import Case, Mistake, Wrong, compare, task
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


FAILS = "what happened with such a length"
DIVIDES = "it only fits when the length divides: treat the tokens that do not fill a group apart, or leave them exact"
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

        try:
            result = run_without(OWN, answer, answer, keys.clone(), size, through)
        except Stopped as stop:
            if stop.kind != "error" or shape[2] % size == 0:
                raise
            seen[FAILS] = Phrase(str(stop))
            return
        if result is None:
            seen["who shares a group"] = None
            return
        said = [sharing(row, shape) for row in groups]
        bad = [words_ for words_ in said if words_ not in fine]
        seen["who shares a group"] = Phrase(bad[0] if bad else f"up to {size} neighbouring tokens of one channel")
        full = sum(sharing(row, shape) == f"{size} tokens" for row in groups)
        seen[f"full groups of {size} tokens"] = Phrase(str(full))
        if not isinstance(result, torch.Tensor) or result.shape != keys.shape:
            seen["what was returned"] = Phrase(words(result))
            return
        seen["numbers that came back to another place"] = int((result - keys).abs().gt(0.1).sum())
        untouched = int((result - keys).abs().lt(1e-6).sum())
        most = shape[0] * shape[1] * shape[3] * (shape[2] % size)
        seen["enough numbers went through"] = untouched <= most

    return Case(f"{what}, groups of {size} tokens", play, lambda label, *_: DIVIDES if label == FAILS else None)


CASES = [
    regrouped("8 tokens, 3 channels", (1, 1, 8, 3), 4),
    regrouped("8 tokens, 6 channels, 2 sequences, 3 heads", (2, 3, 8, 6), 4),
    regrouped("10 tokens, which 4 does not divide", (1, 2, 10, 6), 4),
    regrouped("3 tokens, less than a group", (1, 2, 3, 6), 4),
]


def regroup(keys, size, round_trip, head=lambda x: x.transpose(2, 3), tail=lambda x: x.transpose(2, 3), rest="short"):
    """The right answer: the tokens of a channel side by side, cut into groups; a shorter one at the end."""
    rows = head(keys)
    whole = rows.shape[-1] // size * size
    parts = [round_trip(rows[..., :whole].unflatten(-1, (-1, size))).flatten(-2)] if whole else []
    left = rows[..., whole:]
    if rest == "short" and left.shape[-1]:
        parts.append(round_trip(left))
    if rest == "zeros" and left.shape[-1]:
        padded = torch.nn.functional.pad(left, (0, size - left.shape[-1]))
        parts.append(round_trip(padded)[..., : left.shape[-1]])
    return tail(torch.cat(parts, dim=-1)) if parts else tail(rows[..., :0])


def but(**lines):
    return lambda *given: regroup(*given, **lines)


def plain(keys, size, round_trip):
    return round_trip(keys.reshape(-1, size)).reshape(keys.shape)


def by_tokens_and_channels(keys, size, round_trip):
    rows = keys.flatten(-2)
    return round_trip(rows.unflatten(-1, (-1, size))).reshape(keys.shape)


def heads_mixed(keys, size, round_trip):
    rows = keys.permute(0, 2, 3, 1).reshape(keys.shape[0], -1)
    back = round_trip(rows.unflatten(-1, (-1, size))).reshape(keys.permute(0, 2, 3, 1).shape)
    return back.permute(0, 3, 1, 2)


def heads_and_tokens(keys, size, round_trip):
    rows = keys.transpose(1, 3)
    return round_trip(rows.reshape(-1, size)).reshape(rows.shape).transpose(1, 3)


def sequence_end_to_end(keys, size, round_trip):
    rows = keys.transpose(2, 3)
    return round_trip(rows.reshape(-1, size)).reshape(rows.shape).transpose(2, 3)


def not_turned_back(keys, size, round_trip):
    return regroup(keys, size, round_trip, tail=lambda x: x.reshape(keys.shape))


def merely_reshaped(keys, size, round_trip):
    rows = keys.reshape(*keys.shape[:2], keys.shape[3], keys.shape[2])
    return regroup(rows.transpose(2, 3), size, round_trip).transpose(2, 3).reshape(keys.shape)


def one_long_group(keys, size, round_trip):
    return round_trip(keys.transpose(2, 3)).transpose(2, 3)


ALONG = "these groups lie along head_dim: big and small channels share a scale, as before. Put the tokens last first"
MIXED = "the reshape mixes heads: bring the tokens last with transpose(2, 3), then cut that axis alone"
MISTAKES = [
    Mistake(ALONG, plain),
    Mistake(ALONG, lambda keys, size, round_trip: round_trip(keys)),
    Mistake(ALONG, by_tokens_and_channels),
    Mistake(MIXED, heads_mixed),
    Mistake(MIXED, heads_and_tokens),
    Mistake(
        "reshape does not turn axes, it only counts on: numbers of different channels come together; transpose(2, 3)",
        merely_reshaped,
    ),
    Mistake("turned, but not turned back: end with transpose(2, 3)", not_turned_back),
    Mistake("turned, but not turned back: end with transpose(2, 3)", but(tail=lambda x: x)),
    Mistake("all tokens of a channel share one group; cut them into groups of `size`", one_long_group),
    Mistake(DIVIDES, sequence_end_to_end),
    Mistake("the tokens that do not fill a group are lost: they have to come back too", but(rest="lost")),
    Mistake(
        "the padding takes part in the range: with zeros in it, a group around 14 gets a wide step. Leave the last "
        "group shorter, or leave its tokens exact",
        but(rest="zeros"),
    ),
    Mistake("nothing went through round_trip", lambda keys, size, round_trip: keys),
    Mistake(
        "every number was a group of its own: nothing is saved, each needs a scale",
        lambda keys, size, round_trip: round_trip(keys.unsqueeze(-1)).squeeze(-1),
    ),
]


def mean_error(keys, back):
    """Mean error in percent of the mean size of a key."""
    return 100 * ((back - keys).abs().mean() / keys.abs().mean()).item()


@task("12b", "the cause you name, then who shares a group in regroup, for lengths that divide and that do not")
def task_12b(cause, function):
    """`cause`: one of SUSPECTS. `function(keys, size, round_trip)` -> keys that went through round_trip by groups."""
    if cause not in SUSPECTS:
        raise Wrong(tested="the cause", came=words(cause), likely=f"choose one of: {', '.join(SUSPECTS)}")
    if cause != RIGHT:
        raise Wrong(
            tested="the cause",
            expected="the reason why the small channels come back badly",
            came=cause,
            likely=SUSPECTS[cause],
        )
    compare(function, regroup, CASES, MISTAKES)
    keys = big_keys()
    wasted = mean_error(keys, four_bits(keys.reshape(-1, 16)).reshape(keys.shape))
    error = mean_error(keys, run_without(OWN, function, function, keys, 32, four_bits))
    return {
        "groups": "neighbouring tokens of one channel, whatever the length",
        "error": f"4 bits, two big channels: {wasted:.0f} % of a key's mean size before, {error:.0f} % now",
    }
