"""Full attention, growing: keep everything."""

from .base import AttentionLayer
from .storage import GrowingBuffer


class DynamicLayer(AttentionLayer):
    """Keys and values of every token seen, in buffers that grow a quarter at a time.

    Keeps: all tokens. Drops: nothing, until `crop`.
    Bytes: 2 x batch x kv_heads x head_dim x capacity x itemsize (for values of the same head_dim as the keys).
    Capacity is exactly n after a first update of n tokens; when n tokens do not fit, max(n, floor(1.25 x capacity)).
    In transformers: `DynamicLayer`, which concatenates instead, and so copies the whole layer for each new token.
    """

    def __init__(self):
        self._keys, self._values = GrowingBuffer(), GrowingBuffer()

    def update(self, key_states, value_states, *args, **kwargs):
        """Append q_len tokens, (batch, kv_heads, q_len, head_dim) each, and return all that are held.

        Returns keys and values of (batch, kv_heads, kv_len, head_dim) in position order; no spare room among them.
        """
        return self._keys.append(key_states), self._values.append(value_states)

    def get_seq_length(self):
        """Tokens seen, which are the tokens held."""
        return self._keys.length

    def get_mask_sizes(self, query_length):
        """Length and first position of what the next update of `query_length` tokens returns."""
        return self._keys.length + query_length, 0

    def positions(self):
        """Absolute positions held: all of them."""
        return list(range(self._keys.length))

    def crop(self, tokens_to_remove):
        """Roll back the last `-tokens_to_remove` tokens; more than there are empties the layer."""
        if tokens_to_remove and self.is_initialized:
            length = max(self._keys.length + tokens_to_remove, 0)
            self._keys.crop(length)
            self._values.crop(length)
