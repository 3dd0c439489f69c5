"""A layer that keeps nothing."""

from .base import Layer


class DummyLayer(Layer):
    """The place of a layer that needs no cache: it reads another layer's keys, or has no attention at all.

    Keeps: nothing. Drops: nothing. Bytes: 0. In transformers: `DummyLayer`.
    """

    is_dummy = True
    is_compileable = True
    supports_early_init = False
    is_initialized = True  # there is nothing left to make
    keys = values = None

    def check_update(self, key_states, value_states):
        raise ValueError(
            "this layer keeps no keys and values: the model reuses those of an earlier layer, or the layer has no "
            "attention; update the layer that owns them"
        )

    def update(self, key_states, value_states, *args, **kwargs):
        """Nothing can be added: a ValueError. (None, None), the content of an empty layer, passes."""
        if key_states is not None or value_states is not None:
            self.check_update(key_states, value_states)
        return None, None

    def positions(self):
        """Absolute positions held: none."""
        return []

    def crop(self, tokens_to_remove):
        """There is nothing to remove."""

    def reorder_cache(self, beam_idx):
        """There are no rows to reorder."""

    def batch_repeat_interleave(self, repeats):
        """There are no rows to repeat."""
