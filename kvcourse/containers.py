"""The containers: which layers a cache is made of."""

from .cache import Cache
from .hf import DynamicCacheBase, StaticCacheBase, layer_specs
from .layers import (
    DummyLayer,
    DynamicIndexedLayer,
    DynamicLayer,
    DynamicSlidingLayer,
    HybridLayer,
    LinearLayer,
    StaticIndexedLayer,
    StaticLayer,
    StaticSlidingLayer,
)
from .layers.checks import whole


class DynamicCache(Cache, DynamicCacheBase):
    """A cache that grows with the text. The default of every model.

    Keeps what each layer of the model can look at. With a config, the kinds of the layers are read from it; without
    one, every layer is a full-attention layer, made when the model first uses it.
    Bytes: the sum of its layers'. In transformers: `DynamicCache`.

    `ddp_cache_data`: (keys, values) or (keys, values, window), one for each layer, to start from.
    """

    def __init__(self, ddp_cache_data=None, config=None, offloading=False, offload_only_non_sliding=False):
        if hasattr(ddp_cache_data, "get_text_config"):
            raise ValueError("the first argument takes (keys, values) of each layer; give the config by name: config=")
        data = [] if ddp_cache_data is None else [tuple(entry) for entry in ddp_cache_data]
        layers = [dynamic_layer(spec) for spec in layer_specs(config)] if config is not None else None
        if layers is not None and len(data) > len(layers):
            raise ValueError(f"keys and values of {len(data)} layers given; the config describes {len(layers)}")
        if layers is None and data:
            layers = [_layer_for(*entry) for entry in data]
        Cache.__init__(
            self,
            layers=layers,
            layer_class_to_replicate=DynamicLayer if layers is None else None,
            offloading=offloading,
            offload_only_non_sliding=offload_only_non_sliding,
        )
        for layer_idx, (keys, values, *_) in enumerate(data):
            if keys is not None and values is not None:
                self.update(keys, values, layer_idx)

    @property
    def is_compileable(self):
        """False: it grows. (One made of states alone would not, but `generate()` compiles whatever says True here.)"""
        return False


class StaticCache(Cache, StaticCacheBase):
    """A cache whose buffers have their final size from the start, so that a compiled decode step never changes shape.

    Keeps up to `max_cache_len` tokens in each full-attention layer, a window in each sliding one. A longer text is a
    ValueError, before anything has changed. Bytes: the sum of its layers'. In transformers: `StaticCache`.

    Batch size, device and number format are those of the first update. The arguments that older transformers
    took for them (`OLDER_ARGUMENTS`) are accepted and not needed; any other is a TypeError.
    """

    OLDER_ARGUMENTS = ("batch_size", "max_batch_size", "device", "dtype", "layer_device_map", "tp_size")

    def __init__(self, config, max_cache_len, offloading=False, offload_only_non_sliding=True, **not_needed):
        unknown = [name for name in not_needed if name not in self.OLDER_ARGUMENTS]
        if unknown:
            raise TypeError(f"StaticCache() got an unexpected keyword argument {unknown[0]!r}")
        max_cache_len = whole("max_cache_len", max_cache_len, least=1)
        Cache.__init__(
            self,
            layers=[static_layer(spec, max_cache_len) for spec in layer_specs(config)],
            offloading=offloading,
            offload_only_non_sliding=offload_only_non_sliding,
        )


def dynamic_layer(spec):
    """The growing layer for a `LayerSpec`."""
    if spec.kind.startswith("hybrid"):
        attention = DynamicLayer() if spec.window is None else DynamicSlidingLayer(spec.window)
        return HybridLayer(LinearLayer(spec.states), attention)
    if spec.window is not None:
        return DynamicSlidingLayer(spec.window)
    return {
        "full_attention": DynamicLayer,
        "indexed_attention": DynamicIndexedLayer,
        "conv": lambda: LinearLayer(spec.states),
        "linear_attention": lambda: LinearLayer(spec.states),
        "dummy": DummyLayer,
    }[spec.kind]()


def static_layer(spec, max_cache_len):
    """The layer of fixed size for a `LayerSpec`. States have a fixed size anyway; here they also keep their place."""
    if spec.kind.startswith("hybrid"):
        full = StaticLayer(max_cache_len)
        attention = full if spec.window is None else StaticSlidingLayer(max_cache_len, spec.window)
        return HybridLayer(LinearLayer(spec.states, keep_buffers=True), attention)
    if spec.window is not None:
        return StaticSlidingLayer(max_cache_len, spec.window)
    return {
        "full_attention": lambda: StaticLayer(max_cache_len),
        "indexed_attention": lambda: StaticIndexedLayer(max_cache_len),
        "conv": lambda: LinearLayer(spec.states, keep_buffers=True),
        "linear_attention": lambda: LinearLayer(spec.states, keep_buffers=True),
        "dummy": DummyLayer,
    }[spec.kind]()


def _layer_for(keys, values, window=None):
    return DynamicLayer() if window is None else DynamicSlidingLayer(int(window))
