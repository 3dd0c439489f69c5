"""Number formats: keys and values in fewer bits.

A format is a small frozen object with `quantize(x) -> Quantized` and `dequantize(q, dtype)`, for x of shape
(batch, kv_heads, tokens, head_dim); `nbytes(...)`, its bytes as a formula; `token_multiple`, the number of tokens
that blocks must be a multiple of; and `metadata_rows(tokens)`. It keeps no state: blocks are stored by the layer.

    packing.py  codes of 1, 2, 3, 4, 8 bits in bytes
    block.py    Quantized: the tensors of a block; cut, join, reorder
    affine.py   groups that share a scale and an offset
    groups.py   ... fitted to the largest range ("quanto")
    hqq.py      ... improved by the half-quadratic solver ("hqq")
    fp8.py      one byte of floating point a value ("fp8")
"""

from .affine import PER_CHANNEL, PER_TOKEN, AffineFormat
from .block import Quantized, join
from .fp8 import Fp8
from .groups import MaxRange
from .hqq import HalfQuadratic, error_by_iteration
from .packing import BITS, pack, packed_bytes, unpack

__all__ = [
    "BITS",
    "PER_CHANNEL",
    "PER_TOKEN",
    "AffineFormat",
    "Fp8",
    "HalfQuadratic",
    "MaxRange",
    "Quantized",
    "error_by_iteration",
    "grouping",
    "join",
    "make_format",
    "pack",
    "packed_bytes",
    "unpack",
]

# The two packages number their axes differently for the same two ways of grouping.
AXES = {
    "hqq": {1: PER_TOKEN, 0: PER_CHANNEL},
    "quanto": {0: PER_TOKEN, -1: PER_CHANNEL},
}
FORMATS = {"hqq": HalfQuadratic, "quanto": MaxRange}


def grouping(backend, axis):
    """What an axis of a backend means: PER_TOKEN or PER_CHANNEL. ValueError for an unknown backend or axis."""
    if backend not in AXES:
        raise ValueError(f"backends with axes are {', '.join(AXES)}, got {backend!r}")
    if axis not in AXES[backend]:
        known = ", ".join(f"{number} ({meaning})" for number, meaning in AXES[backend].items())
        raise ValueError(f"axes of {backend} are {known}, got {axis!r}")
    return AXES[backend][axis]


def make_format(backend, bits=None, grouping=None, group_size=None):
    """The format of a backend by name; None stands for the default (4 bits, per channel, groups of 64). ValueError for
    an unknown backend or a value it cannot honour; "fp8" has no options, so that giving one is an error that names it.
    """
    options = {"bits": bits, "grouping": grouping, "group_size": group_size}
    given = {name: value for name, value in options.items() if value is not None}
    if backend == "fp8":
        if given:
            raise ValueError(f"the fp8 backend has no options, got {', '.join(given)}: leave out, or use hqq or quanto")
        return Fp8()
    if backend not in FORMATS:
        raise ValueError(f"backends are {', '.join(FORMATS)}, fp8, got {backend!r}")
    return FORMATS[backend](**given)
