"""A storage that keeps old tokens in few bits: what a quantized layer uses for its keys, and again for its values."""

import torch

from ..quantize import Quantized
from .storage import GrowingBuffer
from .tensors import tracks
from .window import WindowBuffer


class QuantizedBuffer:
    """Tokens in time order: first those that are kept as codes, then the last ones, kept exactly.

        codes codes codes codes | exact exact exact new
                                ^ moves to the right, a block at a time

    A block leaves the exact tokens as soon as more than `residual` of them are held, by as many as the format needs
    at once (`token_multiple`: 1, or a group of tokens). It is quantized then, appended to the codes, and never
    touched again. So which tokens are codes, and which codes, depends on the tokens and not on how they arrived.

    A crop may end inside a group of tokens. What is left of the group keeps its scale and ends a *run*; the next block
    starts another one. Each run is read back by itself.

    `format`: of `kvcourse.quantize`. `residual`: tokens that stay exact.
    """

    def __init__(self, format, residual):
        self.format, self.residual = format, residual
        self._exact = WindowBuffer(dim=2)
        self._codes, self._scales, self._offsets = (GrowingBuffer(dim=2) for _ in range(3))
        self._runs = []  # tokens of each run of codes; all but the last end inside a group

    def storages(self):
        """The buffers, each once: exact tokens (batch, kv_heads, tokens, head_dim), codes, scales, offsets."""
        return [self._exact, self._codes, self._scales, self._offsets]

    @property
    def is_allocated(self):
        return self._exact.is_allocated

    @property
    def buffer(self):
        """The buffer of the exact tokens: it has the layout, device and number format of all, even when it is empty."""
        return self._exact.buffer

    @property
    def quantized(self):
        """Tokens kept as codes."""
        return self._codes.length

    @property
    def length(self):
        """Tokens held."""
        return self._codes.length + self._exact.length

    def view(self):
        """All tokens held, (batch, kv_heads, tokens, head_dim), the quantized ones read back. None while empty."""
        return None if self.buffer is None else self._behind_history(self._exact.view())

    def lend(self):
        """What `view` returns, for someone who may keep it."""
        return None if self.buffer is None else self._behind_history(self._exact.lend())

    def append(self, new):
        """Add `new`, (batch, kv_heads, q_len, head_dim), and return all: history read back, new tokens as given.

        Tokens that leave the exact ones are quantized behind the back of the caller, who still gets them exact.
        What is kept carries no gradient; what is returned does, for the new tokens.
        """
        held = self._exact.length
        total = held + new.shape[2]
        leaving = max(total - self.residual, 0) // self.format.token_multiple * self.format.token_multiple
        recent = self._exact.append(new.detach(), keep=total - leaving)
        everything = self._behind_history(torch.cat([recent[:, :, :held], new], dim=2) if tracks(new) else recent)
        if leaving:
            self._store(self.format.quantize(recent[:, :, :leaving]))
        return everything

    def crop(self, length):
        """Keep the first `length` tokens. Memory is given back once less than half of a buffer is used."""
        self._exact.crop(max(length - self.quantized, 0))
        if length < self.quantized:
            self._cut_runs(length)
            self._codes.crop(length)
            for metadata in (self._scales, self._offsets):
                if metadata.is_allocated:
                    metadata.crop(sum(map(self.format.metadata_rows, self._runs)))

    def clear(self):
        """Forget everything, the memory included."""
        for storage in self.storages():
            storage.clear()
        self._runs = []

    def set(self, tensor):
        """Hold exactly `tensor`, as when a caller assigns `layer.keys`; its old tokens are quantized at the next
        `append`."""
        self.clear()
        self._exact.set(tensor.detach())

    def news(self, twin):
        """What `twin`, a copy that was appended to, holds and this one does not: new exact tokens and new blocks."""
        exact = min(twin.length - self.length, twin._exact.length)
        pairs = list(zip(self.storages()[1:], twin.storages()[1:], strict=True))
        blocks = [
            its.view().narrow(2, mine.length, its.length - mine.length) for mine, its in pairs if its.is_allocated
        ]
        return [twin._exact.view().narrow(2, twin._exact.length - exact, exact), *blocks]

    def follow(self, twin, news):
        """Take the `news`, which may come from another device. No token is quantized again.

        Tokens that became codes at once never cross. They pass through the exact ones here, too, as zeros, so that
        both buffers grow alike and what lies in which slot is the same on both sides.
        """
        skipped = twin.length - self.length - news[0].shape[2]
        passing = news[0].new_zeros((*news[0].shape[:2], skipped, news[0].shape[3]))
        self._exact.append(torch.cat([passing, news[0]], dim=2), keep=twin._exact.length)
        for storage, block in zip(self.storages()[1:], news[1:], strict=False):
            storage.append(block)
        self._runs = list(twin._runs)

    def _behind_history(self, recent):
        """`recent` tokens with the quantized ones, read back, before them."""
        return torch.cat([*self._read_back(), recent], dim=2) if self._runs else recent

    def _read_back(self):
        """The tokens of each run, (batch, kv_heads, tokens, head_dim), in the number format of the exact ones."""
        token = row = 0
        for tokens in self._runs:
            rows = self.format.metadata_rows(tokens)
            scales, offsets = (
                storage.buffer.narrow(2, row, rows) if storage.is_allocated else None
                for storage in (self._scales, self._offsets)
            )
            codes = self._codes.buffer.narrow(2, token, tokens)
            yield self.format.dequantize(Quantized(codes, scales, offsets, self.buffer.shape[-1]), self.buffer.dtype)
            token, row = token + tokens, row + rows

    def _store(self, block):
        """Put a quantized block behind the others."""
        self._codes.append(block.codes)
        self._scales.append(block.scales)
        if block.offsets is not None:
            self._offsets.append(block.offsets)
        if self._runs and self._runs[-1] % self.format.token_multiple == 0:
            self._runs[-1] += block.tokens
        else:
            self._runs.append(block.tokens)

    def _cut_runs(self, length):
        excess = self.quantized - length
        while excess:
            last = self._runs.pop()
            if last > excess:
                self._runs.append(last - excess)
            excess = max(excess - last, 0)
