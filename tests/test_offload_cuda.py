"""Offloading from a real CUDA device. Skipped where there is none."""

import copy
import pickle

import pytest
import torch

import kvcourse as kv
from kvcourse.layers import DynamicLayer
from kvcourse.offload import Offloader, stalls

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

GREEDY = dict(max_new_tokens=24, do_sample=False, pad_token_id=0)


@pytest.fixture(scope="module")
def model():
    model, _ = kv.load("tiny", device="cuda", dtype=torch.float32)
    return model


def prompt(batch=2, tokens=40):
    return torch.randint(3, 200, (batch, tokens), generator=torch.Generator().manual_seed(1)).cuda()


def held(cache):
    return [(layer.keys.cpu(), layer.values.cpu()) for layer in cache.layers]


def assert_equal(ours, theirs):
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine[0], other[0]) and torch.equal(mine[1], other[1])


def long_states(layers, tokens=8192):
    generator = torch.Generator("cuda").manual_seed(0)
    shape = (4, 8, tokens, 64)
    return [torch.randn(shape, device="cuda", generator=generator) for _ in range(layers)]


@pytest.mark.parametrize(
    "options", [{}, dict(num_beams=3), dict(prefill_chunk_size=16), dict(prompt_lookup_num_tokens=3)]
)
def test_same_tokens_keys_and_values(model, options):
    ids = prompt(batch=1)
    caches = [kv.DynamicCache(config=model.config, offloading=on) for on in (False, True)]
    expected, got = (model.generate(ids, cache=cache, **GREEDY | options) for cache in caches)
    assert torch.equal(got, expected)
    assert_equal(held(caches[1]), held(caches[0]))


def test_layers_live_in_pinned_host_memory_and_little_is_on_the_device():
    layers = 8
    cache = kv.Cache(layers=[DynamicLayer() for _ in range(layers)], offloading=True)
    states = long_states(layers)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for index, tensor in enumerate(states):
        cache.update(tensor, tensor, index)
    for step in range(3):
        for index, tensor in enumerate(states):
            keys, _ = cache.update(tensor[:, :, :1], tensor[:, :, :1], index)
            assert keys.is_cuda and set(cache.offloader.resident(cache.layers)) <= {index, (index + 1) % layers}
            assert torch.equal(keys[:, :, -1:], tensor[:, :, :1]) and torch.equal(keys[:, :, :8192], tensor), step
            del keys
    for layer in cache.layers:
        assert layer.device.type == "cpu" and layer.keys.is_pinned()
    assert cache.nbytes("cpu") == sum(layer.nbytes() for layer in cache.layers)
    assert cache.nbytes("cuda") == sum(cache.offloader.resident(cache.layers).values()) > 0
    torch.cuda.synchronize()
    largest = max(layer.nbytes() for layer in cache.layers)
    assert torch.cuda.memory_allocated() - before <= 3 * largest  # current, next, and one that is on its way out


def test_operations_between_prefetch_and_use():
    caches = [kv.Cache(layers=[DynamicLayer() for _ in range(3)], offloading=on) for on in (False, True)]
    for cache in caches:
        states = [torch.randn(4, 2, 64, 16, device="cuda", generator=torch.Generator("cuda").manual_seed(3))] * 3
        for change in (
            None,
            lambda cache: cache.crop(-5),
            lambda cache: cache.reorder_cache(torch.tensor([2, 0, 1, 3], device="cuda")),
            lambda cache: cache.batch_select_indices([0, 1, 2, 3]),
        ):
            if change is not None:
                change(cache)
            for index, tensor in enumerate(states):
                cache.update(tensor[:, :, :7], tensor[:, :, 7:14], index)
    assert_equal(held(caches[1]), held(caches[0]))


def test_early_initialization_on_the_device_and_copies(model):
    cache = kv.DynamicCache(config=model.config, offloading=True)
    cache.early_initialization(1, 2, 16, torch.float32, "cuda")
    ids = prompt(batch=1)
    expected = model.generate(ids, **GREEDY)
    model(ids[:, :-1], cache=cache)
    for twin in (copy.deepcopy(cache), pickle.loads(pickle.dumps(cache)), cache):
        assert torch.equal(model.generate(ids, cache=twin, **GREEDY), expected)


def test_a_resident_cache_is_sent_home():
    cache = kv.Cache(layers=[DynamicLayer() for _ in range(2)])
    states = long_states(2, tokens=64)
    for index, tensor in enumerate(states):
        cache.update(tensor, tensor, index)
    Offloader.take_over(cache)
    assert cache.nbytes("cuda") == 0 and all(layer.keys.is_pinned() for layer in cache.layers)
    keys, _ = cache.update(states[0][:, :, :1], states[0][:, :, :1], 0)
    assert torch.equal(keys[:, :, :64], states[0])


def test_the_timeline_shows_fetches_beside_computing():
    layers = 4
    cache = kv.Cache(layers=[DynamicLayer() for _ in range(layers)], offloading=True)
    states = long_states(layers)
    work = torch.randn(4096, 4096, device="cuda")
    for tokens in (8192, 1, 1, 1):
        for index, tensor in enumerate(states):
            cache.update(tensor[:, :, :tokens], tensor[:, :, :tokens], index)
            for _ in range(20):
                work @ work
    timeline = cache.offloader.timeline
    assert [event.start for event in timeline] == sorted(event.start for event in timeline)
    assert all(event.end >= event.start for event in timeline)
    computed = [event for event in timeline if event.kind == "compute"]
    fetched = [event for event in timeline if event.kind == "fetch"]
    assert any(one.start < other.end and other.start < one.end for one in fetched for other in computed)
    new_tokens = [event.nbytes for event in timeline if event.kind == "write-back"][layers:]
    assert set(new_tokens) == {2 * 4 * 8 * 64 * 4}
    assert len(stalls(timeline)) < len(computed)


def test_resilient_generate_frees_the_device_first(model):
    ids = prompt(batch=1)
    expected = model.generate(ids, **GREEDY)
    calls = []
    generate = model.generate

    def scarce(*args, **kwargs):
        calls.append(kwargs["cache"].offloading)
        if not calls[-1]:
            raise torch.OutOfMemoryError("not enough")
        return generate(*args, **kwargs)

    model.generate = scarce
    try:
        assert torch.equal(kv.resilient_generate(model, ids, **GREEDY), expected)
    finally:
        del model.generate
    assert calls == [False, True]
