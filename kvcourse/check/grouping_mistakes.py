"""The right answer to task 12b, and the wrong ones that people give."""

import torch

from .task import Mistake

DIVIDES = "it only fits when the length divides: treat the tokens that do not fill a group apart, or leave them exact"


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
    if rest == "zeroed" and left.shape[-1]:
        parts.append(torch.zeros_like(left))
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


def cut(pieces, head=lambda x: x.transpose(2, 3), tail=lambda x: x.transpose(2, 3), dim=-1):
    """Answers that cut otherwise: `pieces(columns, size)`, joined along `dim`."""

    def answer(keys, size, round_trip):
        parts = [round_trip(piece) for piece in pieces(head(keys), size)]
        return tail(torch.cat(parts, dim=dim))

    return answer


def every_few(keys, size, round_trip):
    """Groups of tokens that lie apart: each has every so-many-th one."""
    result, whole = keys.clone(), keys.shape[2] // size * size
    for start in range(whole // size):
        apart = slice(start, whole, whole // size)
        result[:, :, apart] = round_trip(keys[:, :, apart].transpose(2, 3)).transpose(2, 3)
    return result


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
    Mistake(
        "the tokens that do not fill a group came back as zeros: let them through as a shorter group, or leave them as "
        "they are",
        but(rest="zeroed"),
    ),
    Mistake(
        "the groups are smaller than `size` tokens: split(size) makes pieces of that size, chunk(size) makes that many",
        cut(lambda columns, size: columns.chunk(size, dim=-1)),
    ),
    Mistake(
        "the groups are smaller than `size` tokens",
        cut(lambda columns, size: columns.split(size // 2, dim=-1)),
    ),
    Mistake(
        "other axes were turned back than were turned: transpose(2, 3) a second time",
        but(tail=lambda x: x.transpose(1, 2)),
    ),
    Mistake(
        "other axes were turned back than were turned: transpose(2, 3) a second time",
        but(tail=lambda x: x.transpose(1, 3)),
    ),
    Mistake("the tokens of a group lie apart; a group holds neighbours, `size` of them in a row", every_few),
    Mistake(
        "a group holds the heads of one token, and no two tokens: bring the tokens last with transpose(2, 3)",
        lambda keys, size, round_trip: round_trip(keys.permute(0, 2, 3, 1)).permute(0, 3, 1, 2),
    ),
    Mistake("nothing went through round_trip", lambda keys, size, round_trip: keys),
    Mistake(
        "every number was a group of its own: nothing is saved, each needs a scale",
        lambda keys, size, round_trip: round_trip(keys.unsqueeze(-1)).squeeze(-1),
    ),
]
