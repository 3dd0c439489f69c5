"""What a number format keeps of a block of tokens: codes, and what is needed to read them."""

from dataclasses import dataclass, fields, replace

import torch


@dataclass(frozen=True)
class Quantized:
    """Keys or values of a run of tokens in few bits. Every tensor has batch first and goes forward in time along
    dimension 2, so that cutting, joining and reordering are plain index operations and nothing is quantized again.

    codes    uint8 (batch, kv_heads, tokens, bytes of a packed row of head_dim codes)
    scales   (batch, kv_heads, tokens, groups) per token, (batch, kv_heads, token_groups, head_dim) per channel,
             (batch, 1, tokens, 1) for fp8
    offsets  the same shape as scales: the value that code 0 stands for; None for fp8
    head_dim how many codes a packed row holds
    """

    codes: torch.Tensor
    scales: torch.Tensor
    offsets: torch.Tensor | None
    head_dim: int

    @property
    def tokens(self):
        return self.codes.shape[2]

    def tensors(self):
        """The tensors that are there, by name."""
        everything = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in everything.items() if isinstance(value, torch.Tensor)}

    def nbytes(self):
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def map(self, change):
        """A copy with `change` applied to each tensor, such as `lambda t: t.index_select(0, beams)`."""
        return replace(self, **{name: change(tensor) for name, tensor in self.tensors().items()})

    def first(self, tokens, rows):
        """Views of the first `tokens` tokens. `rows` is the format's `metadata_rows(tokens)`: the last group that is
        kept may have lost some of its tokens; its scale still serves the others."""
        cut = {name: tensor[:, :, :rows] for name, tensor in self.tensors().items()}
        return replace(self, **cut | {"codes": self.codes[:, :, :tokens]})


def join(blocks):
    """Blocks of one format, one after the other. All but the last must hold whole groups. Where one block needed
    float32 for its scales, the joined scales are float32 (the others' values do not change by that)."""
    names = blocks[0].tensors()
    return replace(blocks[0], **{name: torch.cat([getattr(b, name) for b in blocks], dim=2) for name in names})


def finite(values, dtype):
    """`values` in `dtype`; they are float32 and may be changed. What a code is read back as may lie past the largest
    number of float16: then that number is meant, not infinity. nan stays nan."""
    largest = min(torch.finfo(dtype).max, torch.finfo(torch.float32).max)
    return values.clamp_(-largest, largest).to(dtype)
