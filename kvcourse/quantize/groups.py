"""Groups by largest range, the format of the "quanto" backend: lowest value, code 0; highest value, last code."""

from dataclasses import dataclass
from typing import ClassVar

from .affine import AffineFormat


@dataclass(frozen=True)
class MaxRange(AffineFormat):
    """Spreads the levels evenly from the smallest value of a group to its largest: no value is off by more than half
    a step, and one outlier makes the step wide for all that share its group. A group of equal values is exact.

    Mirrors `QuantoQuantizedLayer` of transformers (optimum-quanto's MaxOptimizer). Bytes: as `AffineFormat`.
    """

    name: ClassVar[str] = "quanto"
    known_bits: ClassVar[tuple] = (2, 4)

    def fit(self, groups, dim):
        lowest = groups.amin(dim, keepdim=True)
        highest = groups.amax(dim, keepdim=True)
        return (highest - lowest) / self.levels, lowest
