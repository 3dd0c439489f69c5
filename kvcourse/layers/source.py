"""Cross-attention layers: all of the source, and nothing else."""

from functools import partial
from types import SimpleNamespace


def show_whole_source(cache):
    """Prepare a cache to serve cross-attention: each of its layers will hand out all of the source and nothing else.

    Sliding layers record, so that no beginning is dropped; layers of fixed size, or offloaded ones, become a
    `SourceLayer`. ValueError where a layer can't do it, before any has changed.
    """
    prepared = [_prepared(index, layer, cache.offloading) for index, layer in enumerate(cache.layers)]
    for layer in cache.layers:
        if layer.is_sliding:
            layer.activate_past_recording()
    cache.layers[:] = prepared
    if cache.offloading and cache.layer_class_to_replicate is not None:  # layers to come
        cache.layer_class_to_replicate = partial(_new_source_layer, cache.layer_class_to_replicate)


class SourceLayer:
    """A cross-attention layer that shows the tokens of the source alone, where the model computes.

    Models read `keys` and `values` of a cross layer at each step, with a mask as long as the source: there must be no
    unfilled slots behind it, and a layer that was offloaded to the host has to be fetched.
    """

    is_compileable = False  # no unfilled slots are returned
    is_dummy = False

    def __init__(self, layer):
        self.layer = layer
        self.filled = int(layer.get_seq_length())  # a Python number: it is the same at each step of a text
        self.computes_on = SimpleNamespace(device=None)  # shared by the copies that offloading makes of a layer

    def update(self, key_states, value_states, *args, **kwargs):
        """Keep a source of q_len tokens and return the tokens held, (batch, kv_heads, kv_len, head_dim)."""
        if self.computes_on.device is None or key_states.device.type != "cpu":
            self.computes_on.device = key_states.device
        keys, values = self.layer.update(key_states, value_states, *args, **kwargs)
        self.filled += key_states.shape[-2]
        return keys[:, :, : self.filled], values[:, :, : self.filled]

    @property
    def keys(self):
        """Keys of the source, (batch, kv_heads, kv_len, head_dim). None before it was read."""
        return self._shown(self.layer.keys)

    @property
    def values(self):
        """Values of the source, (batch, kv_heads, kv_len, head_dim). None before it was read."""
        return self._shown(self.layer.values)

    def _shown(self, states):
        return None if states is None else states[:, :, : self.filled].to(self.computes_on.device or states.device)

    def get_seq_length(self):
        """Tokens of the source."""
        return self.filled

    def get_mask_sizes(self, query_length):
        """Length and first position of what the next update of `query_length` tokens returns."""
        return self.filled + query_length, 0

    def crop(self, tokens_to_remove):
        """Remove the last `-tokens_to_remove` tokens of the source."""
        self.layer.crop(tokens_to_remove)
        self.filled = max(self.filled + tokens_to_remove, 0)

    def news(self, twin, key_states, value_states):
        """Tensors of an offloaded copy that `follow` needs: those that the layer inside needs."""
        return self.layer.news(twin.layer, key_states, value_states)

    def follow(self, twin, news):
        """Catch up with an offloaded copy that has read the source."""
        self.layer.follow(twin.layer, news)
        self.filled = twin.filled

    def reset(self):
        """Forget the source, and keep the buffers where they are."""
        self.layer.reset()
        self.filled = 0

    def __getattr__(self, name):
        if name == "layer" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.layer, name)

    def __repr__(self):
        return repr(self.layer)


def _prepared(index, layer, offloaded):
    if layer.is_linear:
        raise ValueError(f"cross-attention layer {index} is a {layer!r}: it keeps no keys and values to attend to")
    if layer.is_sliding and (layer.is_compileable or layer.positions()[:1] not in ([], [0])):
        raise ValueError(
            f"cross-attention layer {index} is a {layer!r}, whose window cannot hold the whole source; make the "
            "cross-attention cache of full attention, as DynamicCache() without a config does"
        )
    if isinstance(layer, SourceLayer):
        return layer
    return SourceLayer(layer) if (layer.is_compileable or offloaded) and not layer.is_dummy else layer


def _new_source_layer(layer_class):
    layer = layer_class()
    return layer if isinstance(layer, SourceLayer) else SourceLayer(layer)
