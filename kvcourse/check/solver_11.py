"""Task 11c: steps of the half-quadratic solver."""

import torch

from ..quantize import hqq
from .task import Case, Mistake, compare, task
from .withheld import run_without
from .words import Phrase, words

OWN = [(hqq, "_round"), (hqq, "_start")]


def outliers(groups=2, size=8, seed=3):
    """Numbers of which a few are much larger than the others: (groups, size)."""
    dice = torch.Generator().manual_seed(seed)
    return torch.randn(groups, size, generator=dice) ** 3


def start(values, bits):
    """(scale, zero) of each group, (groups, 1), as rounding to the nearest level begins."""
    lowest, highest = values.amin(-1, keepdim=True), values.amax(-1, keepdim=True)
    scale = (highest - lowest) / (2**bits - 1)
    return scale, -lowest / scale


def solving(what, values, bits, counts, reach=1.0):
    """A case: the zero points after so many steps. `reach`: how much of the range the levels cover."""

    def play(answer, seen):
        scale, zero = start(values, bits)
        scale = scale * reach
        for steps in counts:
            given = [tensor.clone() for tensor in (values, scale, zero)]
            came = run_without(OWN, answer, answer, *given, 2**bits - 1, steps)
            label = f"zero points after {steps} step" + "s" * (steps > 1)
            fits = isinstance(came, torch.Tensor) and came.shape == zero.shape
            seen[label] = tuple(round(x, 3) for x in came.flatten().tolist()) if fits else came
            if not fits and came is not None:
                seen[label] = Phrase(words(came))

    return Case(what, play)


CASES = [
    solving("one group of 8 numbers, 2 bits, one step", outliers(1, seed=5), 2, [1]),
    solving("3 groups of 8 numbers, 2 bits", outliers(3, seed=5), 2, [1, 2, 6]),
    solving("2 groups of 16 numbers, 2 bits, with numbers beyond the last level", outliers(2, 16, 47), 2, [1, 6], 0.6),
    solving("2 groups of 16 numbers, 3 bits", outliers(2, 16, seed=5), 3, [1, 3]),
]


def solve(values, scale, zero, levels, steps, **lines):
    """The right answer, with its lines as parameters."""
    code = lines.get("code", lambda v, s, z: (v / s + z).round().clamp(0, levels))
    read = lines.get("read", lambda c, s, z: (c - z) * s)
    large = lines.get("large", lambda v, r: hqq.shrink(r))
    best = lines.get("best", lambda c, v, e, s: (c - (v - e) / s).mean(-1, keepdim=True))
    first = code(values, scale, zero)
    for _ in range(lines.get("count", lambda steps: steps)(steps)):
        codes = first if "once" in lines else code(values, scale, zero)
        residual = values - read(codes, scale, zero)
        zero = best(codes, values, large(values, residual), scale)
    return zero


def but(**lines):
    return lambda *given: solve(*given, **lines)


MISTAKES = [
    Mistake(
        "the sign of the zero point is turned: from value = (code - zero) * scale follows zero = code - value / scale",
        but(best=lambda c, v, e, s: ((v - e) / s - c).mean(-1, keepdim=True)),
    ),
    Mistake(
        "the sign of the zero point is turned: a code is read back as (code - zero) * scale",
        but(read=lambda c, s, z: (c + z) * s),
    ),
    Mistake(
        "the values were shrunk; shrink the residual, what is left over when a code is read back",
        but(large=lambda v, r: hqq.shrink(v)),
    ),
    Mistake(
        "nothing was shrunk, and the residual explains itself: the zero point never moves. e = shrink(residual)",
        but(large=lambda v, r: r),
    ),
    Mistake(
        "e was left out: then an outlier pulls the zero point as before. Take e from the values first",
        but(large=lambda v, r: torch.zeros_like(r)),
    ),
    Mistake(
        "e has the wrong sign: the residual is values minus what is read back, and values - e sets e aside",
        but(large=lambda v, r: -hqq.shrink(r)),
    ),
    Mistake("it stops at step 1: is the `return` inside the loop?", but(count=lambda steps: min(steps, 1))),
    Mistake(
        "the codes were computed once; a new zero point gives new codes, so compute them in each step", but(once=True)
    ),
    Mistake("one step too many", but(count=lambda steps: steps + 1)),
    Mistake("one step too few", but(count=lambda steps: steps - 1)),
    Mistake(
        "one mean over all groups; each group has a zero point of its own: mean(-1, keepdim=True)",
        but(best=lambda c, v, e, s: (c - (v - e) / s).mean().expand(len(c), 1)),
    ),
    Mistake(
        "keep the axis of the group: mean(-1, keepdim=True)", but(best=lambda c, v, e, s: (c - (v - e) / s).mean(-1))
    ),
    Mistake(
        "codes and values were mixed without the scale: (values - e) / scale is counted in steps, as codes are",
        but(best=lambda c, v, e, s: (c - (v - e)).mean(-1, keepdim=True)),
    ),
    Mistake(
        "codes beyond the last level cannot be stored: clamp them to 0 ... levels",
        but(code=lambda v, s, z: (v / s + z).round()),
    ),
    Mistake("codes are whole numbers: round them", but(code=lambda v, s, z: (v / s + z).clamp(0, 3))),
    Mistake(
        "the zero point was left out of the codes: round(values / scale + zero)",
        but(code=lambda v, s, z: (v / s).round().clamp(0, 3)),
    ),
]


def mean_error(values, scale, zero, levels):
    codes = (values / scale + zero).round().clamp(0, levels)
    return ((codes - zero) * scale - values).abs().mean().item()


@task("11c", "solve: the zero points after 1, 2, 3 and 6 steps, then the error after 20")
def task_11c(function):
    """`function(values, scale, zero, levels, steps)` -> zero points; scale and zero are (groups, 1)."""
    compare(function, solve, CASES, MISTAKES, tolerance=2e-3)
    values = outliers(64, 64, seed=1)
    scale, zero = start(values, 2)
    before = mean_error(values, scale, zero, 3)
    after = mean_error(values, scale, run_without(OWN, function, function, values, scale, zero, 3, 20), 3)
    return {
        "zero points": "as expected in four cases",
        "error": f"64 groups with outliers, 2 bits: {before:.2f} on average before, {after:.2f} after 20 steps",
    }
