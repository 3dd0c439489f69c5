"""The right answer to task 11a, and the wrong ones that people give."""

import torch

from .task import Mistake


def to_codes(values, bits, levels=lambda bits: 2**bits - 1, whole=torch.round, safe=True, most=None):
    """The right answer, with the places that go wrong as parameters."""
    lowest = values.min()
    scale = (values.max() - lowest) / levels(bits)
    shifted = (values - lowest) / (scale if scale > 0 or not safe else 1)
    return whole(shifted).clamp(0, most or 2**bits - 1).to(torch.uint8), scale, lowest


def back(codes, scale, lowest):
    return codes * scale + lowest


def but(restore=back, **lines):
    return (lambda values, bits: to_codes(values, bits, **lines)), restore


def by_zero_point(rounding=torch.round, clamp_zero=False, clamp_codes=True):
    """(quantize, restore) with the code that stands for 0 in the place of the lowest value."""

    def quantize(values, bits):
        low, high = values.min(), values.max()
        scale = (high - low) / (2**bits - 1) if high > low else torch.tensor(1.0)
        zero = rounding(-low / scale)
        zero = zero.clamp(0, 2**bits - 1) if clamp_zero else zero
        codes = (values / scale).round() + zero
        return (codes.clamp(0, 2**bits - 1) if clamp_codes else codes).to(torch.uint8), scale, zero

    return quantize, lambda codes, scale, zero: (codes - zero) * scale


def whole_type(**lines):
    def quantize(values, bits):
        lowest = values.min()
        scale = (values.max() - lowest) / (2**bits - 1)
        codes = (values - lowest) / (scale if scale > 0 else 1)
        return (codes.round() if lines else codes), scale, lowest

    return quantize, back


def symmetric(values, bits):
    scale = values.abs().max() / (2 ** (bits - 1) - 1)
    codes = (values / (scale if scale > 0 else 1)).round() + 2 ** (bits - 1)
    return codes.clamp(0, 2**bits - 1).to(torch.uint8), scale, values.min()


def fitted(scale=lambda values, bits: None, lowest=torch.min, sign=1, swapped=False):
    """Answers that go wrong before the codes: another scale, another offset, or the two in another order."""

    def quantize(values, bits):
        low = lowest(values)
        step = scale(values, bits)
        step = (values.max() - values.min()) / (2**bits - 1) if step is None else step
        codes = sign * (values - low) / (step if step > 0 else 1)
        return codes.round().to(torch.uint8), *((low, step) if swapped else (step, low))

    return quantize, back


def equal_numbers(code):
    """Answers that give a group of equal numbers codes of another kind."""

    def quantize(values, bits):
        codes, scale, lowest = to_codes(values, bits)
        return codes if scale > 0 else code(values, bits), scale, lowest

    return quantize, back


NO_POWER = "`^` is no power in Python: two to the power of bits is 2 ** bits"
BELOW_ZERO = (
    "codes below 0 came about, which uint8 cannot hold: count steps from the lowest number upward, "
    "(values - offset) / scale with the lowest number as offset"
)
EACH_IS_LOWEST = "all numbers of this group are equal, so each is the lowest one, and its code is 0"
CODES_FIT = "a code lies beyond the last one: clamp codes to 0 ... 2 ** bits - 1"
MISTAKES = [
    Mistake(
        "2 ** bits codes have 2 ** bits - 1 steps between them: divide the range by 2 ** bits - 1",
        but(levels=lambda bits: 2**bits),
    ),
    Mistake(
        "2 ** bits codes have 2 ** bits - 1 steps between them: divide the range by 2 ** bits - 1",
        but(levels=lambda bits: 2**bits, most=None, whole=torch.floor),
    ),
    Mistake("2 ** bits is two to the power of bits; 2 * bits is less", but(levels=lambda bits: 2 * bits - 1)),
    Mistake("2 ** bits is two to the power of bits; divide by 2 ** bits - 1, not by bits", but(levels=lambda b: b)),
    Mistake(
        "the scale is the range divided by 2 ** bits - 1, the number of steps; bits - 1 is no number of steps",
        but(levels=lambda bits: bits - 1),
    ),
    Mistake(NO_POWER, but(levels=lambda bits: 2 ^ bits - 1)),
    Mistake(NO_POWER, but(levels=lambda bits: (2 ^ bits) - 1)),
    Mistake(
        "brackets are missing: the whole range is divided, (highest - lowest) / (2 ** bits - 1)",
        fitted(scale=lambda values, bits: values.max() - values.min() / (2**bits - 1)),
    ),
    Mistake("scale and offset are swapped: return codes, scale, offset", fitted(swapped=True)),
    Mistake(BELOW_ZERO, fitted(lowest=torch.max)),
    Mistake(BELOW_ZERO, fitted(sign=-1)),
    Mistake(EACH_IS_LOWEST, equal_numbers(lambda values, bits: values.to(torch.uint8))),
    Mistake(EACH_IS_LOWEST, equal_numbers(lambda values, bits: torch.full_like(values, 2**bits - 1).to(torch.uint8))),
    Mistake(EACH_IS_LOWEST, equal_numbers(lambda values, bits: torch.ones_like(values).to(torch.uint8))),
    Mistake(
        "the levels lie evenly on both sides of 0, and this group does not: go from its lowest number to its highest",
        fitted(
            scale=lambda values, bits: 2 * values.abs().max() / (2**bits - 1), lowest=lambda values: -values.abs().max()
        ),
    ),
    Mistake("the codes were cut off, not rounded: take the nearest code, round()", but(whole=torch.floor)),
    Mistake("the codes were cut off, not rounded: take the nearest code, round()", but(whole=lambda x: x)),
    Mistake("the codes were rounded up; take the nearest code, round()", but(whole=torch.ceil)),
    Mistake(
        "a group of equal numbers has scale 0, and 0 / 0 is nan; what nan becomes as a code is up to the machine. "
        "Divide by 1 there",
        but(safe=False),
    ),
    Mistake("the codes are not whole numbers yet: round them, then .to(torch.uint8)", whole_type()),
    Mistake(
        "the codes are whole, but each still takes the bytes of a float: store them with .to(torch.uint8)",
        whole_type(rounded=True),
    ),
    Mistake("a code is a step above the lowest number: add the offset", but(restore=lambda c, scale, low: c * scale)),
    Mistake(
        "a code counts steps from the lowest number upward: add the offset", but(lambda c, scale, low: c * scale - low)
    ),
    Mistake("the scale was left out: code * scale + offset", but(restore=lambda c, scale, low: c + low)),
    Mistake(
        "the offset is added at the end: code * scale + offset", but(restore=lambda c, scale, low: (c - low) * scale)
    ),
    Mistake("first times the scale, then add the offset", but(restore=lambda c, scale, low: (c + low) * scale)),
    Mistake(
        "the zero point was cut off, not rounded: all numbers are shifted by part of a step",
        by_zero_point(rounding=torch.floor),
    ),
    Mistake(
        "the zero point was cut off, not rounded: all numbers are shifted by part of a step",
        by_zero_point(rounding=torch.trunc),
    ),
    Mistake(CODES_FIT, by_zero_point(clamp_codes=False)),
    Mistake(
        "the zero point was clamped to the codes, and this group lies far from 0. Keep the lowest number itself",
        by_zero_point(clamp_zero=True),
    ),
    Mistake(
        "a zero point that is a whole number shifts a group of equal numbers; the lowest number itself does not",
        by_zero_point(),
    ),
    Mistake(
        "codes were counted from 0 to the largest number; count from the lowest to the highest of the group",
        (
            lambda values, bits: (
                to_codes(torch.cat([values, torch.zeros(1)]), bits)[:1] + ((values.max() / (2**bits - 1)), 0.0)
            ),
            back,
        ),
    ),
    Mistake(
        "the levels lie evenly on both sides of 0, and this group does not: go from its lowest number to its highest",
        (symmetric, lambda codes, scale, low: (codes.float() - 8) * scale),
    ),
]
