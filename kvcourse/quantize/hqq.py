"""Half-quadratic quantization, the format of the "hqq" backend: move the levels so that outliers are paid less for.

Source: Badri and Shaji, "Half-Quadratic Quantization of Large Machine Learning Models", 2023. The step comes from the
range of the group, as in `groups.py`. The zero point z (the code, a real number, that stands for 0) is sought for
which the residuals r = x - x', with x' the value that x is read back as, have the smallest lp norm, p = 0.7. A norm
below 1 forgives a few large residuals and asks for many small ones. It has no slope to follow at 0, so r gets a
stand-in e, held to it by a square, and two easy steps alternate:

    e = shrink(r)                         keep what is large in the residual: that counts as an outlier
    z = mean(codes - (x - e) / scale)     the best zero point for what is left, in closed form
"""

from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import torch

from .affine import AffineFormat

NORM = 0.7
BETA = 10.0  # how tightly e is held to r; constant, as a growing one ends 1 to 4 % worse at 1 and 2 bits
ITERATIONS = 20


@dataclass(frozen=True)
class HalfQuadratic(AffineFormat):
    """Starts as `MaxRange` does and improves the zero point of each group, so its mean absolute error is never larger.
    The largest error can be: a value beyond the moved levels is clipped.

    Makes 20 steps, or fewer if no zero point moves any more; each group keeps its best zero point. (The hqq package
    stops when the error of the whole tensor rises: what a token becomes depends on the tokens that arrive with it.)

    Mirrors `HQQQuantizedLayer` of transformers (the hqq package). Bytes: as `AffineFormat`.
    """

    name: ClassVar[str] = "hqq"
    known_bits: ClassVar[tuple] = (1, 2, 3, 4, 8)

    def fit(self, groups, dim):
        groups, scale, lowest = _start(groups, self.levels, dim)
        # To begin with, one level at the mean: with 1 bit the two levels may end too far out to be of more use.
        best_zero = -groups.mean(dim, keepdim=True) / scale
        best_error = _round(groups, scale, best_zero, self.levels)[1].abs().mean(dim, keepdim=True)
        previous = None
        for zero, error in islice(zero_points(groups, scale, self.levels, dim), ITERATIONS + 1):
            if previous is not None and torch.equal(zero, previous):  # nothing moved, so nothing will
                break
            previous = zero
            better = error < best_error
            best_zero = torch.where(better, zero, best_zero)
            best_error = torch.where(better, error, best_error)
        equal = groups.amax(dim, keepdim=True) == 0
        return scale.masked_fill(equal, 0.0), lowest - best_zero * scale


def zero_points(groups, scale, levels, dim):
    """Yield (zero point, mean absolute error) of each group, from round-to-nearest on, one pair a step, without end."""
    zero = torch.zeros_like(scale)
    while True:
        codes, residual = _round(groups, scale, zero, levels)
        yield zero, residual.abs().mean(dim, keepdim=True)
        zero = (codes - (groups - shrink(residual)) / scale).mean(dim, keepdim=True)


def _round(groups, scale, zero, levels):
    """(codes, residual): the nearest code of each value, and what it leaves over."""
    codes = (groups / scale + zero).round_().clamp_(0, levels)
    return codes, groups - (codes - zero) * scale


def shrink(residual):
    """The e that minimizes |e|^p + (beta / 2) (e - r)^2, to first order: r is moved towards 0 by |r|^(p - 1) / beta,
    which is little where r is large and everything where it is small."""
    size = residual.abs()
    # In float32 the last digit of a power depends on where in the tensor the number lies (a processor takes several at
    # once, and the rest one by one); codes would depend on which tokens arrive together. Float64 rounds that away.
    power = size.double().pow(NORM - 1).float()
    return residual.sign() * (size - power / BETA).clamp_(min=0)


def error_by_iteration(x, bits, dim=-1, iterations=ITERATIONS):
    """For a figure: mean absolute error over all of `x` before the first step and after each, with no stop and no
    memory of the best. `x` has the values of a group along `dim`. -> list of iterations + 1 floats."""
    groups, scale, _ = _start(x.float(), 2**bits - 1, dim)
    steps = zero_points(groups, scale, 2**bits - 1, dim)
    return [error.mean().item() for _, error in islice(steps, iterations + 1)]


def _start(groups, levels, dim):
    """(groups counted from their lowest value, scale, lowest value). From there the first zero point is 0, and a group
    far away from 0 loses no digits in the solver. Groups of equal values get scale 1: nothing is divided by 0."""
    lowest = groups.amin(dim, keepdim=True)
    groups = groups - lowest
    scale = groups.amax(dim, keepdim=True) / levels
    return groups, torch.where(scale > 0, scale, 1.0), lowest
