"""What a cache holds that was filled with zeros: the truth of task 15a."""

import functools
from dataclasses import dataclass

import torch

from ..cache import Cache
from ..containers import DynamicCache, StaticCache
from ..layers import DynamicLayer, DynamicSlidingLayer, StaticLayer, StaticSlidingLayer
from ..layers.dummy import DummyLayer
from ..layers.quantized import QuantizedLayer
from ..offload import emulated_device

KINDS = ["dynamic", "static", "4 bits", "2 bits", "offloaded", "offloaded static"]
RESIDUAL, GROUP = 128, 64


@dataclass(frozen=True)
class Layer:
    """One layer of a model. `window`: tokens, the one that looks included; None looks at all. `shared`: it has no keys
    of its own and reads those of a layer below."""

    kv_heads: int
    head_dim: int
    window: int | None = None
    shared: bool = False


def real(layers, context, batch, kind):
    """Bytes that a real cache of this kind has on the device, after `context` tokens of 16-bit zeros."""
    if kind.startswith("offloaded"):
        return _offloaded(layers, context, batch, kind)
    cache = Cache(layers=[_made(layer, context, kind) for layer in layers])
    for number, layer in enumerate(layers):
        if not layer.shared:
            cache.update(*_zeros(layer, context, batch), number)
    return cache.nbytes()


def _zeros(layer, tokens, batch):
    return [torch.zeros(batch, layer.kv_heads, tokens, layer.head_dim, dtype=torch.bfloat16) for _ in "kv"]


def _made(layer, context, kind):
    if layer.shared:
        return DummyLayer()
    if kind == "static":
        return StaticSlidingLayer(context, layer.window) if layer.window else StaticLayer(context)
    if layer.window is not None:
        return DynamicSlidingLayer(layer.window)
    if kind == "dynamic":
        return DynamicLayer()
    bits = int(kind.split()[0])
    return QuantizedLayer("hqq", bits, axis_key=1, axis_value=1, q_group_size=GROUP, residual_length=RESIDUAL)


def _offloaded(layers, context, batch, kind):
    """The most that lies on an emulated device while all layers are visited once more."""
    from transformers import LlamaConfig

    heads, head_dim = layers[0].kv_heads, layers[0].head_dim
    config = LlamaConfig(num_hidden_layers=len(layers), num_key_value_heads=heads, head_dim=head_dim)
    config.num_attention_heads, config.hidden_size = heads, heads * head_dim
    used = []
    with emulated_device(memory=2**40, bandwidth=1e9, latency=0.0) as device:
        static = kind == "offloaded static"
        cache = StaticCache(config, context, True) if static else DynamicCache(config=config, offloading=True)
        for tokens in (context, 0):
            for number, layer in enumerate(layers):
                cache.update(*_zeros(layer, tokens, batch), number)
                used.append(device.used if tokens == 0 else 0)
    return max(used)


@functools.cache
def measured(layers, context, batch, kind):
    return real(layers, context, batch, kind)
