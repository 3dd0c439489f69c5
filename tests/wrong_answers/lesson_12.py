"""Lesson 12: a layer with a residual, groups of keys, bytes to the last one."""

from math import ceil

import torch

from kvcourse.layers.quantized import QuantizedLayer
from kvcourse.quantize import PER_TOKEN, HalfQuadratic

# 12a


class Parts:
    """A class as in the notebook; subclasses have their own `append`."""

    def __init__(self, format, residual):
        self.format, self.residual = format, residual
        self.blocks, self.exact = {"keys": [], "values": []}, {}

    def update(self, keys, values):
        return self.append("keys", keys), self.append("values", values)

    def read(self, part, dtype):
        return [self.format.dequantize(block, dtype) for block in self.blocks[part]]

    def together(self, part, new):
        return torch.cat([self.exact[part], new], 2) if part in self.exact else new.clone()


class Right(Parts):
    def append(self, part, new):
        everything = torch.cat([*self.read(part, new.dtype), exact := self.together(part, new)], dim=2)
        leaving = exact.shape[2] - self.residual
        if leaving > 0:
            self.blocks[part].append(self.format.quantize(exact[:, :, :leaving]))
            exact = exact[:, :, leaving:]
        self.exact[part] = exact.clone()
        return everything


class TokenByToken(Parts):
    """Right: each token is a block of its own."""

    def append(self, part, new):
        everything = torch.cat([*self.read(part, new.dtype), exact := self.together(part, new)], dim=2)
        while exact.shape[2] > self.residual:
            self.blocks[part].append(self.format.quantize(exact[:, :, :1]))
            exact = exact[:, :, 1:]
        self.exact[part] = exact.clone()
        return everything


class QuantizesAllAgain(Parts):
    def append(self, part, new):
        everything = torch.cat([*self.read(part, new.dtype), self.together(part, new)], dim=2)
        leaving = max(everything.shape[2] - self.residual, 0)
        self.blocks[part] = [self.format.quantize(everything[:, :, :leaving])] if leaving else []
        self.exact[part] = everything[:, :, leaving:].clone()
        return everything


class CountsFromTheEnd(Parts):
    """`[:-0]` is empty."""

    def append(self, part, new):
        old, exact = self.read(part, new.dtype), self.together(part, new)
        if exact.shape[2] > self.residual:
            self.blocks[part].append(self.format.quantize(exact[:, :, : -self.residual]))
        self.exact[part] = exact[:, :, -self.residual :].clone()
        return torch.cat([*old, exact], dim=2)


class CountsFromBothEnds(Parts):
    """`[-0:]` is everything."""

    def append(self, part, new):
        old, exact = self.read(part, new.dtype), self.together(part, new)
        surplus = max(exact.shape[2] - self.residual, 0)
        if surplus:
            self.blocks[part].append(self.format.quantize(exact[:, :, :surplus]))
        self.exact[part] = exact[:, :, -self.residual :].clone()
        return torch.cat([*old, exact], dim=2)


class QuantizesEmptyBlocks(Parts):
    """Counts from the end, and asks for no `if`."""

    def append(self, part, new):
        old, exact = self.read(part, new.dtype), self.together(part, new)
        self.blocks[part].append(self.format.quantize(exact[:, :, : -self.residual]))
        self.exact[part] = exact[:, :, -self.residual :].clone()
        return torch.cat([*old, exact], dim=2)


class LosesTheResidual(Right):
    def append(self, part, new):
        old = self.read(part, new.dtype)
        super().append(part, new)
        return torch.cat([*old, new], dim=2)


class ReturnsCodesAlone(Right):
    def append(self, part, new):
        old = self.read(part, new.dtype)
        super().append(part, new)
        return torch.cat(old, dim=2) if old else new[:, :, :0]


class NewestFirst(Right):
    def append(self, part, new):
        old, exact = self.read(part, new.dtype), self.together(part, new)
        super().append(part, new)
        return torch.cat([exact, *old], dim=2)


class NeverReadsBack(Right):
    def append(self, part, new):
        exact = self.together(part, new)
        super().append(part, new)
        return exact


class ReturnsTheNew(Right):
    def append(self, part, new):
        super().append(part, new)
        return new


class NewestIntoCodes(Parts):
    def append(self, part, new):
        everything = torch.cat([*self.read(part, new.dtype), exact := self.together(part, new)], dim=2)
        if exact.shape[2] > self.residual:
            self.blocks[part].append(self.format.quantize(exact[:, :, self.residual :]))
            exact = exact[:, :, : self.residual]
        self.exact[part] = exact.clone()
        return everything


class CodesTooEarly(Right):
    def append(self, part, new):
        super().append(part, new)
        return torch.cat([*self.read(part, new.dtype), self.exact[part]], dim=2)


class NoResidual(Parts):
    def append(self, part, new):
        self.blocks[part].append(self.format.quantize(new))
        return torch.cat(self.read(part, new.dtype), dim=2)


class FlushesAll(Parts):
    def append(self, part, new):
        everything = torch.cat([*self.read(part, new.dtype), exact := self.together(part, new)], dim=2)
        if exact.shape[2] > self.residual:
            self.blocks[part].append(self.format.quantize(exact))
            exact = exact[:, :, :0]
        self.exact[part] = exact.clone()
        return everything


class OneMore(Right):
    def __init__(self, format, residual):
        super().__init__(format, residual + 1)


class OneAtATime(Parts):
    def append(self, part, new):
        everything = torch.cat([*self.read(part, new.dtype), exact := self.together(part, new)], dim=2)
        if exact.shape[2] > self.residual:
            self.blocks[part].append(self.format.quantize(exact[:, :, :1]))
            exact = exact[:, :, 1:]
        self.exact[part] = exact.clone()
        return everything


class NeverQuantizes(Parts):
    def append(self, part, new):
        self.exact[part] = self.together(part, new)
        return self.exact[part]


class KeysAlone(Right):
    def append(self, part, new):
        return super().append(part, new) if part == "keys" else NeverQuantizes.append(self, part, new)


class ForgetsOldBlocks(Right):
    def append(self, part, new):
        everything = super().append(part, new)
        self.blocks[part] = self.blocks[part][-1:]
        return everything


class KeepsBoth(Parts):
    def append(self, part, new):
        everything = torch.cat([*self.read(part, new.dtype), exact := self.together(part, new)], dim=2)
        leaving = exact.shape[2] - self.residual
        if leaving > 0:
            self.blocks[part].append(self.format.quantize(exact[:, :, :leaving]))
        self.exact[part] = exact
        return everything


class KeepsAView(Right):
    def together(self, part, new):
        return torch.cat([self.exact[part], new], 2) if part in self.exact else new

    def append(self, part, new):
        everything = super().append(part, new)
        if new.shape[2] == self.exact[part].shape[2]:
            self.exact[part] = new
        return everything


class MixesUpBlocks(Parts):
    def append(self, part, new):
        everything = torch.cat([*self.read(part, new.dtype), exact := self.together(part, new)], dim=2)
        leaving = max(exact.shape[2] - self.residual, 0)
        if leaving:
            self.blocks["keys"].append(self.format.quantize(exact[:, :, :leaving]))
        self.exact[part] = exact[:, :, leaving:].clone()
        return everything


class MixesUpExact(Parts):
    def append(self, part, new):
        everything = torch.cat([*self.read(part, new.dtype), exact := self.together(part, new)], dim=2)
        leaving = max(exact.shape[2] - self.residual, 0)
        if leaving:
            self.blocks[part].append(self.format.quantize(exact[:, :, :leaving]))
        self.exact["keys"] = exact[:, :, leaving:].clone()
        return everything


class SurplusBelowZero(Parts):
    def append(self, part, new):
        everything = torch.cat([*self.read(part, new.dtype), exact := self.together(part, new)], dim=2)
        leaving = exact.shape[2] - self.residual
        if leaving:
            self.blocks[part].append(self.format.quantize(exact[:, :, :leaving]))
        self.exact[part] = exact[:, :, leaving:].clone()
        return everything


class ReadsFloat32(Right):
    def read(self, part, dtype):
        return super().read(part, torch.float32)


class ReadsBfloat16(Right):
    def read(self, part, dtype):
        return super().read(part, torch.bfloat16)


class FourBitsAlways(Parts):
    def append(self, part, new):
        everything = torch.cat([*self.read(part, new.dtype), exact := self.together(part, new)], dim=2)
        leaving = max(exact.shape[2] - self.residual, 0)
        if leaving:
            self.blocks[part].append(HalfQuadratic(4, PER_TOKEN).quantize(exact[:, :, :leaving]))
        self.exact[part] = exact[:, :, leaving:].clone()
        return everything


class CountsHeads(Parts):
    def append(self, part, new):
        everything = torch.cat([*self.read(part, new.dtype), exact := self.together(part, new)], dim=2)
        leaving = max(exact.shape[1] - self.residual, 0)
        if leaving:
            self.blocks[part].append(self.format.quantize(exact[:, :, :leaving]))
        self.exact[part] = exact[:, :, leaving:].clone()
        return everything


class JoinsHeads(Right):
    def append(self, part, new):
        old, exact = self.read(part, new.dtype), self.together(part, new)
        super().append(part, new)
        return torch.cat([*old, exact], dim=1)


class ListInAList(Right):
    def append(self, part, new):
        old, exact = self.read(part, new.dtype), self.together(part, new)
        super().append(part, new)
        return torch.cat([old, exact], dim=2)


class StoresNumbers(Parts):
    def read(self, part, dtype):
        return self.blocks[part]

    def append(self, part, new):
        everything = torch.cat([*self.read(part, new.dtype), exact := self.together(part, new)], dim=2)
        leaving = max(exact.shape[2] - self.residual, 0)
        if leaving:
            block = self.format.quantize(exact[:, :, :leaving])
            self.blocks[part].append(self.format.dequantize(block, new.dtype))
        self.exact[part] = exact[:, :, leaving:].clone()
        return everything


class KeepsAllSomewhere(Right):
    def append(self, part, new):
        everything = super().append(part, new)
        self.last = everything
        return everything


class ForgetsToReturn(Right):
    def append(self, part, new):
        super().append(part, new)


class ByThePackage(Parts):
    def __init__(self, format, residual):
        self.layer = QuantizedLayer("hqq", nbits=4, residual_length=residual)

    def update(self, keys, values):
        return self.layer.update(keys, values)


# 12b

CAUSE = "big and small channels share a scale"


def regroup(keys, size, round_trip):
    columns = keys.transpose(2, 3)
    pieces = [round_trip(piece) for piece in columns.split(size, dim=-1)]
    return torch.cat(pieces, dim=-1).transpose(2, 3)


def regroup_whole_groups(keys, size, round_trip):
    """Right: the tokens that are left over stay exact."""
    result = keys.clone()
    for start in range(0, keys.shape[2] - size + 1, size):
        part = keys[:, :, start : start + size].movedim(2, -1)
        result[:, :, start : start + size] = round_trip(part).movedim(-1, 2)
    return result


def as_before(keys, size, round_trip):
    return round_trip(keys.reshape(-1, size)).reshape(keys.shape)


def a_token_each(keys, size, round_trip):
    return round_trip(keys)


def mixes_heads(keys, size, round_trip):
    rows = keys.transpose(1, 3)  # batch, head_dim, tokens, heads
    return round_trip(rows.reshape(-1, size)).reshape(rows.shape).transpose(1, 3)


def heads_side_by_side(keys, size, round_trip):
    rows = keys.permute(0, 2, 3, 1)
    return round_trip(rows.reshape(-1, size)).reshape(rows.shape).permute(0, 3, 1, 2)


def when_it_divides(keys, size, round_trip):
    columns = keys.transpose(2, 3)
    groups = columns.reshape(*columns.shape[:3], columns.shape[3] // size, size)
    return round_trip(groups).reshape(columns.shape).transpose(2, 3)


def end_to_end(keys, size, round_trip):
    columns = keys.transpose(2, 3)
    return round_trip(columns.reshape(-1, size)).reshape(columns.shape).transpose(2, 3)


def stays_turned(keys, size, round_trip):
    return torch.cat([round_trip(piece) for piece in keys.transpose(2, 3).split(size, dim=-1)], dim=-1)


def forced_into_shape(keys, size, round_trip):
    return stays_turned(keys, size, round_trip).reshape(keys.shape)


def reshape_for_transpose(keys, size, round_trip):
    columns = keys.reshape(*keys.shape[:2], keys.shape[3], keys.shape[2])
    return torch.cat([round_trip(piece) for piece in columns.split(size, dim=-1)], dim=-1).reshape(keys.shape)


def one_group(keys, size, round_trip):
    return round_trip(keys.transpose(2, 3)).transpose(2, 3)


def drops_the_rest(keys, size, round_trip):
    whole = keys.shape[2] // size * size
    return regroup(keys[:, :, :whole], size, round_trip)


def pads_with_zeros(keys, size, round_trip):
    columns = keys.transpose(2, 3)
    padded = torch.nn.functional.pad(columns, (0, -columns.shape[-1] % size))
    return round_trip(padded.unflatten(-1, (-1, size))).flatten(-2)[..., : keys.shape[2]].transpose(2, 3)


def does_nothing(keys, size, round_trip):
    return keys


def each_by_itself(keys, size, round_trip):
    return round_trip(keys[..., None])[..., 0]


def writes_over(keys, size, round_trip):
    for start in range(0, keys.shape[2], size):
        part = keys[:, :, start : start + size].transpose(2, 3)
        keys[:, :, start : start + size] = round_trip(part).transpose(2, 3)
    return keys


def chunks(keys, size, round_trip):
    pieces = [round_trip(piece) for piece in keys.transpose(2, 3).chunk(size, dim=-1)]
    return torch.cat(pieces, dim=-1).transpose(2, 3)


def zeros_at_the_end(keys, size, round_trip):
    result, whole = torch.zeros_like(keys), keys.shape[2] // size * size
    result[:, :, :whole] = drops_the_rest(keys, size, round_trip) if whole else 0
    return result


def turned_otherwise(keys, size, round_trip):
    return stays_turned(keys, size, round_trip).transpose(1, 2)


def in_strides(keys, size, round_trip):
    result, whole = keys.clone(), keys.shape[2] // size * size
    part = keys[:, :, :whole].unflatten(2, (size, whole // size)).movedim(2, -1)
    result[:, :, :whole] = round_trip(part).movedim(-1, 2).flatten(2, 3)
    return result


def heads_in_a_group(keys, size, round_trip):
    return round_trip(keys.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def pieces_apart(keys, size, round_trip):
    return [round_trip(piece) for piece in keys.transpose(2, 3).split(size, dim=-1)]


def calls_four_bits(keys, size, round_trip):
    return regroup(keys, size, torch.round)


def regroup_in_loops(keys, size, round_trip):
    """Right: one group after the other, into a copy."""
    result = keys.clone()
    for head in range(keys.shape[1]):
        for channel in range(keys.shape[3]):
            for start in range(0, keys.shape[2], size):
                end = start + size
                result[:, head, start:end, channel] = round_trip(keys[:, head, start:end, channel])
    return result


def returns_nothing(*_):
    pass


# 12c


def size(tokens, layers, kv_heads, head_dim, bits, group, residual):
    old = max(tokens - residual, 0)
    groups = old // group
    row = ceil(head_dim * bits / 8)
    keys = groups * group * row + groups * head_dim * 4 + (tokens - groups * group) * head_dim * 2
    values = old * row + old * ceil(head_dim / group) * 4 + (tokens - old) * head_dim * 2
    return layers * kv_heads * (keys + values)


def no_scales(tokens, layers, kv_heads, head_dim, bits, group, residual):
    old = max(tokens - residual, 0)
    coded = old // group * group + old
    return layers * kv_heads * (coded * ceil(head_dim * bits / 8) + (2 * tokens - coded) * head_dim * 2)


def no_offsets(tokens, layers, kv_heads, head_dim, bits, group, residual):
    given = (tokens, layers, kv_heads, head_dim, bits, group, residual)
    return (no_scales(*given) + size(*given)) // 2


def no_residual(tokens, layers, kv_heads, head_dim, bits, group, residual):
    return size(tokens, layers, kv_heads, head_dim, bits, group, 0)


def the_advertisement(tokens, layers, kv_heads, head_dim, bits, group, residual):
    return layers * 2 * kv_heads * tokens * head_dim * bits // 8


def nobody_waits(tokens, layers, kv_heads, head_dim, bits, group, residual):
    old = max(tokens - residual, 0)
    row = ceil(head_dim * bits / 8)
    keys = old * row + ceil(old / group) * head_dim * 4 + (tokens - old) * head_dim * 2
    values = old * row + old * ceil(head_dim / group) * 4 + (tokens - old) * head_dim * 2
    return layers * kv_heads * (keys + values)


def keys_like_values(tokens, layers, kv_heads, head_dim, bits, group, residual):
    old = max(tokens - residual, 0)
    row = ceil(head_dim * bits / 8) + ceil(head_dim / group) * 4
    return layers * kv_heads * 2 * (old * row + (tokens - old) * head_dim * 2)


def values_like_keys(tokens, layers, kv_heads, head_dim, bits, group, residual):
    groups = max(tokens - residual, 0) // group
    one = groups * group * ceil(head_dim * bits / 8) + groups * head_dim * 4
    return layers * kv_heads * 2 * (one + (tokens - groups * group) * head_dim * 2)


def codes_alone(tokens, layers, kv_heads, head_dim, bits, group, residual):
    old = max(tokens - residual, 0)
    groups = old // group
    row = ceil(head_dim * bits / 8)
    return layers * kv_heads * ((groups * group + old) * row + (groups * head_dim + old * ceil(head_dim / group)) * 4)


def in_float32(tokens, layers, kv_heads, head_dim, bits, group, residual):
    given = (tokens, layers, kv_heads, head_dim, bits, group, residual)
    old = max(tokens - residual, 0)
    return size(*given) + layers * kv_heads * (2 * tokens - old // group * group - old) * head_dim * 2


def no_padding(tokens, layers, kv_heads, head_dim, bits, group, residual):
    old = max(tokens - residual, 0)
    groups = old // group
    row = head_dim * bits / 8
    keys = groups * group * row + groups * head_dim * 4 + (tokens - groups * group) * head_dim * 2
    values = old * row + old * ceil(head_dim / group) * 4 + (tokens - old) * head_dim * 2
    return layers * kv_heads * (keys + values)


def one_group_a_token(tokens, layers, kv_heads, head_dim, bits, group, residual):
    return size(tokens, layers, kv_heads, head_dim, bits, group, residual) - layers * kv_heads * max(
        tokens - residual, 0
    ) * 4 * (ceil(head_dim / group) - 1)


def keys_alone_counted(*given, **named):
    return size(*given, **named) // 2


def of_the_lesson(tokens, layers, kv_heads, head_dim, bits, group, residual):
    old = max(tokens - residual, 0)
    coded = old // group * group + old
    return 30 * 3 * (36 * coded + 128 * (2 * tokens - coded))


def of_the_lesson_for_all(tokens, layers, kv_heads, head_dim, bits, group, residual):
    old = max(tokens - residual, 0)
    coded = old // group * group + old
    one = head_dim * bits / 8 + 4 * head_dim / group
    return layers * kv_heads * (one * coded + head_dim * 2 * (2 * tokens - coded))


def changed(row=None, groups=None, key_scales=None, value_groups=None, exact_keys=None, exact_values=None, times=None):
    """The right formula with one of its parts replaced; each part is a function of all that the formula knows."""

    def answer(tokens, layers, kv_heads, head_dim, bits, group, residual):
        known = dict(tokens=tokens, layers=layers, heads=kv_heads, dim=head_dim, bits=bits, group=group, rest=residual)
        known["old"] = old = max(tokens - residual, 0)
        known["groups"] = many = groups(known) if groups else old // group
        one_row = row(known) if row else ceil(head_dim * bits / 8)
        scales = key_scales(known) if key_scales else many * head_dim
        per_token = value_groups(known) if value_groups else ceil(head_dim / group)
        waiting = exact_keys(known) if exact_keys else tokens - many * group
        newest = exact_values(known) if exact_values else tokens - old
        keys = many * group * one_row + scales * 4 + waiting * head_dim * 2
        values = old * one_row + old * per_token * 4 + newest * head_dim * 2
        return (times(known) if times else layers * kv_heads) * (keys + values)

    return answer


def groups_over_all_heads(tokens, layers, kv_heads, head_dim, bits, group, residual):
    old = max(tokens - residual, 0)
    groups, row = old // group, ceil(head_dim * bits / 8)
    keys = groups * group * row + groups * head_dim * 4 + (tokens - groups * group) * head_dim * 2
    values = old * row + (tokens - old) * head_dim * 2
    return layers * (kv_heads * (keys + values) + old * ceil(kv_heads * head_dim / group) * 4)


def keys_channel_by_channel(tokens, layers, kv_heads, head_dim, bits, group, residual):
    old = max(tokens - residual, 0)
    groups, row = old // group, ceil(head_dim * bits / 8)
    keys = groups * head_dim * (ceil(group * bits / 8) + 4) + (tokens - groups * group) * head_dim * 2
    values = old * row + old * ceil(head_dim / group) * 4 + (tokens - old) * head_dim * 2
    return layers * kv_heads * (keys + values)


def end_to_end_bits(tokens, layers, kv_heads, head_dim, bits, group, residual):
    old = max(tokens - residual, 0)
    groups = old // group
    coded = groups * group
    keys = ceil(coded * head_dim * bits / 8) + groups * head_dim * 4 + (tokens - coded) * head_dim * 2
    values = ceil(old * head_dim * bits / 8) + old * ceil(head_dim / group) * 4 + (tokens - old) * head_dim * 2
    return layers * kv_heads * (keys + values)


def size_as_a_float(*given, **named):
    """Right: whole numbers in a float."""
    return float(size(*given, **named))


def below_zero(tokens, layers, kv_heads, head_dim, bits, group, residual):
    old = tokens - residual
    groups = old // group
    row = ceil(head_dim * bits / 8)
    keys = groups * group * row + groups * head_dim * 4 + (tokens - groups * group) * head_dim * 2
    values = old * row + old * ceil(head_dim / group) * 4 + (tokens - old) * head_dim * 2
    return layers * kv_heads * (keys + values)


def asks_a_layer(tokens, layers, kv_heads, head_dim, bits, group, residual):
    layer = QuantizedLayer("hqq", nbits=bits, q_group_size=group, residual_length=residual)
    zeros = torch.zeros(1, kv_heads, tokens, head_dim, dtype=torch.bfloat16)
    layer.update(zeros, zeros)
    return layers * layer.nbytes()


WRONG = {
    "12a": [
        (QuantizesAllAgain, "its error grows each time"),
        (LosesTheResidual, "the residual is missing on read"),
        (ReturnsCodesAlone, "the exact tokens are missing"),
        (NewestFirst, "the newest tokens stand first"),
        (NeverReadsBack, "the codes were not read back"),
        (ReturnsTheNew, "only the new tokens were returned"),
        (NewestIntoCodes, "the oldest of them that leave"),
        (CodesTooEarly, "Quantize for the next call"),
        (NoResidual, "became codes at once: the last"),
        (FlushesAll, "only those leave that are more"),
        (OneMore, "one token more than `residual`"),
        (OneAtATime, "all beyond `residual` leave"),
        (NeverQuantizes, "nothing was quantized"),
        (CountsFromTheEnd, "-0 is 0"),
        (CountsFromBothEnds, "-0 is 0"),
        (QuantizesEmptyBlocks, "-0 is 0"),
        (CountsHeads, "count tokens with exact.shape[2]"),
        (MixesUpBlocks, "use `part` in each place"),
        (MixesUpExact, "use `part` in each place"),
        (SurplusBelowZero, "the surplus is negative"),
        (ReadsFloat32, "new.dtype"),
        (ReadsBfloat16, "new.dtype"),
        (FourBitsAlways, "not FOUR_BITS"),
        (JoinsHeads, "tokens lie along axis 2"),
        (ListInAList, "[*old, exact]"),
        (StoresNumbers, "keep what quantize returns"),
        (KeysAlone, "the values were not"),
        (ForgetsOldBlocks, "append it to self.blocks[part]"),
        (KeepsBoth, "so they are there twice"),
        (KeepsAView, "kept a view of the caller's tensor"),
        (KeepsAllSomewhere, "old ones are still held as numbers"),
        (ForgetsToReturn, "`return` missing"),
        (ByThePackage, "lines of your own"),
    ],
    "12b": [
        ((CAUSE, mixes_heads), "the reshape mixes heads"),
        ((CAUSE, heads_side_by_side), "the reshape mixes heads"),
        ((CAUSE, as_before), "these groups lie along head_dim"),
        ((CAUSE, a_token_each), "these groups lie along head_dim"),
        ((CAUSE, when_it_divides), "only fits when the length divides"),
        ((CAUSE, end_to_end), "only fits when the length divides"),
        ((CAUSE, stays_turned), "turned, but not turned back"),
        ((CAUSE, forced_into_shape), "turned, but not turned back"),
        ((CAUSE, reshape_for_transpose), "reshape does not turn axes"),
        ((CAUSE, one_group), "cut them into groups of `size`"),
        ((CAUSE, drops_the_rest), "do not fill a group are lost"),
        ((CAUSE, pads_with_zeros), "the padding takes part in the range"),
        ((CAUSE, does_nothing), "nothing went through round_trip"),
        ((CAUSE, each_by_itself), "every number was a group of its own"),
        ((CAUSE, writes_over), "wrote over the caller's keys"),
        ((CAUSE, chunks), "chunk(size) makes that many"),
        ((CAUSE, zeros_at_the_end), "came back as zeros"),
        ((CAUSE, turned_otherwise), "other axes were turned back"),
        ((CAUSE, in_strides), "a group holds neighbours"),
        ((CAUSE, heads_in_a_group), "the heads of one token"),
        ((CAUSE, pieces_apart), "the pieces are still apart"),
        ((CAUSE, calls_four_bits), "nothing went through round_trip"),
        ((CAUSE, returns_nothing), "`return` missing"),
        (("heads share a scale", regroup), "one token of one head"),
        (("the big channels are cut off", regroup), "it is the others that suffer"),
        (("four bits are too few for keys", regroup), "the same 4 bits will do"),
        (("randomness", regroup), "one of the suspects"),
        ((3, regroup), "one of the suspects"),
        (([CAUSE, "heads share a scale"], regroup), "one of the suspects"),
    ],
    "12c": [
        (no_scales, "scales and offsets were forgotten"),
        (no_offsets, "a scale and an offset: 2 bytes each"),
        (no_residual, "the residual was forgotten"),
        (the_advertisement, "saving was promised"),
        (nobody_waits, "wait until it is full"),
        (keys_like_values, "keys are grouped along time"),
        (values_like_keys, "groups within a token"),
        (codes_alone, "the exact tokens are missing in the sum"),
        (in_float32, "exact numbers are bfloat16"),
        (no_padding, "ends with a whole byte"),
        (one_group_a_token, "the second one shorter"),
        (keys_alone_counted, "keys or values alone"),
        (below_zero, "take max(..., 0)"),
        (of_the_lesson, "belong to the model of the lesson"),
        (of_the_lesson_for_all, "two things are rounded up"),
        (end_to_end_bits, "each token's codes fill whole bytes"),
        (changed(groups=lambda k: k["old"] / k["group"]), "old // group"),
        (changed(groups=lambda k: ceil(k["old"] / k["group"])), "wait until it is full"),
        (changed(key_scales=lambda k: k["groups"]), "each *channel* of a group"),
        (changed(row=lambda k: k["dim"] * k["bits"] // 8), "ends with a whole byte"),
        (changed(value_groups=lambda k: k["dim"] / k["group"]), "the second one shorter"),
        (changed(value_groups=lambda k: k["dim"] // k["group"]), "the second one shorter"),
        (changed(exact_keys=lambda k: min(k["tokens"], k["rest"])), "keys that wait for a whole group"),
        (changed(exact_values=lambda k: 0), "the exact values are missing"),
        (changed(exact_values=lambda k: k["rest"]), "only `tokens` are exact"),
        (changed(times=lambda k: k["layers"]), "the heads were forgotten"),
        (changed(times=lambda k: k["heads"]), "the layers were forgotten"),
        (groups_over_all_heads, "in each head, not"),
        (keys_channel_by_channel, "packed token by token"),
        (changed(key_scales=lambda k: ceil(k["old"] / k["group"]) * k["dim"]), "has no scale yet"),
        (asks_a_layer, "lines of your own"),
        (returns_nothing, "TypeError"),
    ],
}
RIGHT = {
    "12a": [Right, TokenByToken],
    "12b": [
        (CAUSE, regroup),
        (CAUSE, regroup_whole_groups),
        (" Big and small channels share a scale.", regroup),
        ([CAUSE], regroup_in_loops),
    ],
    "12c": [size, size_as_a_float],
}
