"""Two storages of constant size: what a layer remembers instead of keys.

A recurrent state is rewritten at each step: no token can be taken out of it again. A short convolution over time has
to see its last few inputs once more, so its state is a small window of them."""

import torch
from torch.nn.functional import pad

from .fixed import stay
from .storage import GrowingBuffer
from .tensors import frozen, lies_on, tracks, trimmed


class RecurrentState:
    """One tensor (batch, ...), overwritten in place at each step, so that its address stays.

    Bytes: numel x itemsize, whatever the length of the text.
    `keep`: a `clear` keeps memory and address for the next text, as compiled steps need.
    """

    batch_dim = 0

    def __init__(self, keep=False):
        self.buffer, self.keep, self.spare = None, keep, None
        self.assigned = False  # whether the buffer is a caller's tensor, which is not written over

    @property
    def is_allocated(self):
        return self.buffer is not None

    @property
    def batch_size(self):
        """Rows of the batch; only asked of a state that exists."""
        return self.buffer.shape[0]

    def view(self):
        """The state, or None. Models write into it."""
        if self.buffer is not None and (self.assigned or frozen(self.buffer)):
            self._hold(_held(self.buffer))
        return self.buffer

    def write(self, new):
        """Remember `new` and return what is held, in the number format of the first write."""
        if self.buffer is None:
            self.buffer, self.spare = _usable(self.spare, new), None
        if self.assigned or not _overwrite(self.buffer, new):
            self._hold(_held(new, self.buffer))
        return self.buffer

    def set(self, tensor):
        """Hold exactly `tensor`."""
        self.buffer, self.assigned = tensor, True

    def clear(self):
        """Forget the state."""
        if self.buffer is not None:
            ours = self.keep and not (self.buffer.requires_grad or self.assigned or self.buffer.is_inference())
            self.spare = self.buffer if ours else None
        self.buffer, self.assigned = None, False

    def reorder(self, rows):
        """Rows `rows` of the batch, in that order: in place where their number stays."""
        picked = self.buffer.index_select(0, rows.to(self.buffer.device))
        if self.assigned or not _overwrite(self.buffer, picked):
            self._hold(_held(picked))

    def _hold(self, buffer):
        self.buffer, self.assigned = buffer, False

    def nbytes(self, device=None, used=False):
        """Bytes of the tensor if it lies on `device` (None: anywhere); with `used`, without memory kept for later."""
        return sum(_bytes(tensor, device) for tensor in (self.buffer, None if used else self.spare))

    def __deepcopy__(self, memo):
        memo[id(self)] = twin = type(self)(self.keep)
        twin.buffer = None if self.buffer is None else _held(self.buffer.detach())
        return twin

    def __getstate__(self):
        return self.__dict__ | {
            "buffer": None if self.buffer is None else trimmed(self.buffer),
            "spare": None,
            "assigned": False,
        }


class ConvState(GrowingBuffer):
    """The last `kernel_size` inputs (batch, channels, time) of a short convolution; all of them while recording.

    Without recording it is exactly `kernel_size` wide, with zeros to the left of a shorter text, and models write into
    it in place. With recording, inputs are appended, and `remove` takes them away again.
    Bytes: batch x channels x capacity x itemsize. Capacity is `kernel_size`; while recording, as in `GrowingBuffer`.
    """

    def __init__(self, dim=-1, batch_dim=0, keep=False):
        super().__init__(dim, batch_dim)
        self.keep, self.spare = keep, None
        self.kernel_size = None
        self.from_start = False  # whether the first input of the text is still held
        self.recorded = 0  # how many of the last inputs can be taken back

    def view(self):
        """The inputs held, or None before the first one. Models write into them."""
        if self.buffer is not None and (self._lent or frozen(self.buffer)):
            self._replace(_held(super().view()))
        return self.buffer if self.length == self.capacity else super().view()

    def feed(self, new, kernel_size, recording):
        """Add `new` inputs; return what the convolution has to look at: the held inputs it reaches, then `new`."""
        if self.buffer is None:
            self.kernel_size, self.from_start = kernel_size or new.shape[-1], recording
            if not recording:
                return self._hold_end_of(new)
        elif not recording:
            return self._hold_end_of(torch.cat([self.view(), new], dim=-1))
        self.spare = None  # a record grows: memory kept for a window is of no use to it
        reach = min(self.length, self.kernel_size) + new.shape[-1]
        self.recorded += new.shape[-1]
        record = self.append(new)
        return record[..., record.shape[-1] - reach :]

    def can_remove(self, count):
        """Whether the last `count` inputs can be taken back."""
        return self.from_start or count <= self.recorded

    def remove(self, count):
        """Take back the last `count` inputs, and keep no more than the next step looks at."""
        length = max(self.length - count, 0)
        kept = min(length, self.kernel_size)
        self.from_start = self.from_start and kept == length
        self.recorded = kept if self.from_start else 0
        if kept == 0:
            self.clear()
        elif kept < self.capacity:
            self._replace(_held(self.buffer[..., length - kept : length]))

    def end_record(self):
        """Go back to a window of exactly `kernel_size` inputs that can't be taken back."""
        if self.buffer is not None:
            self._hold_end_of(self.view())
            self.from_start, self.recorded = False, 0

    def set(self, tensor):
        """Hold exactly `tensor`."""
        super().set(tensor)
        self.kernel_size = self.kernel_size or tensor.shape[-1]
        self.from_start, self.recorded = False, 0

    def clear(self):
        """Forget the inputs."""
        if self.buffer is not None:
            ours = not (self.buffer.requires_grad or self._lent or self.buffer.is_inference())
            self.spare = self.buffer if self.keep and ours and self.capacity == self.kernel_size else None
        super().clear()
        self.kernel_size, self.from_start, self.recorded = None, False, 0

    def reorder(self, rows):
        """Rows `rows` of the batch, in that order; in place where their number stays."""
        picked = self.view().index_select(0, rows.to(self.buffer.device))
        if not _overwrite(self.view(), picked):
            self._replace(_held(picked))

    def nbytes(self, device=None, used=False):
        """Bytes of the buffer if it lies on `device` (None: anywhere); with `used`, of the inputs held alone."""
        return super().nbytes(device, used) + (0 if used else _bytes(self.spare, device))

    def _hold_end_of(self, inputs):
        """Hold the last `kernel_size` of these inputs and return all, with zeros to the left if they are fewer."""
        if inputs.shape[-1] < self.kernel_size:
            inputs = pad(inputs, (self.kernel_size - inputs.shape[-1], 0))
        window = inputs[..., inputs.shape[-1] - self.kernel_size :]
        kept, self.spare = _usable(self.spare, window), None
        if kept is not None:
            self._replace(kept)
        if not _overwrite(self.buffer, window):
            self._replace(_held(window, self.buffer))
        return inputs

    def __deepcopy__(self, memo):
        twin = super().__deepcopy__(memo)
        for name in ("keep", "kernel_size", "from_start", "recorded"):
            setattr(twin, name, getattr(self, name))
        return twin

    def __getstate__(self):
        return super().__getstate__() | {"spare": None}


def _overwrite(buffer, new):
    """Write `new` into the memory of `buffer`, where that is possible; whether it was.

    Autograd may need the values that are lost: states that it follows are never overwritten.
    """
    if buffer is None or buffer.shape != new.shape or buffer.requires_grad or tracks(new) or frozen(buffer):
        return False
    buffer.copy_(new)
    return True


def _held(new, before=None):
    """An independent tensor with the values of `new`, in the number format of `before`, made to be overwritten."""
    new = new if before is None else new.to(before.dtype)
    return new.clone() if tracks(new) else stay(trimmed(new))


def _usable(spare, new):
    """Memory kept from an earlier text, if it fits `new`; else None."""
    fits = spare is not None and (spare.shape, spare.dtype, spare.device) == (new.shape, new.dtype, new.device)
    return spare if fits else None


def _bytes(tensor, device):
    return tensor.numel() * tensor.element_size() if tensor is not None and lies_on(tensor, device) else 0
