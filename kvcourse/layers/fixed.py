"""Storage of one size, made once: what a static layer uses. A compiled step needs addresses that never change."""

import copy

import torch

from .tensors import frozen, lies_on, ordinary, trimmed


class Counter:
    """Tokens seen so far: a number that lives in a tensor and is changed in place.

    A compiled step bakes in every Python number that it reads, and is compiled again when the number changes. A
    tensor it reads anew each time. Asked from plain Python the counter answers with an int; asked while a step is
    compiled, with a clone, which no later step changes. On an accelerator the int waits for the device. It is what
    allows an update that does not fit to be refused before anything has changed.
    """

    def __init__(self):
        self.value = None  # a 0-dim int64 tensor, once there is a device to put it on

    def start(self, device):
        """Count from zero on `device`; a meta tensor could not be read, so beside such tensors it stays on the CPU."""
        device = torch.device("cpu") if device.type == "meta" else device
        if self.value is None or self.value.device != device:
            self.value = stay(ordinary((), torch.empty((), device=device), torch.int64))
        self.restart()

    def read(self):
        """Tokens seen: an int, or a clone of the tensor while compiling."""
        if self.value is None:
            return 0
        return self.value.clone() if torch.compiler.is_compiling() else int(self.value)

    def restart(self):
        """Count from zero where it is."""
        if self.value is not None:
            self._writable().zero_()

    def set(self, number):
        """Go on from `number`."""
        self._writable().fill_(number)

    def add(self, number):
        """Count `number` more."""
        self._writable().add_(number)

    def _writable(self):
        if frozen(self.value):
            self.value = stay(trimmed(self.value))
        return self.value

    def __deepcopy__(self, memo):
        return copy.copy(self)  # through __getstate__

    def __getstate__(self):
        return {"value": None if self.value is None else trimmed(self.value)}

    def __setstate__(self, state):
        self.value = None if state["value"] is None else stay(trimmed(state["value"]))


class FixedBuffer:
    """`slots` slots for tokens, (batch, kv_heads, slots, head_dim), all made at once and filled with zeros.

    Token number p lies in slot p. Writing changes the buffer in place, so its address stays. A slot that is not
    filled yet holds zeros or what a crop left there: the mask has to hide it. Zeros alone would do no good: a score
    of 0 is not small. A copy or a pickle is packed: it holds its tokens alone, and takes up its slots again when it
    is read or written.

    Bytes: numel(one token) x slots x itemsize; packed, numel(one token) x tokens held x itemsize.
    """

    batch_dim = 0

    def __init__(self, slots, seen):
        self.slots = slots
        self.seen = seen  # the layer's Counter
        self.buffer = None
        self.packed = False

    @property
    def is_allocated(self):
        return self.buffer is not None

    @property
    def batch_size(self):
        """Rows of the batch; only asked of a buffer that exists."""
        return self.buffer.shape[0]

    @property
    def held(self):
        """Tokens held."""
        return min(self.seen.read(), self.slots)

    def suits(self, new):
        """Whether `new` has the layout that the buffer was made for."""
        if self.buffer is None or new.ndim != 4:
            return False
        mine, its = self.buffer.shape, new.shape
        same_shape = mine[0] == its[0] and mine[1] == its[1] and mine[3] == its[3]
        return same_shape and self.buffer.dtype == new.dtype and self.buffer.device == new.device

    def allocate(self, like):
        """Make the slots for tokens laid out as in `like`, (batch, kv_heads, any length, head_dim)."""
        shape = (*like.shape[:2], self.slots, like.shape[-1])
        self.buffer, self.packed = stay(ordinary(shape, like).zero_()), False

    def view(self):
        """All slots, the unfilled ones included. None before there are any."""
        self.unpack()
        return self.buffer

    def lend(self):
        """What `view` returns. Slots keep their address, so it changes with the cache; whoever keeps it clones it."""
        return self.view()

    def tokens(self):
        """The tokens held, in position order: a view."""
        return self.buffer if self.packed else self.buffer.narrow(-2, 0, self.held)

    def write(self, position, new):
        """Put `new` where its positions belong. `position`: that of the first, an int, or a tensor while a step is
        compiled: slots for which no graph has to know the number."""
        if isinstance(position, torch.Tensor):
            slots = torch.arange(new.shape[-2], device=new.device) + position
            self.buffer.index_copy_(-2, slots, new)
        else:
            self.buffer.narrow(-2, position, new.shape[-2]).copy_(new)

    def unpack(self):
        """Give the tokens of a copy all of its slots again; make slots that can't be written here ones that can."""
        if self.packed:
            tokens = self.buffer
            self.allocate(tokens)
            self._lay_out(tokens)
        elif self.buffer is not None and frozen(self.buffer):
            self.buffer = stay(trimmed(self.buffer))

    def _lay_out(self, tokens):
        self.buffer.narrow(-2, 0, tokens.shape[-2]).copy_(tokens)

    def clear(self):
        """Fill with zeros; the address stays."""
        if self.packed:
            self.buffer, self.packed = None, False
        elif self.buffer is not None:
            self.unpack()
            self.buffer.detach_().zero_()

    def set(self, tensor):
        """Hold `tensor`, as when a caller assigns `layer.keys`: its first tokens, as many as were held."""
        self.buffer, self.packed = tensor.narrow(-2, 0, min(self.held, tensor.shape[-2])), True

    def reorder(self, rows):
        """Rows `rows` of the batch, in that order: in place through a temporary where their number stays."""
        tokens = self.tokens()
        chosen = tokens.index_select(0, rows.to(self.buffer.device))
        if chosen.shape == tokens.shape and not self.packed and not frozen(self.buffer):
            self._lay_out(chosen)
        else:
            self.buffer, self.packed = trimmed(chosen), True
            self.unpack()

    def nbytes(self, device=None, used=False):
        """Bytes of the buffer if it lies on `device` (None: anywhere); with `used`, of the tokens alone."""
        if self.buffer is None or not lies_on(self.buffer, device):
            return 0
        batch, heads, slots, head_dim = self.buffer.shape
        return batch * heads * head_dim * self.buffer.element_size() * (self.held if used else slots)

    def __deepcopy__(self, memo):
        twin = copy.copy(self)  # through __getstate__
        twin.seen = copy.deepcopy(self.seen, memo)
        return twin

    def __getstate__(self):
        """What a pickle holds: the tokens in position order, and no slots."""
        if self.buffer is None:
            return self.__dict__
        return self.__dict__ | {"buffer": trimmed(self.tokens()), "packed": True}


def stay(tensor):
    """Promise the compiler that this tensor keeps its address, without which CUDA graphs copy it at every step."""
    if not torch.compiler.is_compiling():
        torch._dynamo.mark_static_address(tensor)
    return tensor
