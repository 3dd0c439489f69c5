"""The right answer to task 11c, and the wrong ones that people give."""

import torch

from ..quantize import hqq
from .task import Mistake


def solve(values, scale, zero, levels, steps, **lines):
    """The right answer, with its lines as parameters."""
    code = lines.get("code", lambda v, s, z, most: (v / s + z).round().clamp(0, most))
    read = lines.get("read", lambda c, s, z: (c - z) * s)
    large = lines.get("large", lambda v, r: hqq.shrink(r))
    best = lines.get("best", lambda c, v, e, s: (c - (v - e) / s).mean(-1, keepdim=True))
    first = code(values, scale, zero, levels)
    for _ in range(lines.get("count", lambda steps: steps)(steps)):
        codes = first if "once" in lines else code(values, scale, zero, levels)
        residual = values - read(codes, scale, zero)
        zero = best(codes, values, large(values, residual), scale) + (zero if "added" in lines else 0)
    return zero


def but(**lines):
    return lambda *given: solve(*given, **lines)


def values_change(values, scale, zero, levels, steps):
    """Outliers are taken out of the values for good, step after step."""
    for _ in range(steps):
        codes = (values / scale + zero).round().clamp(0, levels)
        values = values - hqq.shrink(values - (codes - zero) * scale)
        zero = (codes - values / scale).mean(-1, keepdim=True)
    return zero


def mean(**options):
    """The mean over another axis, or without its axis."""
    return but(best=lambda c, v, e, s: (c - (v - e) / s).mean(**options))


SIGN = "the sign of the zero point is turned: a code is read back as (code - zero) * scale"
EACH = "one mean over all groups; each group has a zero point of its own: mean(-1, keepdim=True)"
KEEP = "keep the axis of the group: mean(-1, keepdim=True)"
STEPS = "a code is read back as (code - zero) * scale: the zero point counts steps, so it goes before the scale"
CLAMP = "codes beyond the last level cannot be stored: clamp them to 0 ... levels, at both ends"
UNITS = "codes count steps, and (values - e) / scale does too: divide that bracket alone by the scale"
MISTAKES = [
    Mistake(
        "the sign of the zero point is turned: from value = (code - zero) * scale follows zero = code - value / scale",
        but(best=lambda c, v, e, s: ((v - e) / s - c).mean(-1, keepdim=True)),
    ),
    Mistake(SIGN, but(read=lambda c, s, z: (c + z) * s)),
    Mistake(STEPS, but(read=lambda c, s, z: c * s + z)),
    Mistake(STEPS, but(read=lambda c, s, z: c * s - z)),
    Mistake("to read a code back, multiply by the scale", but(read=lambda c, s, z: (c - z) / s)),
    Mistake("to read a code back, multiply by the scale", but(read=lambda c, s, z: c - z)),
    Mistake(
        "the values were shrunk; shrink the residual, what is left over when a code is read back",
        but(large=lambda v, r: hqq.shrink(v)),
    ),
    Mistake(
        "what was shrunk is what the codes are read back as; shrink the residual, the values minus that",
        but(large=lambda v, r: hqq.shrink(v - r)),
    ),
    Mistake(
        "these are the zero points that were handed in: they never move. In a step the codes are rounded, and e is "
        "shrink(residual): without shrink the residual explains itself",
        but(count=lambda steps: 0),
    ),
    Mistake(
        "the zero point hardly moves, because the codes were not rounded and so leave no residual: round()",
        but(code=lambda v, s, z, most: (v / s + z).clamp(0, most)),
    ),
    Mistake(
        "e was left out: then an outlier pulls the zero point as before. Take e from the values first",
        but(large=lambda v, r: torch.zeros_like(r)),
    ),
    Mistake(
        "e has the wrong sign: the residual is values minus what is read back, and values - e sets e aside",
        but(large=lambda v, r: -hqq.shrink(r)),
    ),
    Mistake("e is what shrink returns, not what it takes away", but(large=lambda v, r: r - hqq.shrink(r))),
    Mistake("it stops at step 1: is the `return` inside the loop?", but(count=lambda steps: min(steps, 1))),
    Mistake(
        "the codes do not change from step to step: compute them in each step, with the new zero point, and from the "
        "values themselves; e is set aside for the zero point alone",
        but(once=True),
    ),
    Mistake(
        "the values were changed: e is set aside for the zero point of its own step alone, and the next step begins "
        "with the values as they came. Write values - e in that line, and assign it to no name that is used again",
        values_change,
    ),
    Mistake("the mean is the new zero point itself; it is not added to the old one", but(added=True)),
    Mistake("one step too many", but(count=lambda steps: steps + 1)),
    Mistake("one step too few", but(count=lambda steps: steps - 1)),
    Mistake(EACH, but(best=lambda c, v, e, s: (c - (v - e) / s).mean().expand(len(c), 1))),
    Mistake(EACH, mean()),
    Mistake(EACH, but(best=lambda c, v, e, s: (c - (v - e) / s).mean().reshape(1, 1))),
    Mistake(KEEP, mean(dim=-1)),
    Mistake(KEEP, but(best=lambda c, v, e, s: (c - (v - e) / s).mean(-1)[None])),
    Mistake(
        "the mean went over the groups; it goes over the numbers of a group, the last axis: mean(-1, keepdim=True)",
        mean(dim=0, keepdim=True),
    ),
    Mistake(
        "the mean is asked for, not the median",
        but(best=lambda c, v, e, s: (c - (v - e) / s).median(-1, keepdim=True).values),
    ),
    Mistake(UNITS, but(best=lambda c, v, e, s: (c - (v - e)).mean(-1, keepdim=True))),
    Mistake(UNITS, but(best=lambda c, v, e, s: ((c - (v - e)) / s).mean(-1, keepdim=True))),
    Mistake(UNITS, but(best=lambda c, v, e, s: (c - (v - e) * s).mean(-1, keepdim=True))),
    Mistake(
        "brackets are missing: e is taken from the values, and both are divided: (values - e) / scale",
        but(best=lambda c, v, e, s: (c - v - e / s).mean(-1, keepdim=True)),
    ),
    Mistake(
        "brackets are missing: e is taken from the values, and both are divided: (values - e) / scale",
        but(best=lambda c, v, e, s: (c - v / s - e).mean(-1, keepdim=True)),
    ),
    Mistake(
        "brackets are missing: e is taken from the values, and both are divided: (values - e) / scale",
        but(best=lambda c, v, e, s: (c - (v - e / s)).mean(-1, keepdim=True)),
    ),
    Mistake(
        "e has the wrong sign: the value minus e, divided by the scale, is taken from the code, so mind the brackets",
        but(best=lambda c, v, e, s: (c - v / s - e / s).mean(-1, keepdim=True)),
    ),
    Mistake(
        "the zero point need not be a whole number: do not round it",
        but(best=lambda c, v, e, s: (c - (v - e) / s).mean(-1, keepdim=True).round()),
    ),
    Mistake(CLAMP, but(code=lambda v, s, z, most: (v / s + z).round())),
    Mistake(CLAMP, but(code=lambda v, s, z, most: (v / s + z).round().clamp(max=most))),
    Mistake(CLAMP, but(code=lambda v, s, z, most: (v / s + z).round().clamp(min=0))),
    Mistake(
        "`levels` is the highest code itself, 3 with 2 bits: clamp(0, levels)",
        but(code=lambda v, s, z, most: (v / s + z).round().clamp(0, most - 1)),
    ),
    Mistake(
        "the codes were cut off, not rounded: round(), then clamp",
        but(code=lambda v, s, z, most: (v / s + z).trunc().clamp(0, most)),
    ),
    Mistake(
        "the zero point was left out of the codes: round(values / scale + zero)",
        but(code=lambda v, s, z, most: (v / s).round().clamp(0, most)),
    ),
    Mistake(
        "the zero point is added before rounding: codes are whole numbers, round(values / scale + zero)",
        but(code=lambda v, s, z, most: ((v / s).round() + z).clamp(0, most)),
    ),
    Mistake(
        "the zero point is added before rounding and clamping: round(values / scale + zero)",
        but(code=lambda v, s, z, most: (v / s).round().clamp(0, most) + z),
    ),
    Mistake(
        "the codes were returned; the zero points are wanted",
        lambda v, s, z, most, steps: (v / s + solve(v, s, z, most, steps - 1)).round().clamp(0, most),
    ),
]
