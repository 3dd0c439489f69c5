"""A ring that reads in order: what a static sliding layer uses."""

import torch

from .fixed import FixedBuffer


class RingBuffer(FixedBuffer):
    """The last `window` tokens, in a ring that always reads in position order.

    A ring of `window` slots puts token p into slot p mod window, over the token that has just left the window. Read
    as it lies, it starts in the middle: the newest token may stand left of the oldest. Here each token is written
    twice, into slot p mod window and `window` slots further on. Then any `window` slots in a row are one turn of the
    ring, and the turn that begins with the oldest token is in order: a view, whose start moves on by one slot for
    each token.

    Bytes: numel(one token) x 2 x window x itemsize; packed, numel(one token) x tokens held x itemsize.
    """

    def __init__(self, window, seen):
        super().__init__(2 * window, seen)
        self.window = window

    @property
    def held(self):
        return min(self.seen.read(), self.window)

    def turn(self, length):
        """`window` slots from the oldest token on, when `length` tokens have been seen; the unfilled ones are last.

        A view for an int; gathered by tensor indices for a tensor, since a compiled step can't move the start of a
        view.
        """
        if isinstance(length, torch.Tensor):
            start = torch.where(length > self.window, length % self.window, 0)
            return self.buffer.index_select(-2, start + torch.arange(self.window, device=length.device))
        return self.buffer.narrow(-2, length % self.window if length > self.window else 0, self.window)

    def view(self):
        """The tokens in position order, in `window` slots. None before there are any."""
        self.unpack()
        return None if self.buffer is None else self.turn(self.seen.read())

    def tokens(self):
        return self.buffer if self.packed else self.turn(int(self.seen.read())).narrow(-2, 0, self.held)

    def write(self, position, new):
        """Put `new`, `window` tokens at most, where its positions belong, twice each. `position`: that of the first,
        an int, or a tensor while a step is compiled: slots for which no graph has to know the number."""
        count = new.shape[-2]
        if isinstance(position, torch.Tensor):
            slots = (position + torch.arange(count, device=new.device)) % self.window
            self.buffer.index_copy_(-2, torch.cat([slots, slots + self.window]), new.repeat(1, 1, 2, 1))
            return
        first = position % self.window
        before_end = min(count, self.window - first)  # tokens up to the end of the ring; the others begin it again
        self.buffer.narrow(-2, first, count).copy_(new)
        self.buffer.narrow(-2, first + self.window, before_end).copy_(new.narrow(-2, 0, before_end))
        if before_end < count:
            self.buffer.narrow(-2, 0, count - before_end).copy_(new.narrow(-2, before_end, count - before_end))

    def _lay_out(self, tokens):
        self.write(self.seen.read() - tokens.shape[-2], tokens)
