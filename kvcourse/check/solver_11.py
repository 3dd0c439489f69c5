"""Task 11c: steps of the half-quadratic solver."""

import torch

from ..quantize import hqq
from .solver_mistakes import MISTAKES, solve
from .task import Case, compare, task
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
            seen[label] = tuple(round(x, 3) for x in came.flatten().tolist()) if fits else shape_of(came)
            written = [int((a != b).sum()) for a, b in zip(given, (values, scale, zero), strict=True)]
            seen[f"{WRITTEN} in {steps} step" + "s" * (steps > 1)] = sum(written)

    return Case(what, play, explain)


WRITTEN = "numbers of values, scale and zero that were written over"


def shape_of(came):
    """What came in the place of the zero points, in words; None for None."""
    if came is None:
        return None
    many = isinstance(came, list) and len(came) > 0 and all(isinstance(one, torch.Tensor) for one in came)
    return (
        Phrase(f"a tensor of shape {tuple(came.shape)}")
        if isinstance(came, torch.Tensor)
        else Phrase(f"a list of {len(came)} tensors" if many else words(came))
    )


def explain(label, expected, came):
    if label.startswith(WRITTEN):
        return "your function wrote into what it was handed: `zero = ...` makes a new tensor, `zero[:] = ...` does not"
    if "list of" in str(came):
        return "only the last zero points are returned, one tensor, (groups, 1)"
    if str(came).startswith("["):
        return "return a tensor, (groups, 1), not a list"
    return None


CASES = [
    solving("2 groups of 8 numbers, 2 bits, one step", outliers(2, seed=5), 2, [1]),
    solving("3 groups of 8 numbers, 2 bits", outliers(3, seed=5), 2, [1, 2, 6]),
    solving("2 groups of 16 numbers, 2 bits, with numbers beyond the last level", outliers(2, 16, 47), 2, [1, 6], 0.6),
    solving("2 groups of 16 numbers, 3 bits", outliers(2, 16, seed=5), 3, [1, 3]),
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
