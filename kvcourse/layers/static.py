"""Full attention, fixed: room for all tokens, made at once."""

import torch

from .base import AttentionLayer
from .fixed import Counter, FixedBuffer


class StaticLayer(AttentionLayer):
    """Keys and values of every token, in buffers that are made once for `max_cache_len` tokens and never grow.

    Every step has the same shapes and addresses, which is what a compiled step needs. The price is memory for tokens
    that may never come, and attention that looks at unfilled slots, masked.
    Keeps: all tokens, `max_cache_len` at most. Drops: nothing; refuses what does not fit.
    Bytes: 2 x batch x kv_heads x head_dim x max_cache_len x itemsize (for values of the same head_dim as the keys),
    from the first update on. A copy or a pickle holds its tokens alone, 2 x batch x kv_heads x head_dim x length x
    itemsize, and takes up its slots again at the next update or crop, or when its keys are read.
    In transformers: `StaticLayer`, whose `get_seq_length` is the counter itself and changes after it was handed out.
    """

    is_compileable = True

    def __init__(self, max_cache_len):
        if max_cache_len < 1:
            raise ValueError(f"a static cache needs room for at least one token; got max_cache_len={max_cache_len}")
        self.max_cache_len = max_cache_len
        self._seen = Counter()
        self._keys, self._values = self._storage(), self._storage()

    def _storage(self):
        return FixedBuffer(self.max_cache_len, self._seen)

    def update(self, key_states, value_states, *args, **kwargs):
        """Write q_len tokens, (batch, kv_heads, q_len, head_dim) each, into the next free slots.

        Returns all slots, (batch, kv_heads, max_cache_len, head_dim), the unfilled ones included.
        """
        self.lazy_initialization(key_states, value_states)
        length = self._seen.read()
        self._keys.write(length, key_states)
        self._values.write(length, value_states)
        self._seen.add(key_states.shape[-2])
        return self._keys.buffer, self._values.buffer

    def get_seq_length(self):
        """Tokens seen: an int, or a tensor of its own while a step is compiled."""
        return self._seen.read()

    def get_max_length(self):
        """Tokens that fit."""
        return self.max_cache_len

    def get_mask_sizes(self, query_length):
        """Length and first position of what every update returns: all slots."""
        return self.max_cache_len, 0

    def positions(self):
        """Absolute positions held: all of them."""
        return list(range(self._seen.read()))

    def check_update(self, key_states, value_states):
        suited = self._keys.suits(key_states) and self._values.suits(value_states)
        if suited and key_states.shape[-2] == value_states.shape[-2]:
            return
        if not suited and self._can_begin_anew(key_states, value_states):
            return
        super().check_update(key_states, value_states)
        for name, new, storage in (("keys", key_states, self._keys), ("values", value_states, self._values)):
            if storage.is_allocated and new.dtype != storage.buffer.dtype:
                raise ValueError(
                    f"the cache was made for {name} of {storage.buffer.dtype}; the new ones are {new.dtype}. "
                    "Give early_initialization the model's dtype, or start from an empty cache"
                )

    def check_room(self, length):
        if isinstance(length, torch.Tensor):  # compiled: the graph asks when it runs, before its first write
            torch._assert_async(length <= self.max_cache_len, "more tokens than the static cache holds")
        elif length > self.max_cache_len:
            raise ValueError(
                f"this makes {length} tokens, and the static cache holds {self.max_cache_len} (max_cache_len): "
                "make it larger, crop it, or use a DynamicCache"
            )

    def lazy_initialization(self, key_states, value_states):
        """Make the slots for states of this layout, and put no token into them. Existing ones are kept."""
        if not (self._keys.suits(key_states) and self._values.suits(value_states)):
            self.check_update(key_states, value_states)
            self._keys.allocate(key_states)
            self._values.allocate(value_states)
            self._seen.start(key_states.device)
        self._unpack()

    def crop(self, tokens_to_remove):
        """Roll back the last `-tokens_to_remove` tokens; more than there are empties the layer.

        Only the counter changes. The slots keep what they held until it is written over; the mask hides them.
        """
        self.check_crop(tokens_to_remove)
        if tokens_to_remove and self.is_initialized:
            self._unpack()
            self._seen.set(max(self._seen.read() + tokens_to_remove, 0))

    def reset(self):
        """Forget everything, and keep the buffers where they are. Another batch size gets new ones."""
        super().reset()
        self._seen.restart()

    def _unpack(self):
        self._keys.unpack()
        self._values.unpack()

    _is_bound = True  # `_can_begin_anew` is asked first

    def _can_begin_anew(self, key_states, value_states):
        """Whether states of another layout may replace the buffers: they agree with each other, and nothing is held."""
        agree = key_states.ndim == value_states.ndim == 4 and key_states.shape[:3] == value_states.shape[:3]
        agree = agree and key_states.device == value_states.device
        return agree and self._seen.read() == 0
