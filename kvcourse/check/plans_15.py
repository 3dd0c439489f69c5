"""Task 15a: bytes of a cache before it is made. What is right is what zero-filled caches hold."""

import functools
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from ..cache import Cache
from ..containers import DynamicCache
from ..layers import DynamicLayer, DynamicSlidingLayer, StaticLayer
from ..layers.dummy import DummyLayer
from ..layers.quantized import QuantizedLayer
from ..offload import emulated_device
from .reserved import Reserved, reserved
from .runner import run
from .task import Case, Mistake, compare, task

KINDS = ["dynamic", "static", "4 bits", "offloaded"]
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
    if kind == "offloaded":
        return _offloaded(layers, context, batch)
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
    if layer.window is not None:
        return DynamicSlidingLayer(layer.window)
    if kind == "4 bits":
        return QuantizedLayer("hqq", 4, axis_key=1, axis_value=1, q_group_size=GROUP, residual_length=RESIDUAL)
    return StaticLayer(context) if kind == "static" else DynamicLayer()


def _offloaded(layers, context, batch):
    """The most that lies on an emulated device while all layers are visited once more."""
    from transformers import LlamaConfig

    heads, head_dim = layers[0].kv_heads, layers[0].head_dim
    config = LlamaConfig(num_hidden_layers=len(layers), num_key_value_heads=heads, head_dim=head_dim)
    config.num_attention_heads, config.hidden_size = heads, heads * head_dim
    cache, used = DynamicCache(config=config, offloading=True), []
    with emulated_device(memory=2**40, bandwidth=1e9, latency=0.0) as device:
        for tokens in (context, 0):
            for number, layer in enumerate(layers):
                cache.update(*_zeros(layer, tokens, batch), number)
                used.append(device.used if tokens == 0 else 0)
    return max(used)


FULL, WIDE = (Layer(2, 64),) * 4, (Layer(3, 128),) * 2
WINDOWS = (Layer(2, 64, window=100), Layer(2, 64)) * 2
LONG_WINDOWS = (Layer(2, 64, window=200), Layer(2, 64)) * 2
SHARED = (Layer(2, 64), Layer(2, 64), Layer(2, 64, shared=True), Layer(2, 64, shared=True))
PLANS = [
    ("4 layers with 2 key heads of 64", FULL, 300, 1, "dynamic"),
    ("2 layers with 3 key heads of 128", WIDE, 70, 5, "dynamic"),
    ("4 layers, every second one with a window of 100", WINDOWS, 300, 1, "dynamic"),
    ("the same, a text shorter than the window", WINDOWS, 60, 2, "dynamic"),
    ("4 layers, the last two share keys with layers below", SHARED, 300, 2, "dynamic"),
    ("4 layers, slots for the whole text from the start", FULL, 500, 1, "static"),
    ("4 layers, a short text", FULL, 100, 2, "4 bits"),
    ("4 layers, a longer text", FULL, 500, 1, "4 bits"),
    ("4 layers, every second one with a window of 200", LONG_WINDOWS, 300, 1, "4 bits"),
    ("4 layers of one size", FULL, 300, 1, "offloaded"),
]


@functools.cache
def measured(layers, context, batch, kind):
    return real(layers, context, batch, kind)


@contextmanager
def nothing_measured():
    """Inside, no cache says what it holds: the number is to be found before a cache is made."""
    original = Cache.nbytes

    def refuse(*args, **kwargs):
        raise Reserved("find the number by formula; this cache would have to be made and filled first")

    Cache.nbytes = refuse
    try:
        yield
    finally:
        Cache.nbytes = original


def planned(what, layers, context, batch, kind):
    """A case: what a function says of this cache."""

    def play(answer, seen):
        with reserved(plan="planning"), nothing_measured():
            seen["bytes"] = run(answer, answer, list(layers), context, batch, kind)

    return Case(f"{kind}: {what}; {context} tokens, batch {batch}", play)


def sizes(
    layers,
    context,
    batch,
    kind,
    width=lambda window: window - 1,
    shared=False,
    residual=RESIDUAL,
    scales=4,
    bits=4,
    squeeze_windows=False,
    resident=lambda each: sum(sorted(each)[-2:]),
    part=2,
    itemsize=2,
    per_batch=True,
    exact_only=False,
):
    """The right answer by formula, and with other keywords the wrong ones."""
    each = []
    for layer in layers:
        if layer.shared and not shared:
            continue
        kept = context if layer.window is None else min(context, width(layer.window))
        numbers, few = part * layer.kv_heads * layer.head_dim, kind == "4 bits"
        few = few and (layer.window is None or squeeze_windows)
        exact = min(kept, residual) if few else kept
        kept = exact if exact_only else kept
        each.append(exact * numbers * itemsize + (kept - exact) * (numbers * bits / 8 + numbers / GROUP * scales))
    total = resident(each) if kind == "offloaded" else sum(each)
    return total * (batch if per_batch else 1)


def but(**lines):
    return lambda layers, context, batch, kind: sizes(list(layers), context, batch, kind, **lines)


def never_full(layers, context, batch, kind):
    """The window's tokens, even when the text has fewer."""
    filled = [Layer(x.kv_heads, x.head_dim, None, x.shared) for x in layers if x.window is None]
    rest = sum(2 * x.kv_heads * x.head_dim * 2 * (x.window - 1) for x in layers if x.window is not None)
    return sizes(filled, context, batch, kind) + batch * rest


SCALES = "scales left out: each group of 64 numbers has a scale and a zero, 2 bytes each"
PLAN_MISTAKES = [
    Mistake(
        "a window of W counts the token that looks, so W - 1 are kept: min(context, W - 1)", but(width=lambda w: w)
    ),
    Mistake("the window was ignored: such a layer keeps min(context, W - 1) tokens", but(width=lambda w: 2**40)),
    Mistake("a text shorter than the window fills it in part: min(context, W - 1)", never_full),
    Mistake("shared layers were counted: they read another layer's keys and hold none", but(shared=True)),
    Mistake(SCALES, but(scales=0)),
    Mistake("a group has two numbers beside its codes, a scale and a zero: 4 bytes", but(scales=2)),
    Mistake("the residual was forgotten: the last 128 tokens stay in 2 bytes a number", but(residual=0)),
    Mistake("the residual was forgotten: the last 128 tokens stay in 2 bytes a number", but(residual=0, scales=0)),
    Mistake("only the residual was counted; the older tokens are there as codes", but(exact_only=True)),
    Mistake("4 bits were taken for 4 bytes, or for one: 4 bits are half a byte", but(bits=32)),
    Mistake("4 bits were taken for 4 bytes, or for one: 4 bits are half a byte", but(bits=8)),
    Mistake(
        "layers that keep a window stay in 2 bytes a number; only the full ones are quantized",
        but(squeeze_windows=True),
    ),
    Mistake("4 bits were not used: tokens before the last 128 take half a byte a number", but(residual=2**40)),
    Mistake("offloading: on the device lie two layers, the one that computes and the next one", but(resident=sum)),
    Mistake("two layers, not one: the next one is fetched while this one computes", but(resident=max)),
    Mistake("offloading is on the host, but a layer has to be on the device to compute", but(resident=lambda each: 0)),
    Mistake("each sequence of the batch has a cache of its own", but(per_batch=False)),
    Mistake("a token leaves a key and a value: the factor 2", but(part=1)),
    Mistake("a number of 16 bits is 2 bytes", but(itemsize=1)),
    Mistake("a number of 16 bits is 2 bytes", but(itemsize=16)),
    Mistake("these are numbers of 4 bytes; the card says 16 bits", but(itemsize=4)),
]


@task("15a", "nbytes_of on ten caches of six kinds against what they hold when filled with zeros")
def task_15a(function):
    """`function(layers, context, batch, kind)`: bytes on the device; `kind` is one of KINDS."""
    for _, *plan in PLANS:  # before caches are forbidden to say what they hold
        measured(*plan)
    compare(function, lambda layers, *rest: measured(tuple(layers), *rest), [planned(*p) for p in PLANS], PLAN_MISTAKES)
    return {"bytes": "equal to ten real caches, to the byte, and no cache was made"}
