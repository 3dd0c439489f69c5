"""Storages: tensors that hold one kind of state of one layer, and know how to grow, move and shrink.

A layer is a storage and a rule for what it keeps. The storage below grows: it is what a dynamic layer
uses for its keys, and once more for its values.
"""

import torch

from .tensors import frozen, lies_on, ordinary, owned, tracks, trimmed


class GrowingBuffer:
    """A tensor that grows along one dimension, a quarter at a time.

    Keeps every token appended until it is cropped. Appending one token writes that token in place,
    as long as there is spare room; when there is none, the buffer is copied into one that is a
    quarter larger. Growing by a *factor* is what makes an append cost the same, amortized, at any
    length: each token is moved four to five times in its life, however long the text becomes.

    Capacity: exactly n after the first append; later, when n tokens do not fit, max(n, floor(1.25 x capacity)).
    Bytes: numel(one token) x capacity x itemsize.

    What others hold is not written over. An assigned tensor stays its owner's, and so do views read through `lend`:
    a write to their slots goes to a new buffer. Views that `append` returned are used up within the forward, but
    autograd may keep them longer, so with gradients on they count, too.

    `moved_bytes` counts the bytes of old tokens that growth had to copy.
    """

    def __init__(self, dim=-2, batch_dim=0):
        self.dim = dim
        self.batch_dim = batch_dim
        self.buffer = None
        self.length = 0
        self.moved_bytes = 0
        self._handed_out = 0  # slots that were returned, so that autograd may need them
        self._lent = 0  # slots that someone else may hold for as long as they like

    @property
    def is_allocated(self):
        return self.buffer is not None

    @property
    def batch_size(self):
        """Rows of the batch; only asked of a buffer that exists."""
        return self.buffer.shape[self.batch_dim]

    @property
    def capacity(self):
        """Tokens that fit before the buffer has to grow."""
        return 0 if self.buffer is None else self.buffer.shape[self.dim]

    def view(self):
        """The tokens held, without the spare room: a view, not a copy. None before the first append."""
        if self.buffer is None:
            return None
        self._handed_out = max(self._handed_out, self.length)
        return self.buffer.narrow(self.dim, 0, self.length)

    def lend(self):
        """What `view` returns, for someone who may keep it: it stays as it is, whatever happens here later."""
        tokens = self.view()
        self._lent = self._handed_out
        return tokens

    def append(self, new):
        """Add `new` (`new.shape[dim]` tokens) behind the tokens held and return the view of all."""
        end = self.length + new.shape[self.dim]
        if self.buffer is None or (self.length == 0 and not self._like(new)):
            self._replace(owned(new))
        elif tracks(self.buffer, new):
            # Autograd may need the old values, so they are not written over.
            self._replace(torch.cat([self.view(), new], dim=self.dim))
        else:
            if end > self.capacity:
                self._move(max(end, self.capacity + self.capacity // 4), new.dtype)
            elif not (self._accepts(new) and self._free(self.length)):
                self._move(self.capacity, new.dtype)
            self._write(new, end)
        return self.view()

    def crop(self, length):
        """Keep the first `length` tokens. Memory is given back once less than half of it is used."""
        self.length = length
        if 2 * length < self.capacity:
            self._replace(owned(self.view()))

    def clear(self):
        """Forget everything, the memory included."""
        self.buffer, self.length, self.moved_bytes, self._handed_out, self._lent = None, 0, 0, 0, 0

    def set(self, tensor):
        """Hold exactly `tensor`, as when a caller assigns `layer.keys`. It is read, and never written."""
        self._replace(tensor)
        self._handed_out = self._lent = self.length

    def reorder(self, indices):
        """Rows `indices` of the batch, in that order. In place through a temporary where the size stays."""
        rows = self.view().index_select(self.batch_dim, indices.to(self.buffer.device))
        if rows.shape == self.view().shape and not self.buffer.requires_grad and self._free(0):
            self.view().copy_(rows)
        else:
            self._replace(rows if not rows.is_inference() else trimmed(rows))

    def nbytes(self, device=None, used=False):
        """Bytes of the buffer if it lies on `device` (None: anywhere); with `used`, of the tokens alone."""
        if self.buffer is None or not lies_on(self.buffer, device):
            return 0
        per_token = self.buffer.element_size() * self.buffer.numel() // max(self.capacity, 1)
        return per_token * (self.length if used else self.capacity)

    def _replace(self, tensor):
        self.buffer, self.length, self._handed_out, self._lent = tensor, tensor.shape[self.dim], 0, 0

    def _like(self, new):
        """Whether `new` is laid out as the buffer, but for its length."""
        mine, its = list(self.buffer.shape), list(new.shape)
        del mine[self.dim], its[self.dim]
        return mine == its and self.buffer.device == new.device

    def _free(self, slot):
        """Whether the slots from `slot` on may be written over here and now."""
        held = self._handed_out if torch.is_grad_enabled() else self._lent
        return slot >= held and not frozen(self.buffer)

    def _accepts(self, new):
        """Whether `new` can be written in place: no wider number format, and no gradient that remembers the buffer."""
        same = self.buffer.dtype == new.dtype or torch.promote_types(self.buffer.dtype, new.dtype) == self.buffer.dtype
        return same and not self.buffer.requires_grad

    def _move(self, capacity, dtype):
        shape = list(self.buffer.shape)
        shape[self.dim] = capacity
        larger = ordinary(shape, self.buffer, torch.promote_types(self.buffer.dtype, dtype))
        with torch.no_grad():
            larger.narrow(self.dim, 0, self.length).copy_(self.view())
        self.moved_bytes += self.nbytes(used=True)
        self.buffer, self._handed_out, self._lent = larger, 0, 0

    def _write(self, new, end):
        self._put(self.length, new)
        self.length = end

    def _put(self, slot, new):
        # Autograd counts every write to a tensor and refuses to go backward through one that changed. With gradients
        # on, only slots that nobody has seen are written, and such a write need not be counted.
        target = self.buffer.data if torch.is_grad_enabled() else self.buffer
        target.narrow(self.dim, slot, new.shape[self.dim]).copy_(new)

    def __deepcopy__(self, memo):
        twin = type(self)(self.dim, self.batch_dim)
        if self.buffer is not None:
            twin._replace(trimmed(self.view()))
        memo[id(self)] = twin
        return twin

    def __getstate__(self):
        """What a pickle holds: the tokens, and nothing that only this process could use."""
        state = self.__dict__.copy()
        if self.buffer is not None:
            state["buffer"] = trimmed(self.view())
        state["moved_bytes"] = state["_handed_out"] = state["_lent"] = 0
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        if self.buffer is not None and self.buffer.is_inference():  # read in inference mode
            self.buffer = trimmed(self.buffer)
