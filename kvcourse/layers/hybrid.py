"""A layer with both: attention over keys, and a state beside it."""

from .base import Layer


class HybridLayer(Layer):
    """A pair of layers under one index: `linear` keeps the states, `attention` the keys and values.

    Keeps, drops: what its two parts keep and drop. Bytes: the sum of theirs. An operation reaches both parts, or is
    refused before it changes either. Lengths, masks and positions are those of the attention part.
    In transformers: `LinearAttentionAnd...AttentionLayer`, a class of its own for each kind of attention.

    `linear`: a `LinearLayer`. `attention`: an attention layer of any kind.
    """

    def __init__(self, linear, attention):
        self.linear, self.attention = linear, attention

    def storages(self):
        return [*self.attention.storages(), *self.linear.storages()]

    def __getattr__(self, name):
        # Whatever is not written here belongs to one of the parts: get_seq_length, sliding_window, conv_states, ...
        if name in ("linear", "attention") or name.startswith("__"):
            raise AttributeError(name)
        part = self.attention if hasattr(self.attention, name) else self.linear
        return getattr(part, name)

    # Both parts

    @property
    def batch_size(self):
        """Sequences held side by side; -1 while nothing is stored."""
        return self.linear.batch_size if self.attention.batch_size < 0 else self.attention.batch_size

    @property
    def is_croppable(self):
        """Whether both parts can undo the last tokens."""
        return self.attention.is_croppable and self.linear.is_croppable

    @property
    def record_past(self):
        """Whether a part keeps more than it would, until the next crop."""
        return self.linear.record_past or self.attention.record_past

    @record_past.setter
    def record_past(self, on):
        self.linear.record_past = on
        if on:
            self.attention.activate_past_recording()
        elif self.attention.record_past:
            self.attention.record_past = False

    def activate_past_recording(self):
        """Keep from now on what a crop could need, in both parts."""
        self.record_past = True

    def check_crop(self, tokens_to_remove):
        self.attention.check_crop(tokens_to_remove)
        self.linear.check_crop(tokens_to_remove)

    def crop(self, tokens_to_remove):
        """Roll back both parts, or neither."""
        if tokens_to_remove:
            self.check_crop(tokens_to_remove)
        self.attention.crop(tokens_to_remove)
        self.linear.crop(tokens_to_remove)

    def reset(self):
        """Forget everything, in both parts."""
        self.attention.reset()
        self.linear.reset()

    def reorder_cache(self, beam_idx):
        """Put rows `beam_idx` (batch,) of the batch in that order, in both parts."""
        for part in (self.attention, self.linear):
            if part.is_initialized:
                part.reorder_cache(beam_idx)

    def batch_repeat_interleave(self, repeats):
        """Repeat each row of the batch `repeats` times, in both parts."""
        self.attention.batch_repeat_interleave(repeats)
        self.linear.batch_repeat_interleave(repeats)

    # The attention part

    def update(self, key_states, value_states, *args, **kwargs):
        """Add keys and values (batch, kv_heads, q_len, head_dim) to the attention part; return what it returns."""
        return self.attention.update(key_states, value_states, *args, **kwargs)

    @property
    def keys(self):
        """Keys held by the attention part, (batch, kv_heads, kv_len, head_dim). None while empty."""
        return self.attention.keys

    @keys.setter
    def keys(self, tensor):
        self.attention.keys = tensor

    @property
    def values(self):
        """Values held by the attention part, (batch, kv_heads, kv_len, head_dim). None while empty."""
        return self.attention.values

    @values.setter
    def values(self, tensor):
        self.attention.values = tensor

    def check_update(self, key_states, value_states):
        self.attention.check_update(key_states, value_states)

    def check_room(self, length):
        self.attention.check_room(length)

    def get_max_length(self):
        """Tokens that the attention part can hold, or -1 where there is no limit."""
        return self.attention.get_max_length()

    @property
    def is_initialized(self):
        """Whether the attention part has its buffers."""
        return self.attention.is_initialized

    @property
    def is_sliding(self):
        """Whether the attention part keeps a window."""
        return self.attention.is_sliding

    @property
    def is_compileable(self):
        """Whether the attention part can return slots that are not filled yet."""
        return self.attention.is_compileable

    @property
    def supports_early_init(self):
        """Whether the attention part can have its buffers made before the first forward."""
        return self.attention.supports_early_init

    def __repr__(self):
        return f"HybridLayer({self.linear!r}, {self.attention!r})"
