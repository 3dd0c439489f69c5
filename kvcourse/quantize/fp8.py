"""Eight-bit floating point: float8_e4m3fn, a sign, 4 bits of exponent and 3 of fraction.

A float keeps its relative precision wherever the value lies, so the scale has one task: to bring a block into the
format's range, 2 ** -9 to 448. A power of two does that exactly, its exponent fits in one byte, and it leaves the
digits alone: a value reads back the same whichever block it arrived in, as long as it is more than 1 / 14,336 of
the largest one there. (The microscaling formats of the Open Compute Project share such an exponent, too.)
"""

from dataclasses import dataclass

import torch

from .block import Quantized, finite

FP8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FP8).max  # 448


@dataclass(frozen=True)
class Fp8:
    """Keeps one byte a value, and one scale for each row of the batch in each block, which is never changed later: what
    was small first can't clip what is large next. Decoding token by token, that is a scale per token.

    Relative error at most 2 ** -4 for values not under 1 / 14,336 of the largest in their block; below that, an error
    of at most 2 ** -10 of the scale. A block of zeros is exact. nan stays nan.

    The exponent is stored once for each token, so that a cut or a reorder needs no table of blocks:
    bytes = batch * tokens * (kv_heads * head_dim + 1).

    Mirrors `Fp8QuantizedLayer` of transformers, which fixes one scale for good at the first forward pass.
    """

    token_multiple = 1

    @torch.no_grad()
    def quantize(self, x):
        """(batch, kv_heads, tokens, head_dim), any float dtype -> Quantized: one block. ValueError for other shapes."""
        if x.ndim != 4:
            raise ValueError(f"expected (batch, kv_heads, tokens, head_dim), got shape {tuple(x.shape)}")
        batch, _, tokens, head_dim = x.shape
        values = x.to(torch.float32)
        exponent = torch.zeros(batch, 1, 1, 1, dtype=torch.int32, device=x.device)
        if x.numel():
            largest = values.abs().nan_to_num_(0, posinf=0).amax((1, 2, 3), keepdim=True)
            fraction, exponent = torch.frexp(largest / LARGEST)  # fraction * 2 ** exponent, 0.5 <= fraction < 1
            exponent = (exponent - (fraction == 0.5).int()).clamp(
                min=-126
            )  # the smallest that brings all to 448 or less
        codes = (values * torch.exp2(-exponent.float())).to(FP8).view(torch.uint8)
        scales = exponent.to(torch.int8).expand(batch, 1, tokens, 1).contiguous()
        return Quantized(codes, scales, None, head_dim)

    @torch.no_grad()
    def dequantize(self, q, dtype):
        """Quantized -> (batch, kv_heads, tokens, head_dim) in `dtype`. There are only 256 codes: looking each up in a
        table of their values is several times faster on a CPU than converting it."""
        table = torch.arange(256, dtype=torch.uint8, device=q.codes.device).view(FP8).float()
        values = table.index_select(0, q.codes.flatten().int()).view(q.codes.shape)
        return finite(values.mul_(torch.exp2(q.scales.float())), dtype)

    def metadata_rows(self, tokens):
        """How many rows of scales, along dimension 2, belong to the first `tokens` tokens."""
        return tokens

    def nbytes(self, batch, kv_heads, tokens, head_dim):
        """Bytes of codes and exponents."""
        return batch * tokens * (kv_heads * head_dim + 1)
