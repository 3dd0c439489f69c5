"""A storage that forgets at the front: what a sliding layer uses for its keys, and once more for its values."""

import torch

from .storage import GrowingBuffer
from .tensors import owned, tracks


class WindowBuffer(GrowingBuffer):
    """A growing buffer whose first tokens can be forgotten.

    Forgetting moves `first`, the slot of the oldest token held, and copies nothing. New tokens go behind the last
    one. When the end of the buffer is reached, the tokens still held move to the front of a new one with a quarter of
    spare room, so that each token is moved about four times in its life, as in `GrowingBuffer`. No slot is written
    twice (but after a `cut`), so views handed out earlier stay as they were.

    Capacity: exactly min(n, keep) after the first append of n tokens. Later, when n tokens do not fit behind the h
    that are held: max(h + n, floor(1.25 x h)) if that is at most max(keep + 1, floor(1.25 x keep)). More than that at
    once (a prompt in chunks) is joined in passing, and only its last `keep` tokens are copied into a buffer, of
    exactly that size. So a window never has more than a quarter of spare room. While everything is kept
    (`keep=None`) the buffer is larger; the `cut` that ends it leaves less than twice what is held.
    Bytes: numel(one token) x capacity x itemsize.
    """

    def __init__(self, dim=-2, batch_dim=0):
        super().__init__(dim, batch_dim)
        self.first = 0

    def view(self):
        """The tokens held: a view, not a copy. None before the first append."""
        if self.buffer is None:
            return None
        self._handed_out = max(self._handed_out, self.first + self.length)
        return self.buffer.narrow(self.dim, self.first, self.length)

    def append(self, new, keep=None):
        """Add `new` behind the tokens held and return all of them; from then on hold the last `keep` (None: all)."""
        total = self.length + new.shape[self.dim]
        kept = total if keep is None else min(total, keep)
        if self.length == 0:
            return self._hold_last(kept, new)
        crowded = keep is not None and total > max(keep + 1, keep + keep // 4)
        if crowded or tracks(self.buffer, new):
            self.moved_bytes += self.nbytes(used=True)
            return self._hold_last(kept, torch.cat([self.view(), new], dim=self.dim))
        end = self.first + self.length
        if self.first + total > self.capacity or not (self._accepts(new) and self._free(end)):
            self._move(max(total, self.length + self.length // 4), new.dtype)
        self._put(self.first + self.length, new)
        everything = self.buffer.narrow(self.dim, self.first, total)
        self._handed_out = self.first + total
        self.first, self.length = self.first + total - kept, kept
        return everything

    def cut(self, front, length):
        """Forget the `front` oldest tokens and hold the `length` after them. Less than half used: memory goes back."""
        self.first += front
        self.crop(length)

    def set(self, tensor):
        super().set(tensor)
        self.first = 0

    def _hold_last(self, kept, everything):
        """Copy the last `kept` tokens into a buffer of their own, so that nothing of the others stays. Returns all."""
        self._replace(owned(everything.narrow(self.dim, everything.shape[self.dim] - kept, kept)))
        return everything

    def _replace(self, tensor):
        super()._replace(tensor)
        self.first = 0

    def _move(self, capacity, dtype):
        super()._move(capacity, dtype)
        self.first = 0

    def __getstate__(self):
        return super().__getstate__() | {"first": 0}
