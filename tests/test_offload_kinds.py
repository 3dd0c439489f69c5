"""Offloading every kind of layer: what a layer keeps decides nothing, all of them move."""

import copy

import pytest
import torch
from transformers import LlamaConfig

import kvcourse as kv
from kvcourse.layers.dynamic import DynamicLayer
from kvcourse.layers.hybrid import HybridLayer
from kvcourse.layers.indexed import DynamicIndexedLayer, StaticIndexedLayer
from kvcourse.layers.linear import LinearLayer
from kvcourse.layers.quantized import QuantizedLayer, quantized_formats
from kvcourse.layers.sliding import DynamicSlidingLayer
from kvcourse.layers.static import StaticLayer
from kvcourse.layers.static_sliding import StaticSlidingLayer
from kvcourse.offload import emulated_device

HEADS, SIZE = 2, 16
KINDS = {
    "dynamic": DynamicLayer,
    "sliding": lambda: DynamicSlidingLayer(5),
    "static": lambda: StaticLayer(40),
    "static sliding": lambda: StaticSlidingLayer(40, 5),
    "hqq": lambda: QuantizedLayer("hqq", nbits=4, q_group_size=4, residual_length=3),
    "quanto": lambda: QuantizedLayer("quanto", nbits=2, axis_key=0, q_group_size=8, residual_length=0),
    "fp8": lambda: QuantizedLayer("fp8"),
    "hybrid": lambda: HybridLayer(LinearLayer(), DynamicLayer()),
    "hybrid static": lambda: HybridLayer(LinearLayer(keep_buffers=True), StaticSlidingLayer(40, 5)),
    "indexed": DynamicIndexedLayer,
    "indexed static": lambda: StaticIndexedLayer(40),
}


def make(kind, offloading):
    """Two layers of the kind, a linear one between them, so that the circle has a gap."""
    layers = [KINDS[kind](), LinearLayer(), KINDS[kind](), KINDS[kind]()]
    return kv.Cache(layers=layers, offloading=offloading, offload_only_non_sliding=False)


def forward(cache, tokens, seed, batch=2):
    """What one forward's updates return, cloned."""
    random = torch.Generator().manual_seed(seed)
    seen = []
    for index, layer in enumerate(cache.layers):
        if hasattr(layer, "update_recurrent_state"):
            state = torch.randn(batch, 4, 4, generator=random)
            seen.append(cache.update_recurrent_state(state, index).clone())
        if hasattr(layer, "update_indexer"):
            state = torch.randn(batch, tokens, 4, generator=random)
            seen.append(cache.update_indexer(state, index).clone())
        if not layer.is_linear:
            keys, values = torch.randn(2, batch, HEADS, tokens, SIZE, generator=random)
            seen += [tensor.clone() for tensor in cache.update(keys, values, index)]
    return seen


def run(cache):
    """A life: a prompt, single tokens, a reorder, a copy that goes on, a batch of another size, a reset."""
    seen = forward(cache, 7, seed=0)
    for seed in range(1, 4):
        seen += forward(cache, 1, seed)
    cache.reorder_cache(torch.tensor([1, 0]))
    seen += forward(cache, 2, seed=4)
    twin = copy.deepcopy(cache)
    seen += forward(cache, 1, seed=5)
    seen += forward(twin, 3, seed=6)
    if cache.is_croppable:
        cache.crop(-2)
        seen += forward(cache, 1, seed=7)
    positions = [cache.positions(index) for index in (0, 2, 3)]
    cache.batch_select_indices([1])
    seen += forward(cache, 1, seed=8, batch=1)
    cache.batch_repeat_interleave(3)
    seen += forward(cache, 1, seed=9, batch=3)
    cache.reset()
    seen += forward(cache, 4, seed=10)
    return seen, positions, cache.nbytes("cpu")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clock", [None, "virtual", "wall"])
def test_every_kind_gives_offloaded_what_it_gives_resident(kind, clock):
    expected, expected_positions, nbytes = run(make(kind, offloading=False))
    cache = make(kind, offloading=True)
    if clock is None:
        seen, positions, held = run(cache)
    else:
        with emulated_device(10**9, 1e9, 1e-5, clock=clock) as device:
            seen, positions, held = run(cache)
            assert {event.layer for event in cache.offloader.timeline if event.kind == "fetch"} == {0, 2, 3}
            assert 0 < device.used < held
    assert all(torch.equal(mine, other) for mine, other in zip(seen, expected, strict=True))
    assert positions == expected_positions
    assert held == nbytes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", [0, 2])
def test_a_copy_that_survives_to_its_next_turn_lies_as_the_host_does(kind, depth):
    """With so few layers nothing is evicted: each is fetched once, and its copy goes on from update to update."""
    random = torch.Generator().manual_seed(depth)
    for _ in range(5):
        sizes = torch.tensor([1, 2, 3, 8])[torch.randint(4, (5,), generator=random)].tolist()
        resident, cache = (
            kv.Cache(layers=[KINDS[kind]() for _ in range(1 + depth)], offloading=offloading)
            for offloading in (False, True)
        )
        cache.offloader.only_non_sliding, cache.offloader.depth = False, depth
        with emulated_device(10**9, 1e9, 0) as device:
            seen = [forward(cache, tokens, seed) for seed, tokens in enumerate(sizes)]
            fetches = [event.kind for event in device.timeline].count("fetch")
        expected = [forward(resident, tokens, seed) for seed, tokens in enumerate(sizes)]
        assert all(torch.equal(*pair) for pair in zip(sum(seen, []), sum(expected, []), strict=True))
        assert cache.nbytes("cpu") == resident.nbytes() and fetches == 0  # nothing to fetch for an empty layer


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_fits_resident_to_the_byte_and_is_refused_before_it_changes(kind):
    def fill(cache):
        for seed, tokens in enumerate([7, 1, 1, 1, 1, 1, 4, 1]):
            before = copy.deepcopy(cache)
            forward(cache, tokens, seed)
        return before

    with emulated_device(10**9, 1e9, 0) as device:
        fill(make(kind, offloading=False))
        most = device.peak
    with emulated_device(most, 1e9, 0):
        fill(make(kind, offloading=False))
    with emulated_device(most - 1, 1e9, 0) as device:
        cache = make(kind, offloading=False)
        with pytest.raises(torch.OutOfMemoryError):
            fill(cache)
        lengths = [cache.get_seq_length(index) for index in (0, 2, 3)]
        assert lengths == sorted(lengths, reverse=True) and lengths[0] > lengths[2]
        for index in (0, 2, 3):
            keys, values = cache.layers[index].keys, cache.layers[index].values
            assert keys is None or keys.shape == values.shape
        assert device.used <= most - 1


@pytest.mark.parametrize("kind", KINDS)
def test_new_tokens_alone_are_written_back(kind):
    token = 3 * 2 * 2 * HEADS * SIZE * 4  # layers, keys and values, batch
    for length in (8, 30):
        with emulated_device(10**9, 1e9, 0) as device:
            cache = make(kind, offloading=True)
            forward(cache, length, seed=0)
            prompt = device.written_bytes
            forward(cache, 1, seed=1)
            if kind in ("hqq", "quanto", "fp8"):  # as codes; a token that was exact crosses a second time, as a code
                assert 0 < prompt < length * token and device.written_bytes - prompt < 2 * token
            else:
                assert prompt == length * token and device.written_bytes - prompt == token


@pytest.mark.parametrize("backend", ["hqq", "quanto", "fp8"])
def test_an_offloaded_block_is_quantized_once_and_crosses_as_codes(backend, monkeypatch):
    options = {} if backend == "fp8" else {"nbits": 4, "q_group_size": 4, "residual_length": 3}
    config = LlamaConfig(hidden_size=16, num_attention_heads=2, num_hidden_layers=2)
    quantized = []
    formats = {type(layer_format) for layer_format in quantized_formats(backend, **options)[:2]}
    for kind in formats:
        method = kind.quantize
        monkeypatch.setattr(
            kind, "quantize", lambda self, x, method=method: quantized.append(x.shape[2]) or method(self, x)
        )
    tokens = torch.randn(1, 2, 21, 8)
    cache = kv.QuantizedCache(backend, config, **options, offloading=True)
    with emulated_device(10**6, 1e6, 0) as device:
        for part in tokens.split([9, 1, 1, 10], dim=2):
            for layer_idx in range(2):
                cache.update(part, -part, layer_idx)
        resident = kv.QuantizedCache(backend, config, **options)
        offloaded_calls = len(quantized)
    for part in tokens.split([9, 1, 1, 10], dim=2):
        for layer_idx in range(2):
            resident.update(part, -part, layer_idx)
    assert len(quantized) == 2 * offloaded_calls
    for ours, theirs in zip(cache.layers, resident.layers, strict=True):
        assert torch.equal(ours.keys, theirs.keys) and torch.equal(ours.values, theirs.values)
    assert 0 < device.written_bytes < 2 * 2 * tokens.nbytes


def test_layers_that_stay_count_on_the_device():
    config = LlamaConfig(
        hidden_size=16,
        num_attention_heads=2,
        num_hidden_layers=4,
        layer_types=["sliding_attention", "full_attention"] * 2,
        sliding_window=4,
    )
    tokens = torch.randn(1, 2, 9, 8)
    cache = kv.DynamicCache(config=config, offloading=True, offload_only_non_sliding=True)
    with emulated_device(10**6, 1e6, 0) as device:
        for layer_idx in range(4):
            cache.update(tokens, tokens, layer_idx)
        windows = sum(cache.layers[i].nbytes() for i in (0, 2))
        assert cache.nbytes("emulated") == device.used > windows > 0
