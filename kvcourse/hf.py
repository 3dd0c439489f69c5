"""The socket: all that this package needs to know about the inside of transformers.

Two things. The base classes, because models and `generate()` ask `isinstance(cache, Cache)`: our containers name
them last in their bases, never call their `__init__`, and give every public method a body of their own.
And the reading of a model's config: which kind of layer keeps what. A test compares the installed
`transformers.cache_utils` with this file and fails when something new appears there.
"""

from dataclasses import dataclass

from transformers import cache_utils

CacheBase = cache_utils.Cache
DynamicCacheBase = cache_utils.DynamicCache
StaticCacheBase = cache_utils.StaticCache
QuantizedCacheBase = cache_utils.QuantizedCache
EncoderDecoderCacheBase = cache_utils.EncoderDecoderCache

WINDOWED = {"sliding_attention": "sliding_window", "hybrid_sliding": "sliding_window"}
WINDOWED["chunked_attention"] = "attention_chunk_size"  # a chunk is kept like a window; only the mask differs
KEEPS_NOTHING = ("moe", "mlp")  # layers of the model without any attention
KINDS = ("full_attention", *WINDOWED, "indexed_attention", "conv", "linear_attention", "hybrid", "dummy")


@dataclass(frozen=True)
class LayerSpec:
    """What one layer of a model needs from its cache: the kind, its window (tokens), its number of states."""

    kind: str
    window: int | None = None
    states: int = 1


def layer_specs(config):
    """One `LayerSpec` for each layer of the decoder that `config` (a transformers config) describes.

    Reads `layer_types` where a model lists them, and otherwise `sliding_window` and `attention_chunk_size`; honours
    values that differ from layer to layer. A layer that reuses another layer's keys keeps nothing itself ("dummy").
    Raises ValueError for a kind that a model file defines for itself, naming it.
    """
    if not hasattr(config, "get_text_config"):
        raise ValueError(f"config must be a model's config, as in config=model.config; got {type(config).__name__}")
    config = config.get_text_config(decoder=True)
    per_layer = _decoder_layers(config)
    kinds = getattr(config, "layer_types", None) or [_kind_without_list(layer) for layer in per_layer]
    sharing = getattr(config, "kv_sharing_modes", None) or [None] * len(kinds)
    return [_spec(kind, mode, layer) for kind, mode, layer in zip(kinds, sharing, per_layer, strict=False)]


def _decoder_layers(config):
    """A config for each layer of the decoder. T5 and its kin count the encoder's layers under the common name, and so
    do Bart and its kin where the decoder is used alone."""
    layers = list(config.per_layer_config)
    name = "num_decoder_layers" if getattr(config, "is_encoder_decoder", False) else "decoder_layers"
    count = getattr(config, name, None)
    return layers if count is None else (layers + layers[-1:] * count)[:count]


def _kind_without_list(layer):
    if getattr(layer, "sliding_window", None) is not None:
        return "sliding_attention"
    if getattr(layer, "attention_chunk_size", None) is not None:
        return "chunked_attention"
    return "full_attention"


def _spec(kind, sharing, layer):
    if sharing == "reuse" or kind in KEEPS_NOTHING:
        return LayerSpec("dummy")
    if kind not in KINDS:
        raise ValueError(
            f"the model defines a cache layer of its own, {kind!r}, which this package does not have; "
            f"it has {', '.join(KINDS)}. Use the cache that the model's own file provides"
        )
    window = getattr(layer, WINDOWED[kind]) if kind in WINDOWED else None
    return LayerSpec(kind, window, getattr(layer, "number_of_conv_states", 1))


def head_shapes(config):
    """(kv_heads, head_dim) of what each layer caches. head_dim is not always hidden / heads: a config may state it.

    Multi-head latent attention (DeepSeek) caches one latent vector and one rotary part for a token, as key and value of
    a single head; head_dim is the mean of the two then, so that 2 x kv_heads x head_dim numbers are right.
    """
    return [_head_shape(layer) for layer in _decoder_layers(config.get_text_config(decoder=True))]


def _head_shape(layer):
    latent = getattr(layer, "kv_lora_rank", None)
    if latent:
        return 1, (latent + layer.qk_rope_head_dim) // 2  # both are even: rotary embeddings turn pairs
    heads = getattr(layer, "decoder_attention_heads", None) or layer.num_attention_heads
    head_dim = getattr(layer, "head_dim", None) or getattr(layer, "attention_head_dim", None)
    grouped = getattr(layer, "num_key_value_heads", None) or getattr(layer, "num_kv_heads", None) or heads
    if getattr(layer, "multi_query", False) and not getattr(layer, "new_decoder_architecture", False):
        grouped = 1
    return grouped, head_dim or layer.hidden_size // heads


def namesake(cache_class):
    """The class of transformers that one of our containers mirrors."""
    return getattr(cache_utils, cache_class.__name__)
