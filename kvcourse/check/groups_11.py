"""Task 11a: one affine group, to codes and back."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..quantize import AffineFormat
from .task import Case, Mistake, compare, task
from .withheld import run_without
from .words import Phrase, words

OWN = [(AffineFormat, "quantize"), (AffineFormat, "dequantize")]
EIGHT = [-0.6, 0.2, 0.9, -0.1, 0.5, 0.0, 0.7, -0.3]


class NanWatch(TorchDispatchMode):
    """Counts the nan that were made into whole numbers: which number comes out is up to the machine."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        to_whole = isinstance(result, torch.Tensor) and not result.is_floating_point() and result.dtype != torch.bool
        if to_whole and function.overloadpacket.__name__ in ("_to_copy", "copy_"):
            source = args[-1] if function.overloadpacket.__name__ == "copy_" else args[0]
            self.count += int(source.isnan().sum()) if source.is_floating_point() else 0
        return result


def group(what, numbers, bits):
    """A case: what becomes of these numbers. A group of equal numbers has no step; it must come back exactly."""

    def play(answer, seen):
        values = torch.tensor(numbers)
        step = (values.max() - values.min()).item() / (2**bits - 1)
        with NanWatch() as watch:
            result = run_without(OWN, answer[0], answer[0], values.clone(), bits)
        if not isinstance(result, (tuple, list)) or len(result) != 3:
            seen["codes, scale and offset"] = result if result is None else Phrase(words(result))
            return
        codes, scale, offset = result
        for name, number in (("scale", scale), ("offset", offset)):
            size = number.numel() if isinstance(number, torch.Tensor) else 1
            seen[f"numbers in {name}"] = size
        if step:
            seen["scale"] = round(float(torch.as_tensor(scale).flatten()[0]), 5)
        seen["0 / 0 made into a code"] = watch.count
        seen["codes"] = kind(codes, values)
        if step and seen["codes"] == kind(values.to(torch.uint8), values):
            seen["smallest and largest code"] = [int(codes.min()), int(codes.max())]
        back = run_without(OWN, answer[1], answer[1], codes, scale, offset)
        if not isinstance(back, torch.Tensor) or back.shape != values.shape:
            seen["numbers that came back"] = back if back is None else Phrase(words(back))
            return
        label = "numbers off by more than half a step" if step else "numbers that are not exactly what they were"
        far = (~((back - values).abs() <= step / 2 + 1e-5)).nonzero().flatten().tolist()
        first = f"{len(far)}; {numbers[far[0]]:g} is read back as {back[far[0]].item():g}" if far else "none"
        seen[label] = Phrase(first)

    return Case(what, play)


def kind(codes, values):
    """What sort of codes these are, in words."""
    if not isinstance(codes, torch.Tensor) or codes.shape != values.shape:
        return Phrase(words(codes))
    broken = codes.is_floating_point() and not codes.equal(codes.round())
    return Phrase(f"{len(codes)} numbers of type {codes.dtype}" + (", not whole" if broken else ""))


CASES = [
    group("eight numbers from -0.6 to 0.9, 4 bits", EIGHT, 4),
    group("eight numbers from -0.8 to 0.7, 2 bits", [-0.8, 0.2, 0.7, -0.1, 0.4, 0.0, -0.6, -0.4], 2),
    group("numbers far from 0, from 10 to 12, 4 bits", [10.0, 10.3, 12.0, 11.1, 10.9], 4),
    group("numbers from -1.5 to 13.5, 4 bits", [-1.5, 0.4, 13.5, 7.2, 12.6], 4),
    group("four times the same number, 4 bits", [3.7, 3.7, 3.7, 3.7], 4),
    group("only zeros, 2 bits", [0.0, 0.0, 0.0], 2),
]


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


@task("11a", "quantize_group and restore_group on six groups, two of them of equal numbers")
def task_11a(quantize, restore):
    """`quantize(values, bits)` -> (codes, scale, offset), and `restore(codes, scale, offset)` -> values."""
    compare((quantize, restore), (to_codes, back), CASES, MISTAKES)
    return {
        "error": "no number is off by more than half a step, in all six groups",
        "codes": "uint8; the lowest number has code 0, the highest 2 ** bits - 1: no level is wasted",
        "equal numbers": "come back exactly",
    }
