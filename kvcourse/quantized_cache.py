"""The quantized container: few bits where a layer keeps everything, full precision where it keeps little anyway."""

from .cache import Cache
from .containers import dynamic_layer
from .hf import QuantizedCacheBase, layer_specs
from .layers.quantized import QuantizedLayer, quantized_formats


class QuantizedCache(Cache, QuantizedCacheBase):
    """A cache that keeps old tokens in few bits.

    Keeps: all tokens of full-attention layers, the old ones as codes (`QuantizedLayer`). Layers of other kinds, such as
    sliding windows and states, stop growing by themselves and stay in full precision, as in a `DynamicCache`.
    Drops: digits of old tokens. Bytes: the sum of its layers'. A short text gains nothing: all of it is exact.
    In transformers: `QuantizedCache`, which refuses models with other than full-attention layers.

    `backend`: "hqq", "quanto" or "fp8". `config`: of the model. The options, their defaults and errors:
    `quantized_formats`; "fp8" has none.
    """

    def __init__(
        self,
        backend,
        config,
        nbits=None,
        axis_key=None,
        axis_value=None,
        q_group_size=None,
        residual_length=None,
        offloading=False,
    ):
        options = (backend, nbits, axis_key, axis_value, q_group_size, residual_length)
        quantized_formats(*options)  # wrong options are refused also where no layer of the model would use them
        layers = [
            QuantizedLayer(*options) if spec.kind == "full_attention" else dynamic_layer(spec)
            for spec in layer_specs(config)
        ]
        Cache.__init__(self, layers=layers, offloading=offloading, offload_only_non_sliding=False)
