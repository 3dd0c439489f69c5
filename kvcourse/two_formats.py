"""A quantized cache whose keys and values have formats of their own: which of the two needs the bits?"""

from .cache import Cache
from .containers import dynamic_layer
from .hf import layer_specs
from .layers.blocks import QuantizedBuffer
from .layers.quantized import QuantizedLayer


class TwoFormatsLayer(QuantizedLayer):
    """A `QuantizedLayer` with one format for the keys and another for the values, as in keys of 4 and values of 2 bits.

    Keeps, drops, bytes: as `QuantizedLayer`, the keys by `key_format` and the values by `value_format`, both of
    `kvcourse.quantize`. The last `residual_length` tokens are exact. No such layer exists in transformers.
    """

    def __init__(self, key_format, value_format, residual_length=0):
        self.backend, self.residual_length = "two formats", residual_length
        self._keys = QuantizedBuffer(key_format, residual_length)
        self._values = QuantizedBuffer(value_format, residual_length)


def two_formats_cache(config, key_format, value_format, residual_length=0):
    """A cache of such layers for a model of this config; layers that do not grow stay exact, as in `QuantizedCache`."""
    layers = [
        TwoFormatsLayer(key_format, value_format, residual_length)
        if spec.kind == "full_attention"
        else dynamic_layer(spec)
        for spec in layer_specs(config)
    ]
    return Cache(layers=layers)
