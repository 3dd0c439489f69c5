"""Sliding window, fixed: a ring of slots, made at once."""

import torch

from .ring import RingBuffer
from .static import StaticLayer


class StaticSlidingLayer(StaticLayer):
    """Keys and values of the last tokens, in slots that are made once and used again and again.

    Keeps: the last min(length, sliding_window) tokens. Drops: every older one, so the text may be longer than
    `max_cache_len`. Where the text can't be longer than the window (max_cache_len < sliding_window), it is a
    `StaticLayer`: it keeps all tokens, and refuses what does not fit rather than lose what the window still reaches.
    Bytes: 2 x batch x kv_heads x head_dim x slots x itemsize (for values of the same head_dim as the keys), where
    slots is 2 x sliding_window (each token is written twice, see `RingBuffer`), or max_cache_len where that is below
    the window. A copy or a pickle holds its tokens alone until it is used.
    In transformers: `StaticSlidingWindowLayer`, which shifts the whole window by one for each new token, and counts
    with a Python number, so that a compiled step is compiled again whenever it looks at that number.
    """

    is_sliding = True

    def __init__(self, max_cache_len, sliding_window):
        if sliding_window < 1:
            raise ValueError(f"a window holds at least the current token; got sliding_window={sliding_window}")
        self.sliding_window = sliding_window
        self._is_ring = max_cache_len >= sliding_window
        super().__init__(min(max_cache_len, sliding_window))

    def _storage(self):
        return RingBuffer(self.sliding_window, self._seen) if self._is_ring else super()._storage()

    def update(self, key_states, value_states, *args, **kwargs):
        """Add q_len tokens, (batch, kv_heads, q_len, head_dim) each, and return what they can look at.

        Returns keys and values of (batch, kv_heads, kv_len, head_dim) in position order. One token, or as many as fit
        into the window: all `sliding_window` slots, of which the last may be unfilled. More: the old tokens that a
        window reaches and all of the new ones. A compiled step brings one token at a time.
        """
        if not self._is_ring:
            return super().update(key_states, value_states)
        self.lazy_initialization(key_states, value_states)
        count, length = key_states.shape[-2], self._seen.read()
        in_place = count == 1 or length + count <= self.sliding_window
        joined = None if in_place else self._joined(key_states, value_states, length)
        dropped = max(count - self.sliding_window, 0)  # new tokens that the window has left already
        self._keys.write(length + dropped, key_states[:, :, dropped:])
        self._values.write(length + dropped, value_states[:, :, dropped:])
        self._seen.add(count)
        return joined or (self._keys.turn(length + count), self._values.turn(length + count))

    def _joined(self, key_states, value_states, length):
        """The tokens that the first new one can still see, and the new ones behind them."""
        old = min(length, self.sliding_window - 1)
        if old == 0:
            return key_states, value_states
        held = [storage.tokens() for storage in self.storages()]
        keys, values = (tokens.narrow(-2, tokens.shape[-2] - old, old) for tokens in held)
        return torch.cat([keys, key_states], dim=-2), torch.cat([values, value_states], dim=-2)

    def get_mask_sizes(self, query_length):
        """Length and first position of what the next update of `query_length` tokens returns."""
        if not self._is_ring:
            return super().get_mask_sizes(query_length)
        window, length = self.sliding_window, self._seen.read()
        in_place = query_length == 1 or length + query_length <= window
        offset = length + query_length - window if in_place else length - (window - 1)
        offset = offset.clamp(min=0) if isinstance(offset, torch.Tensor) else max(offset, 0)
        return (window if in_place else length - offset + query_length), offset

    def positions(self):
        """Absolute positions held: the last `sliding_window`, or all."""
        length = self._seen.read()
        return list(range(max(length - self.max_cache_len, 0), length))

    def check_room(self, length):
        if not self._is_ring:
            super().check_room(length)

    @property
    def is_croppable(self):
        """Whether the last tokens can be taken back: as long as no slot was used a second time."""
        return self._seen.read() <= self.max_cache_len

    def check_crop(self, tokens_to_remove):
        if tokens_to_remove < 0 and not self.is_croppable:
            raise RuntimeError(
                f"cannot remove {-tokens_to_remove} of {self.get_seq_length()} tokens: a static window of "
                f"{self.sliding_window} slots has written over the older ones. Crop before the text is longer than the "
                "window, use a DynamicCache with activate_past_recording(), or start again from an empty cache"
            )
