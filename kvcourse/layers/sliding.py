"""Sliding window, growing: keep what the next token can still see."""

from .base import AttentionLayer
from .window import WindowBuffer


class DynamicSlidingLayer(AttentionLayer):
    """Keys and values of the last tokens, as far back as a window reaches. Also used for chunked attention.

    A window of `sliding_window` tokens counts the token that looks, so the next token sees `sliding_window - 1` old
    ones.
    Keeps: the last min(length, sliding_window - 1) tokens; while recording, also all that came since the last `crop`.
    Drops: every older token, as soon as the update that brought it is over. Chunked attention starts anew at each
    chunk and could drop all of the last one; it keeps a window all the same, and the mask hides the rest.
    Bytes: 2 x batch x kv_heads x head_dim x capacity x itemsize (for values of the same head_dim as the keys).
    Capacity is min(n, sliding_window - 1) after a first update of n tokens, and never more than max(sliding_window,
    floor(1.25 x (sliding_window - 1))) as long as nothing is recorded; `WindowBuffer` has the rule.
    In transformers: `DynamicSlidingWindowLayer`, which copies the whole window for each new token.
    """

    is_sliding = True

    def __init__(self, sliding_window):
        if sliding_window < 1:
            raise ValueError(f"a window holds at least the current token; got sliding_window={sliding_window}")
        self.sliding_window = sliding_window
        self.record_past = False
        self._keys, self._values = WindowBuffer(), WindowBuffer()
        self._length = 0  # tokens seen; the last of them are held

    def update(self, key_states, value_states, *args, **kwargs):
        """Add q_len tokens, (batch, kv_heads, q_len, head_dim) each, and return what they can look at.

        Returns keys and values of (batch, kv_heads, kv_len, head_dim) in position order: the old tokens that a window
        reaches and all of the new ones, so that a long prompt is attended to before it is forgotten.
        """
        visible = self.get_mask_sizes(key_states.shape[-2])[0]
        keep = None if self.record_past else self.sliding_window - 1
        keys = self._keys.append(key_states, keep)
        values = self._values.append(value_states, keep)
        self._length += key_states.shape[-2]
        recorded = keys.shape[-2] - visible
        if recorded:
            return keys.narrow(-2, recorded, visible), values.narrow(-2, recorded, visible)
        return keys, values

    def get_seq_length(self):
        """Tokens seen, of which the window may have dropped most."""
        return self._length

    def get_max_length(self):
        """Tokens that one token can look at: the window."""
        return self.sliding_window

    def get_mask_sizes(self, query_length):
        """Length and first position of what the next update of `query_length` tokens returns."""
        visible = min(self._length, self.sliding_window - 1)
        return visible + query_length, self._length - visible

    def positions(self):
        """Absolute positions held: those of the window, and those recorded before them."""
        return list(range(self._first_position(), self._length))

    @property
    def is_croppable(self):
        """Whether the last token can be taken back: while recording, and as long as nothing it needs was dropped."""
        return self.record_past or self._reaches_back(1)

    def activate_past_recording(self):
        """Keep from now on what the window would drop, until the next `crop`."""
        self.record_past = True

    def check_crop(self, tokens_to_remove):
        if tokens_to_remove < 0 and not self._reaches_back(-tokens_to_remove):
            start = self._first_position()
            spare = self._length - start - (self.sliding_window - 1)
            raise RuntimeError(
                f"cannot remove {-tokens_to_remove} of {self._length} tokens: a window of {self.sliding_window} has "
                f"dropped the tokens before position {start}, so {spare} can go at most. Call "
                "activate_past_recording() before the forward that may be undone, or start again from an empty cache"
            )

    def crop(self, tokens_to_remove):
        """Roll back the last `-tokens_to_remove` tokens, and forget what was recorded beyond the window.

        RuntimeError where the window has dropped what would come back into sight.
        """
        self.check_crop(tokens_to_remove)
        if self.is_initialized:
            length = max(self._length + tokens_to_remove, 0)
            kept = min(length, self.sliding_window - 1)
            front = length - kept - self._first_position()
            for storage in self.storages():
                storage.cut(front, kept)
            self._length = length

    def reset(self):
        super().reset()
        self._length = 0

    def _first_position(self):
        """Position of the oldest token held."""
        return self._length - self._keys.length

    def _reaches_back(self, count):
        """Whether all that the window needs is held once `count` tokens are gone."""
        return self._first_position() <= max(self._length - count - (self.sliding_window - 1), 0)
