"""The containers: which layers a cache is made of."""

from .cache import Cache
from .hf import DynamicCacheBase, layer_specs
from .layers import DynamicLayer


class DynamicCache(Cache, DynamicCacheBase):
    """A cache that grows with the text. The default of every model.

    Keeps what each layer of the model can look at. With a config, the kinds of the layers are read from it; without
    one, every layer is a full-attention layer, made when the model first uses it.
    Bytes: the sum of its layers'. In transformers: `DynamicCache`.

    `ddp_cache_data`: (keys, values) or (keys, values, window), one for each layer, to start from.
    """

    def __init__(self, ddp_cache_data=None, config=None, offloading=False, offload_only_non_sliding=False):
        data = [] if ddp_cache_data is None else list(ddp_cache_data)
        layers = None if config is None else [_dynamic_layer(spec) for spec in layer_specs(config)]
        if layers is not None and len(data) > len(layers):
            raise ValueError(f"keys and values of {len(data)} layers given; the config describes {len(layers)}")
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
            else:
                self._layer(layer_idx, create=True)


def _dynamic_layer(spec):
    if spec.kind == "full_attention":
        return DynamicLayer()
    raise NotImplementedError(f"layers of kind {spec.kind!r} are not in this version")
