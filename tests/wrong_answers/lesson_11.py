"""Lesson 11: groups, packing, half-quadratic steps, fp8."""

from fractions import Fraction

import torch

from kvcourse.quantize import MaxRange
from kvcourse.quantize.hqq import error_by_iteration, shrink, zero_points
from kvcourse.quantize.packing import pack as package_pack
from kvcourse.quantize.packing import unpack as package_unpack

# 11a


def fit(values, bits):
    offset = values.min()
    scale = (values.max() - offset) / (2**bits - 1)
    if scale == 0:
        scale = torch.ones(())
    return ((values - offset) / scale).round().to(torch.uint8), scale, offset


def restore(codes, scale, offset):
    return codes * scale + offset


def fit_with_floats(values, bits):
    """Right, with Python numbers."""
    low, high = min(values.tolist()), max(values.tolist())
    step = (high - low) / (2**bits - 1) or 1.0
    return torch.tensor([round((x - low) / step) for x in values.tolist()], dtype=torch.uint8), step, low


def fit_without_nan(values, bits):
    """Right: 0 / 0 is mended before it becomes a code."""
    offset = values.min()
    scale = (values.max() - offset) / (2**bits - 1)
    return ((values - offset) / scale).nan_to_num().round().to(torch.uint8), scale, offset


def levels_for_steps(values, bits):
    offset = values.min()
    scale = (values.max() - offset) / 2**bits
    scale = scale if scale > 0 else 1.0
    return ((values - offset) / scale).round().clamp(0, 2**bits - 1).to(torch.uint8), scale, offset


def divides_by_zero(values, bits):
    offset = values.min()
    scale = (values.max() - offset) / (2**bits - 1)
    return ((values - offset) / scale).round().to(torch.uint8), scale, offset


def cuts_off(values, bits):
    offset = values.min()
    scale = (values.max() - offset) / (2**bits - 1)
    return ((values - offset) / (scale if scale > 0 else 1)).to(torch.uint8), scale, offset


def not_rounded(values, bits):
    offset = values.min()
    scale = (values.max() - offset) / (2**bits - 1)
    return (values - offset) / (scale if scale > 0 else 1), scale, offset


def rounded_floats(values, bits):
    codes, scale, offset = not_rounded(values, bits)
    return codes.round(), scale, offset


def to_zero_point(values, bits, whole=torch.round, clamp=False, limit=True):
    """The way papers write it: codes around a zero point."""
    top = 2**bits - 1
    scale = (values.max() - values.min()) / top
    scale = scale if scale > 0 else torch.ones(())
    zero = whole(-values.min() / scale)
    if clamp:
        zero = zero.clamp(0, top)
    codes = torch.round(values / scale) + zero
    return (codes.clamp(0, top) if limit else codes).to(torch.uint8), scale, zero


def from_zero_point(codes, scale, zero):
    return (codes - zero) * scale


def zero_cut_off(values, bits):
    return to_zero_point(values, bits, whole=torch.trunc)


def zero_clamped(values, bits):
    return to_zero_point(values, bits, clamp=True)


def codes_not_clamped(values, bits):
    return to_zero_point(values, bits, limit=False)


def forgets_the_offset(codes, scale, offset):
    return codes * scale


def forgets_the_scale(codes, scale, offset):
    return codes + offset


def scales_last(codes, scale, offset):
    return (codes + offset) * scale


def from_zero_upward(values, bits):
    scale = values.max() / (2**bits - 1)
    return (values / scale).round().clamp(0, 2**bits - 1).to(torch.uint8), scale, 0.0


def two_results(values, bits):
    return fit(values, bits)[:2]


def nothing(*_):
    pass


def keeps_the_numbers(values, bits):
    return fit(values, bits)[0], fit(values, bits)[1], values


def bits_less_one(values, bits):
    offset = values.min()
    scale = (values.max() - offset) / (bits - 1)
    return ((values - offset) / scale).round().to(torch.uint8), scale, offset


def no_power(values, bits):
    offset = values.min()
    scale = (values.max() - offset) / (2 ^ bits - 1)
    return ((values - offset) / scale).round().to(torch.uint8), scale, offset


def no_brackets(values, bits):
    offset = values.min()
    scale = values.max() - offset / (2**bits - 1)
    return ((values - offset) / scale).round().to(torch.uint8), scale, offset


def offset_first(values, bits):
    codes, scale, offset = fit(values, bits)
    return codes, offset, scale


def from_the_top(values, bits):
    offset = values.max()
    scale = (offset - values.min()) / (2**bits - 1)
    return ((values - offset) / (scale if scale > 0 else 1)).round().to(torch.uint8), scale, offset


def downward(values, bits):
    offset = values.min()
    scale = (values.max() - offset) / (2**bits - 1)
    return ((offset - values) / (scale if scale > 0 else 1)).round().to(torch.uint8), scale, offset


def around_zero(values, bits):
    offset = -values.abs().max()
    scale = -2 * offset / (2**bits - 1)
    return ((values - offset) / (scale if scale > 0 else 1)).round().to(torch.uint8), scale, offset


def equal_as_they_are(values, bits):
    codes, scale, offset = fit(values, bits)
    same = values.min() == values.max()
    return (values.to(torch.uint8), torch.zeros(()), offset) if same else (codes, scale, offset)


def equal_at_the_end(values, bits):
    codes, scale, offset = fit(values, bits)
    same = values.min() == values.max()
    return (codes + 2**bits - 1, torch.zeros(()), offset) if same else (codes, scale, offset)


def writes_over(values, bits):
    offset = values.min()
    scale = (values.max() - offset) / (2**bits - 1)
    values -= offset
    values /= scale if scale > 0 else 1
    return values.round().to(torch.uint8), scale, offset


def in_int64(values, bits):
    codes, scale, offset = fit(values, bits)
    return codes.long(), scale, offset


def in_a_list(values, bits):
    codes, scale, offset = fit(values, bits)
    return codes.tolist(), scale, offset


def takes_the_offset(codes, scale, offset):
    return codes * scale - offset


def takes_the_offset_first(codes, scale, offset):
    return (codes - offset) * scale


def restored_list(codes, scale, offset):
    return restore(codes, scale, offset).tolist()


def fit_with_an_axis(values, bits):
    """Right: scale and offset as tensors of one number."""
    offset = values.amin(0, keepdim=True)
    scale = (values.amax(0, keepdim=True) - offset) / (2**bits - 1)
    return ((values - offset) / torch.where(scale > 0, scale, 1)).round().to(torch.uint8), scale, offset


def by_the_package(values, bits):
    block = MaxRange(bits, "per token", len(values)).quantize(values.view(1, 1, 1, -1))
    return block.codes.flatten(), block.scales.flatten(), block.offsets.flatten()


# 11b


def pack(codes, bits):
    packed = torch.zeros(-(-len(codes) * bits // 8), dtype=torch.uint8)
    for number, code in enumerate(codes.tolist()):
        byte, shift = divmod(number * bits, 8)
        packed[byte] |= code << shift & 255
        if shift + bits > 8:
            packed[byte + 1] |= code >> 8 - shift
    return packed


def unpack(packed, bits, count):
    codes = []
    for number in range(count):
        byte, shift = divmod(number * bits, 8)
        code = int(packed[byte]) >> shift
        if shift + bits > 8:
            code |= int(packed[byte + 1]) << 8 - shift
        codes.append(code & 2**bits - 1)
    return torch.tensor(codes, dtype=torch.uint8)


def pack_one_number(codes, bits):
    """Right: all codes as one long number."""
    whole = sum(code << number * bits for number, code in enumerate(codes.tolist()))
    return torch.tensor(list(whole.to_bytes(-(-len(codes) * bits // 8), "little")), dtype=torch.uint8)


def unpack_one_number(packed, bits, count):
    whole = int.from_bytes(bytes(packed.tolist()), "little")
    return torch.tensor([whole >> number * bits & 2**bits - 1 for number in range(count)], dtype=torch.uint8)


def big_end(codes, bits):
    text = "".join(f"{code:0{bits}b}" for code in codes.tolist())
    text += "0" * (-len(text) % 8)
    return torch.tensor([int(text[i : i + 8], 2) for i in range(0, len(text), 8)], dtype=torch.uint8)


def from_big_end(packed, bits, count):
    text = "".join(f"{byte:08b}" for byte in packed.tolist())
    return torch.tensor([int(text[i * bits : (i + 1) * bits], 2) for i in range(count)], dtype=torch.uint8)


def tail_lost(codes, bits):
    return pack(codes, bits)[: len(codes) * bits // 8]


def always_one_more(codes, bits):
    return torch.cat([pack(codes, bits), torch.zeros(1, dtype=torch.uint8)])[: len(codes) * bits // 8 + 1]


def over_the_top(codes, bits):
    packed = torch.zeros(-(-len(codes) * bits // 8), dtype=torch.uint8)
    for number, code in enumerate(codes):
        byte, shift = divmod(number * bits, 8)
        packed[byte] |= code << shift
    return packed


def too_large_for_a_byte(codes, bits):
    packed = torch.zeros(-(-len(codes) * bits // 8), dtype=torch.uint8)
    for number, code in enumerate(codes.tolist()):
        packed[number * bits // 8] |= code << number * bits % 8
    return packed


def unpacked(codes, bits):
    return codes


def two_in_a_byte(codes, bits):
    return pack(codes, 4)


def first_byte_alone(packed, bits, count):
    places = [divmod(number * bits, 8) for number in range(count)]
    return torch.tensor([int(packed[byte]) >> shift & 2**bits - 1 for byte, shift in places], dtype=torch.uint8)


def no_mask(packed, bits, count):
    places = [divmod(number * bits, 8) for number in range(count)]
    return torch.tensor([int(packed[byte]) >> shift for byte, shift in places], dtype=torch.uint8)


def padding_too(packed, bits, count):
    return unpack(packed, bits, len(packed) * 8 // bits)


def bytes_as_they_are(packed, bits, count):
    return packed


def in_whole_words(codes, bits):
    return pack(codes, bits).to(torch.int64)


def in_floats(codes, bits):
    packed = torch.zeros(-(-len(codes) * bits // 8))
    for number, code in enumerate(codes.tolist()):
        byte, shift = divmod(number * bits, 8)
        packed[byte] |= code << shift
    return packed


def writes_bytes_anew(codes, bits):
    packed = torch.zeros(-(-len(codes) * bits // 8), dtype=torch.uint8)
    for number, code in enumerate(codes.tolist()):
        byte, shift = divmod(number * bits, 8)
        packed[byte] = code << shift & 255
        if shift + bits > 8:
            packed[byte + 1] = code >> 8 - shift
    return packed


def too_few_bytes(codes, bits):
    packed = torch.zeros(len(codes) * bits // 8, dtype=torch.uint8)
    for number, code in enumerate(codes.tolist()):
        byte, shift = divmod(number * bits, 8)
        packed[byte] |= code << shift & 255
        if shift + bits > 8:
            packed[byte + 1] |= code >> 8 - shift
    return packed


def next_byte_too_often(codes, bits):
    packed = [0] * -(-len(codes) * bits // 8)
    for number, code in enumerate(codes.tolist()):
        byte, shift = divmod(number * bits, 8)
        packed[byte] |= code << shift & 255
        if shift + bits >= 8:
            packed[byte + 1] |= code >> 8 - shift
    return torch.tensor(packed, dtype=torch.uint8)


def always_reads_the_next(packed, bits, count):
    codes = []
    for number in range(count):
        byte, shift = divmod(number * bits, 8)
        both = int(packed[byte]) | int(packed[byte + 1]) << 8
        codes.append(both >> shift & 2**bits - 1)
    return torch.tensor(codes, dtype=torch.uint8)


def wrong_rest(codes, bits):
    packed = torch.zeros(-(-len(codes) * bits // 8), dtype=torch.uint8)
    for number, code in enumerate(codes.tolist()):
        byte, shift = divmod(number * bits, 8)
        packed[byte] |= code << shift & 255
        if shift + bits > 8:
            packed[byte + 1] |= code >> 8 - bits
    return packed


def uses_up_the_codes(codes, bits):
    packed = pack(codes, bits)
    codes >>= bits
    return packed


def a_list_of_codes(packed, bits, count):
    return unpack(packed, bits, count).tolist()


def codes_in_int64(packed, bits, count):
    return unpack(packed, bits, count).long()


def pack_by_adding(codes, bits):
    """Right: what does not overlap may be added."""
    packed = torch.zeros(-(-len(codes) * bits // 8), dtype=torch.uint8)
    for number, code in enumerate(codes.tolist()):
        byte, shift = divmod(number * bits, 8)
        packed[byte] += code << shift & 255
        if shift + bits > 8:
            packed[byte + 1] += code >> 8 - shift
    return packed


def whole_in_a_byte(codes, bits):
    packed = torch.zeros(-(-len(codes) * bits // 8), dtype=torch.uint8)
    for number, code in enumerate(codes.tolist()):
        packed[number // 2] |= code << (number % 2 * bits)
    return packed


def whole_from_a_byte(packed, bits, count):
    codes = torch.zeros(count, dtype=torch.uint8)
    for number in range(count):
        codes[number] = (int(packed[number // 2]) >> (number % 2 * bits)) & (2**bits - 1)
    return codes


# 11c


def solve(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = torch.clamp(torch.round(values / scale + zero), 0, levels)
        e = shrink(values - scale * (codes - zero))
        zero = torch.mean(codes - (values - e) / scale, dim=1, keepdim=True)
    return zero


def solve_again(values, scale, zero, levels, steps):
    """Right: step by step, by calling itself."""
    if steps == 0:
        return zero
    codes = (values / scale + zero).round().clamp(min=0, max=levels)
    apart = shrink(values - (codes - zero) * scale)
    average = (codes * scale - values + apart).sum(-1, keepdim=True) / values.shape[-1] / scale
    return solve_again(values, scale, average, levels, steps - 1)


def sign_turned(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = shrink(values - (codes - zero) * scale)
        zero = ((values - e) / scale - codes).mean(-1, keepdim=True)
    return zero


def adds_zero(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = shrink(values - (codes + zero) * scale)
        zero = (codes - (values - e) / scale).mean(-1, keepdim=True)
    return zero


def shrinks_the_values(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        zero = (codes - (values - shrink(values)) / scale).mean(-1, keepdim=True)
    return zero


def shrinks_nothing(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = values - (codes - zero) * scale
        zero = (codes - (values - e) / scale).mean(-1, keepdim=True)
    return zero


def forgets_e(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        zero = (codes - values / scale).mean(-1, keepdim=True)
    return zero


def returns_in_the_loop(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = shrink(values - (codes - zero) * scale)
        zero = (codes - (values - e) / scale).mean(-1, keepdim=True)
        return zero


def codes_once(values, scale, zero, levels, steps):
    codes = (values / scale + zero).round().clamp(0, levels)
    for _ in range(steps):
        e = shrink(values - (codes - zero) * scale)
        zero = (codes - (values - e) / scale).mean(-1, keepdim=True)
    return zero


def one_for_all(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = shrink(values - (codes - zero) * scale)
        zero = (codes - (values - e) / scale).mean().expand(len(values), 1)
    return zero


def loses_an_axis(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = shrink(values - (codes - zero) * scale)
        zero = (codes - (values - e) / scale).mean(-1)
    return zero


def not_clamped(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round()
        e = shrink(values - (codes - zero) * scale)
        zero = (codes - (values - e) / scale).mean(-1, keepdim=True)
    return zero


def mean_of_all(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = shrink(values - (codes - zero) * scale)
        zero = (codes - (values - e) / scale).mean()
    return zero


def mean_of_all_in_shape(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = shrink(values - (codes - zero) * scale)
        zero = (codes - (values - e) / scale).mean().reshape(1, 1)
    return zero


def mean_of_groups(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = shrink(values - (codes - zero) * scale)
        zero = (codes - (values - e) / scale).mean(0, keepdim=True)
    return zero


def zero_in_a_row(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = shrink(values - (codes - zero) * scale)
        zero = (codes - (values - e) / scale).mean(1)[None]
    return zero


def not_rounded_codes(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).clamp(0, levels)
        e = shrink(values - (codes - zero) * scale)
        zero = (codes - (values - e) / scale).mean(-1, keepdim=True)
    return zero


def codes_of_the_rest(values, scale, zero, levels, steps):
    e = torch.zeros_like(values)
    for _ in range(steps):
        codes = ((values - e) / scale + zero).round().clamp(0, levels)
        e = shrink(values - (codes - zero) * scale)
        zero = (codes - (values - e) / scale).mean(-1, keepdim=True)
    return zero


def takes_e_out_of_the_values(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = shrink(values - (codes - zero) * scale)
        values = values - e
        zero = (codes - values / scale).mean(-1, keepdim=True)
    return zero


def one_level_less(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels - 1)
        e = shrink(values - (codes - zero) * scale)
        zero = (codes - (values - e) / scale).mean(-1, keepdim=True)
    return zero


def all_divided(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = shrink(values - (codes - zero) * scale)
        zero = ((codes - (values - e)) / scale).mean(-1, keepdim=True)
    return zero


def no_brackets_at_all(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = shrink(values - (codes - zero) * scale)
        zero = (codes - values - e / scale).mean(-1, keepdim=True)
    return zero


def zero_after_the_scale(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = shrink(values - (codes * scale + zero))
        zero = (codes - (values - e) / scale).mean(-1, keepdim=True)
    return zero


def the_small_rest(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = values - (codes - zero) * scale - shrink(values - (codes - zero) * scale)
        zero = (codes - (values - e) / scale).mean(-1, keepdim=True)
    return zero


def rounded_zero(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = shrink(values - (codes - zero) * scale)
        zero = (codes - (values - e) / scale).mean(-1, keepdim=True).round()
    return zero


def the_middle(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = shrink(values - (codes - zero) * scale)
        zero = (codes - (values - e) / scale).median(-1, keepdim=True).values
    return zero


def clamped_above(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(max=levels)
        e = shrink(values - (codes - zero) * scale)
        zero = (codes - (values - e) / scale).mean(-1, keepdim=True)
    return zero


def zero_after_rounding(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = ((values / scale).round() + zero).clamp(0, levels)
        e = shrink(values - (codes - zero) * scale)
        zero = (codes - (values - e) / scale).mean(-1, keepdim=True)
    return zero


def moves_by_the_mean(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = shrink(values - (codes - zero) * scale)
        zero = zero + (codes - (values - e) / scale).mean(-1, keepdim=True)
    return zero


def shrinks_what_is_read(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = shrink((codes - zero) * scale)
        zero = (codes - (values - e) / scale).mean(-1, keepdim=True)
    return zero


def returns_codes(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = shrink(values - (codes - zero) * scale)
        zero = (codes - (values - e) / scale).mean(-1, keepdim=True)
    return codes


def zeros_in_a_list(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = shrink(values - (codes - zero) * scale)
        zero = (codes - (values - e) / scale).mean(-1, keepdim=True)
    return zero.tolist()


def hands_it_back(values, scale, zero, levels, steps):
    return zero


def all_zeros(values, scale, zero, levels, steps):
    return [solve(values, scale, zero, levels, step) for step in range(1, steps + 1)]


def moves_in_place(values, scale, zero, levels, steps):
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        e = shrink(values - (codes - zero) * scale)
        zero[:] = (codes - (values - e) / scale).mean(-1, keepdim=True)
    return zero


def solve_by_groups(values, scale, zero, levels, steps):
    """Right: each group by itself."""
    found = []
    for row, step, begin in zip(values, scale, zero, strict=True):
        for _ in range(steps):
            codes = (row / step + begin).clamp(0, levels).round()
            e = shrink(row - (codes - begin) * step)
            begin = (codes - (row - e) / step).mean()
        found.append(begin)
    return torch.tensor(found).view(-1, 1)


def solved_by_the_package(values, scale, zero, levels, steps):
    steps = zero_points(values - values.amin(-1, keepdim=True), scale, levels, -1)
    error_by_iteration(values, 2)
    return next(steps)[0] + zero


# 11d

TRUE = {0.001: 0.0, 1.05: 1.0, 1.11: 1.125, 5.0: 5.0, 5.3: 5.5, 103.0: 104.0, 600.0: 576.0, 1_000.0: 896.0}
STEP = 2 * 896 / 252
EVEN = {number: min(round(number / STEP), 126) * STEP for number in TRUE}
HALVES = {number: landed / 2 for number, landed in TRUE.items()}

WRONG = {
    "11a": [
        ((levels_for_steps, restore), "2 ** bits - 1 steps between them"),
        ((divides_by_zero, restore), "0 / 0 is nan"),
        ((cuts_off, restore), "cut off, not rounded: take the nearest code"),
        ((not_rounded, restore), "not whole numbers yet"),
        ((rounded_floats, restore), "each still takes the bytes of a float"),
        ((zero_cut_off, from_zero_point), "the zero point was cut off, not rounded"),
        ((zero_clamped, from_zero_point), "the zero point was clamped"),
        ((codes_not_clamped, from_zero_point), "a code lies beyond the last one"),
        ((to_zero_point, from_zero_point), "shifts a group of equal numbers"),
        ((fit, forgets_the_offset), "add the offset"),
        ((fit, forgets_the_scale), "the scale was left out"),
        ((fit, scales_last), "first times the scale"),
        ((from_zero_upward, restore), "count from the lowest to the highest"),
        ((bits_less_one, restore), "bits - 1 is no number of steps"),
        ((no_power, restore), "`^` is no power"),
        ((no_brackets, restore), "brackets are missing"),
        ((offset_first, restore), "scale and offset are swapped"),
        ((from_the_top, restore), "codes below 0 came about"),
        ((downward, restore), "codes below 0 came about"),
        ((around_zero, restore), "evenly on both sides of 0"),
        ((equal_as_they_are, restore), "each is the lowest one"),
        ((equal_at_the_end, restore), "each is the lowest one"),
        ((writes_over, restore), "wrote into the caller's tensor"),
        ((in_int64, restore), "each takes more bytes than one"),
        ((in_a_list, restore), "the codes are a tensor"),
        ((fit, takes_the_offset), "add the offset"),
        ((fit, takes_the_offset_first), "the offset is added at the end"),
        ((fit, restored_list), "a tensor as long as `codes`"),
        ((two_results, restore), "three results: codes, scale, offset"),
        ((nothing, restore), "`return` missing"),
        ((fit, nothing), "`return` missing"),
        ((keeps_the_numbers, restore), "numbers in offset"),
        ((by_the_package, restore), "lines of your own"),
    ],
    "11b": [
        ((big_end, from_big_end), "the halves are swapped"),
        ((pack, from_big_end), "right halves in swapped order"),
        ((tail_lost, unpack), "the tail is lost"),
        ((always_one_more, unpack), "a byte too many"),
        ((over_the_top, unpack), "pushed over the top of its first byte"),
        ((too_large_for_a_byte, unpack), "pushed over the top of its first byte"),
        ((wrong_rest, unpack), "code >> (8 - shift), belong into"),
        ((in_floats, unpack), "dtype=torch.uint8"),
        ((writes_bytes_anew, unpack), "a byte forgot what stood in it"),
        ((too_few_bytes, unpack), "there is no such byte"),
        ((next_byte_too_often, unpack), "there is no such byte"),
        ((pack, always_reads_the_next), "there is no such byte"),
        ((uses_up_the_codes, unpack), "wrote into the caller's tensor"),
        ((pack, a_list_of_codes), "unpack_codes returns a tensor of type torch.uint8"),
        ((pack, codes_in_int64), "unpack_codes returns a tensor of type torch.uint8"),
        ((unpacked, bytes_as_they_are), "nothing was packed"),
        ((two_in_a_byte, unpack), "got the room of 4"),
        ((whole_in_a_byte, whole_from_a_byte), "two whole codes in each byte"),
        ((pack, whole_from_a_byte), "two whole codes were read"),
        ((pack, first_byte_alone), "read from the first one alone"),
        ((pack, no_mask), "the bits of the next code were read too"),
        ((pack, padding_too), "the padding was read as a code"),
        ((pack, bytes_as_they_are), "the bytes themselves"),
        ((in_whole_words, unpack), "pack_codes returns a tensor of type torch.uint8"),
        ((nothing, unpack), "`return` missing"),
        ((package_pack, package_unpack), "lines of your own"),
    ],
    "11c": [
        (sign_turned, "the sign of the zero point is turned"),
        (adds_zero, "the sign of the zero point is turned"),
        (shrinks_the_values, "the values were shrunk"),
        (shrinks_nothing, "e is shrink(residual)"),
        (forgets_e, "e was left out"),
        (returns_in_the_loop, "it stops at step 1"),
        (codes_once, "compute them in each step"),
        (one_for_all, "a zero point of its own"),
        (loses_an_axis, "keep the axis of the group"),
        (not_clamped, "clamp them to 0 ... levels"),
        (mean_of_all, "a zero point of its own"),
        (mean_of_all_in_shape, "a zero point of its own"),
        (mean_of_groups, "went over the groups"),
        (zero_in_a_row, "keep the axis of the group"),
        (not_rounded_codes, "were not rounded"),
        (codes_of_the_rest, "from the values themselves"),
        (takes_e_out_of_the_values, "the values were changed"),
        (one_level_less, "the highest code itself"),
        (all_divided, "divide that bracket alone"),
        (no_brackets_at_all, "brackets are missing"),
        (zero_after_the_scale, "so it goes before the scale"),
        (the_small_rest, "e is what shrink returns"),
        (rounded_zero, "need not be a whole number"),
        (the_middle, "not the median"),
        (clamped_above, "at both ends"),
        (zero_after_rounding, "added before rounding"),
        (moves_by_the_mean, "not added to the old one"),
        (shrinks_what_is_read, "what the codes are read back as"),
        (returns_codes, "the codes were returned"),
        (zeros_in_a_list, "not a list"),
        (hands_it_back, "that were handed in"),
        (all_zeros, "only the last zero points"),
        (moves_in_place, "wrote into what it was handed"),
        (nothing, "`return` missing"),
        (solved_by_the_package, "lines of your own"),
    ],
    "11d": [
        (EVEN, "that is even spacing"),
        (TRUE | {1_000.0: 1_024.0}, "it is clipped"),
        (TRUE | {1_000.0: 1_000.0}, "it is clipped"),
        (TRUE | {0.001: 2**-9, 600.0: 448.0, 1_000.0: 448.0}, "the scale was left out"),
        (HALVES, "divide by it, land, and multiply again"),
        ({number: number for number in TRUE}, "look for the nearest number"),
        (TRUE | {0.001: 0.001}, "very small numbers have an end"),
        (TRUE | {1.05: 1.0625, 5.3: 5.25, 103.0: 104.0, 600.0: 608.0}, "this looks like 16"),
        (TRUE | {1.11: 1.0, 5.3: 5.0, 103.0: 96.0, 600.0: 640.0}, "this looks like 4"),
        (TRUE | {5.3: 5.0}, "not the nearer one"),
        (TRUE | {1.05: 1.125}, "not the nearer one"),
        (TRUE | {600.0: 640.0}, "not the nearer one"),
        (TRUE | {1.11: 1.0, 5.3: 5.0, 103.0: 96.0}, "always rounded down"),
        ({0.001: 2**-8, 1.05: 1.125, 1.11: 1.125, 5.0: 5.0, 5.3: 5.5, 103.0: 104.0, 600: 640, 1000: 896}, "rounded up"),
        (TRUE | {1_000.0: 448.0}, "multiplied by 2 when it is read back"),
        (TRUE | {600.0: 896.0}, "divide first, then see"),
        (TRUE | {0.001: 2**-8}, "nearer to 0"),
        (TRUE | {0.001: 2**-9}, "nearer to 0"),
        (TRUE | {103.0: 100.0}, "is no fp8 number: from 32 to 64 a step is 4"),
        (TRUE | {1.11: 1.0625}, "is no fp8 number: from 0.5 to 1 a step is 0.0625"),
        (TRUE | {5.0: "five"}, "without quotes"),
        ([0.0, 1.0], "a dict such as"),
    ],
}
RIGHT = {
    "11a": [(fit, restore), (fit_with_floats, restore), (fit_without_nan, restore), (fit_with_an_axis, restore)],
    "11b": [(pack, unpack), (pack_one_number, unpack_one_number), (pack_by_adding, unpack)],
    "11c": [solve, solve_again, solve_by_groups],
    "11d": [TRUE, {number: Fraction(landed) for number, landed in TRUE.items()}, TRUE | {103.0: torch.tensor([104])}],
}
