"""Affine groups: a group of values shares one scale and one offset, and each value keeps a small integer code.

    value  ~  code * scale + offset            code = 0 ... 2 ** bits - 1

`scale` is the step between two neighbouring levels, `offset` the value of code 0. (Papers often write
(code - zero) * scale; then offset = -zero * scale. The zero point of a group that lies far from 0 is a large number
that float16 rounds to another code; the offset is a value like the others.)

The two formats built on this, `groups.py` and `hqq.py`, differ in one method: how they fit scale and offset.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from .block import Quantized, finite
from .packing import pack, packed_bytes, unpack

PER_TOKEN = "per token"
PER_CHANNEL = "per channel"


@dataclass(frozen=True)
class AffineFormat:
    """Quantizes (batch, kv_heads, tokens, head_dim) by groups that never cross a head or a row of the batch.

    Per token: min(group_size, head_dim) values of one token; the last group of a token is shorter when head_dim is
    not a multiple. Per channel: group_size tokens of one channel; a block must hold whole groups. Whichever it is,
    codes are packed along head_dim, so that a token keeps bytes of its own.

    Bytes: `nbytes(...)`. Scales and offsets are float16, or float32 for 8 bits, where `exact_metadata` asks for it,
    and for a block in which float16 would lose something (see `_narrow`).
    """

    bits: int = 4
    grouping: str = PER_CHANNEL
    group_size: int = 64
    exact_metadata: bool = False

    name: ClassVar[str] = "affine"
    known_bits: ClassVar[tuple] = ()

    def __post_init__(self):
        if not isinstance(self.bits, int) or self.bits not in self.known_bits:
            known = ", ".join(map(str, self.known_bits))
            raise ValueError(f"{self.name} keeps {known} bits a value, got {self.bits!r}")
        if self.grouping not in (PER_TOKEN, PER_CHANNEL):
            raise ValueError(f"groups are {PER_TOKEN!r} or {PER_CHANNEL!r}, got {self.grouping!r}")
        if not isinstance(self.group_size, int) or self.group_size < 1:
            raise ValueError(f"a group holds at least 1 value, got group size {self.group_size!r}")

    def fit(self, groups, dim):
        """float32 groups with a group's values along `dim` -> (scale, offset), `dim` kept with size 1."""
        raise NotImplementedError

    @torch.no_grad()
    def quantize(self, x):
        """(batch, kv_heads, tokens, head_dim), any float dtype -> Quantized. What a group becomes depends on its own
        values alone: not on the tokens, heads or rows beside it. A group with a nan or an infinity decodes to nan.

        ValueError for another number of dimensions, and per channel for tokens that do not fill their groups.
        """
        if x.ndim != 4:
            raise ValueError(f"expected (batch, kv_heads, tokens, head_dim), got shape {tuple(x.shape)}")
        if x.shape[2] % self.token_multiple:
            raise ValueError(
                f"{PER_CHANNEL} groups of {self.group_size} tokens need a multiple of {self.group_size} tokens, got "
                f"{x.shape[2]}: keep the others in full precision until a group is full"
            )
        # The layout is fixed because sums depend on it: the keys of a model are often a transposed view.
        values = x.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        fitted = [self.fit(groups, self._dim + 1) for (groups,) in self._grouped(values)]
        scales, offsets = (self._joined(part) for part in zip(*fitted, strict=True))
        scales, offsets = self._narrow(scales, offsets)
        for groups, scale, offset in self._grouped(values, scales.float(), offsets.float()):
            groups.sub_(offset).div_(torch.where(scale > 0, scale, 1.0))  # one level only: any divisor gives code 0
        codes = values.round_().clamp_(0, self.levels).nan_to_num_(0).to(torch.uint8)
        return Quantized(pack(codes, self.bits), scales, offsets, x.shape[3])

    @torch.no_grad()
    def dequantize(self, q, dtype):
        """Quantized -> (batch, kv_heads, tokens, head_dim) in `dtype`, computed in float32. The tokens may end inside
        a group: its scale serves the tokens that are left."""
        values = unpack(q.codes, self.bits, q.head_dim).to(torch.float32)
        for groups, scale, offset in self._grouped(values, q.scales.float(), q.offsets.float()):
            groups.mul_(scale).add_(offset)
        return finite(values, dtype)

    @property
    def levels(self):
        """The largest code, which is also the number of steps between the lowest level and the highest."""
        return 2**self.bits - 1

    @property
    def token_multiple(self):
        """A block to be quantized holds a multiple of this many tokens."""
        return self.group_size if self.grouping == PER_CHANNEL else 1

    def metadata_rows(self, tokens):
        """How many rows of scales and offsets, along dimension 2, belong to the first `tokens` tokens."""
        return -(-tokens // self.token_multiple)

    def nbytes(self, batch, kv_heads, tokens, head_dim, float32=False):
        """Bytes of codes, scales and offsets. `float32`: whether the scales had to be kept in float32."""
        width = 4 if float32 or self.exact_metadata or self.bits == 8 else 2
        groups = head_dim if self.grouping == PER_CHANNEL else -(-head_dim // min(self.group_size, head_dim))
        metadata = self.metadata_rows(tokens) * groups * 2 * width
        return batch * kv_heads * (tokens * packed_bytes(head_dim, self.bits) + metadata)

    def _narrow(self, scales, offsets):
        """Store in float16 what float16 can hold: a group whose levels all stay within an eighth of a step of where
        they were. Codes are chosen afterwards, for the levels as stored, so no value is ever off by more than half a
        step. One group that fails (too large, too small, or far from 0 for its width) keeps its tensor in float32;
        the other groups keep their float16 values, so that they do not depend on it."""
        if self.bits == 8 or self.exact_metadata:  # over 255 steps float16 would lose an eighth of a step and more
            return scales, offsets
        short_scales, short_offsets = scales.half(), offsets.half()
        moved = (offsets - short_offsets).abs_() + (scales - short_scales).abs_().mul_(self.levels)
        harmless = moved <= scales / 8
        if harmless.all():
            return short_scales, short_offsets
        return torch.where(harmless, short_scales.float(), scales), torch.where(
            harmless, short_offsets.float(), offsets
        )

    def _joined(self, parts):
        """Scales or offsets of all groups along one dimension, from those of the whole groups and of the short one."""
        parts = [part.squeeze(self._dim + 1) for part in parts]
        return parts[0] if len(parts) == 1 else torch.cat(parts, self._dim)

    @property
    def _dim(self):
        """The dimension along which groups lie: tokens, or head_dim."""
        return 2 if self.grouping == PER_CHANNEL else 3

    def _grouped(self, values, *metadata):
        """Views of `values` with the values of a group along one new dimension, behind that of the groups: first all
        whole groups, then the short last one, if any; each with its part of the metadata, shaped to broadcast."""
        dim, size = self._dim, self.group_size
        if self.grouping == PER_TOKEN:
            size = min(size, values.shape[dim])
        whole, rest = divmod(values.shape[dim], size)
        groups = values.narrow(dim, 0, whole * size).unflatten(dim, (whole, size))
        yield groups, *(part.narrow(dim, 0, whole).unsqueeze(dim + 1) for part in metadata)
        if rest:
            groups = values.narrow(dim, whole * size, rest).unsqueeze(dim)
            yield groups, *(part.narrow(dim, whole, 1).unsqueeze(dim + 1) for part in metadata)
