"""Offloading: the same results from a device that is too small, and a timeline that adds up."""

import copy
import gc
import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import kvcourse as kv
from kvcourse.layers import DynamicIndexedLayer, DynamicLayer, LinearLayer
from kvcourse.offload import Event, emulated_device, stalls

LAYERS, HEADS, SIZE = 4, 2, 8
GREEDY = dict(max_new_tokens=12, do_sample=False, pad_token_id=0)
BIG = dict(memory=10**9, bandwidth=1e9, latency=1e-6)


@pytest.fixture(scope="module")
def model():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shape = dict(vocab_size=96, hidden_size=32, intermediate_size=64, num_attention_heads=4)
    config = LlamaConfig(
        **shape, num_hidden_layers=LAYERS, num_key_value_heads=HEADS, head_dim=SIZE, initializer_range=0.3
    )
    return LlamaForCausalLM(config).eval()


def prompt(batch=1, tokens=9, seed=1):
    return torch.randint(3, 96, (batch, tokens), generator=torch.Generator().manual_seed(seed))


def states(tokens, layers=LAYERS, batch=1, seed=0):
    """Distinct keys and values for each layer."""
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, HEADS, tokens, SIZE)
    return [(torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)) for _ in range(layers)]


def offloaded(layers=LAYERS, **options):
    cache = kv.Cache(layers=[DynamicLayer() for _ in range(layers)], offloading=True)
    for name, value in options.items():
        setattr(cache.offloader, name, value)
    return cache


def resident(layers=LAYERS):
    return kv.Cache(layers=[DynamicLayer() for _ in range(layers)])


def step(cache, tokens, seed):
    """One forward's updates. Returns what each layer's attention would see."""
    return [
        cache.update(keys, values, index)
        for index, (keys, values) in enumerate(states(tokens, len(cache.layers), seed=seed))
    ]


def assert_equal(ours, theirs):
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine[0], other[0]) and torch.equal(mine[1], other[1])


def layers_of(cache):
    return [(layer.keys, layer.values) for layer in cache.layers]


# The same results


PLACES = ["nowhere", "virtual", "wall", "small"]  # a plain CPU, both clocks, room for one layer but not for two


def somewhere(place, sequences=1):
    if place == "nowhere":
        return nullcontext()
    memory = 5000 * sequences if place == "small" else 10**9
    return emulated_device(memory, 1e9, 1e-6, clock="wall" if place == "wall" else "virtual")


def generate(model, place, ids, **options):
    cache = kv.DynamicCache(config=model.config, offloading=True)
    with somewhere(place, options.get("num_beams", 1)):
        return model.generate(ids, cache=cache, **GREEDY | options), cache


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        dict(num_beams=3, num_return_sequences=2),
        dict(prefill_chunk_size=4),
        dict(prompt_lookup_num_tokens=3),
        dict(do_sample=True, top_k=10),
    ],
    ids=["greedy", "beams", "chunks", "lookup", "sampling"],
)
def test_same_tokens_keys_and_values_as_a_resident_cache(model, place, options):
    ids = prompt().repeat(1, 2)  # repeated, so that prompt lookup finds something
    expected_cache = kv.DynamicCache(config=model.config)
    torch.manual_seed(5)
    expected = model.generate(ids, cache=expected_cache, **GREEDY | options)
    torch.manual_seed(5)
    got, cache = generate(model, place, ids, **options)
    assert torch.equal(got, expected)
    assert_equal(layers_of(cache), layers_of(expected_cache))


def test_a_left_padded_batch(model):
    ids = prompt(batch=3)
    mask = torch.ones_like(ids)
    mask[0, :4] = mask[1, :2] = 0
    expected = model.generate(ids, attention_mask=mask, use_cache=False, **GREEDY)
    got, _ = generate(model, "virtual", ids, attention_mask=mask)
    assert torch.equal(got, expected)


@pytest.mark.parametrize("inference", [False, True])
def test_prefetched_in_one_mode_and_used_in_another(model, inference):
    cache, expected = offloaded(), resident()
    with emulated_device(**BIG):
        with torch.inference_mode(inference):
            step(cache, 5, seed=1)  # the first layer is fetched ahead here
            step(expected, 5, seed=1)
        with torch.no_grad():
            assert_equal(step(cache, 1, seed=2), step(expected, 1, seed=2))
        assert_equal(step(cache, 2, seed=3), step(expected, 2, seed=3))


def test_training_through_an_offloaded_cache(model):
    ids = prompt(tokens=8)

    def gradient(make):
        cache = make()
        model.zero_grad()
        model(ids[:, :5], cache=cache)
        model(ids[:, 5:], cache=cache).logits.square().mean().backward()
        return model.model.layers[0].self_attn.k_proj.weight.grad.clone()

    with emulated_device(**BIG):
        got = gradient(lambda: kv.DynamicCache(config=model.config, offloading=True))
    torch.testing.assert_close(got, gradient(lambda: kv.DynamicCache(config=model.config)))
    model.zero_grad()


# Operations reach layers wherever they are

OPERATIONS = {
    "crop": lambda cache: cache.crop(-3),
    "crop most": lambda cache: cache.crop(-8),
    "reorder": lambda cache: cache.reorder_cache(torch.tensor([1, 0])),
    "select": lambda cache: cache.batch_select_indices([1]),
    "repeat": lambda cache: cache.batch_repeat_interleave(2),
    "set": lambda cache: setattr(cache.layers[0], "keys", cache.layers[0].keys * 2),
    "reset": lambda cache: cache.reset(),
    "one layer": lambda cache: cache.layers[0].update(*states(1, batch=2, seed=77)[0]),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("clock", ["virtual", "wall"])
@pytest.mark.parametrize("layers", [1, 2, 4])
def test_an_operation_between_prefetch_and_use(operation, clock, layers):
    def run(cache):
        seen = []
        for seed, change in enumerate([None, None, OPERATIONS[operation], None]):
            if change is not None:
                change(cache)
            if seed == 3 and operation == "one layer":
                for index in range(1, layers):  # the others catch up
                    cache.layers[index].update(*states(1, batch=2, seed=77)[0])
            batch = cache.batch_size if cache.batch_size > 0 else 2
            news = states(4 if seed == 0 else 2, layers, batch, seed)
            for index, (keys, values) in enumerate(news):
                keys, values = cache.update(keys, values, index)
                seen.append((keys.clone(), values.clone()))  # views, which later operations may write to
        return seen, layers_of(cache)

    with emulated_device(**BIG | dict(latency=1e-4), clock=clock):
        got, held = run(offloaded(layers))
    expected, expected_held = run(resident(layers))
    assert_equal(got, expected)
    assert_equal(held, expected_held)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))])
def test_a_copy_is_independent_and_holds_nothing_of_the_device(clone):
    with emulated_device(**BIG, clock="wall"):
        cache, expected = offloaded(depth=2), resident()
        step(cache, 6, seed=1)
        step(expected, 6, seed=1)
        twin = clone(cache)
        assert twin.offloading and twin.offloader.depth == 2 and twin.offloader.timeline == []
        assert twin.nbytes() == twin.nbytes("cpu") == expected.nbytes()
        step(cache, 1, seed=2)
        assert_equal(step(twin, 1, seed=3), step(expected, 1, seed=3))


def test_a_reset_cache_holds_nothing_anywhere():
    with emulated_device(**BIG) as device:
        cache = offloaded()
        step(cache, 6, seed=1)
        assert device.used > 0
        cache.reset()
        assert cache.nbytes() == device.used == 0 and cache.get_seq_length() == 0


def test_a_refused_update_changes_nothing():
    with emulated_device(**BIG):
        cache = offloaded()
        step(cache, 3, seed=1)
        before = copy.deepcopy(cache)
        with pytest.raises(ValueError, match="batch"):
            cache.update(*states(1, batch=2)[0], 0)
        assert_equal(layers_of(cache), layers_of(before))
        assert_equal(step(cache, 1, seed=2), step(before, 1, seed=2))


# Memory


def layer_bytes(tokens, batch=1):
    return 2 * batch * HEADS * SIZE * tokens * 4


def test_outside_of_a_device_offloading_is_bookkeeping_alone():
    cache, expected = offloaded(), resident()
    for seed, tokens in enumerate([5, 1, 1]):
        assert_equal(step(cache, tokens, seed), step(expected, tokens, seed))
    assert cache.nbytes() == cache.nbytes("cpu") == expected.nbytes()
    assert cache.nbytes("emulated") == 0
    assert [event.kind for event in cache.offloader.timeline].count("write-back") == 3 * LAYERS


@pytest.mark.parametrize("depth", [0, 1, 2, 7])
def test_no_more_than_the_current_layer_and_the_next_ones_are_resident(depth):
    with emulated_device(**BIG) as device:
        cache = offloaded(depth=depth)
        for seed in range(6):
            for index, (keys, values) in enumerate(states(3, seed=seed)):
                cache.update(keys, values, index)
                here = cache.offloader.resident(cache.layers)
                assert set(here) <= {(index + ahead) % LAYERS for ahead in range(depth + 1)} and index in here
                largest = max(layer.nbytes() for layer in cache.layers)
                assert device.used == cache.nbytes("emulated") == sum(here.values()) <= (depth + 1) * largest
                assert cache.nbytes() == cache.nbytes("cpu") + cache.nbytes("emulated")
        assert device.peak == min(depth + 1, LAYERS) * cache.layers[0].nbytes()


def test_a_resident_cache_fits_to_the_byte():
    needed = LAYERS * layer_bytes(6)
    with emulated_device(needed, 1e9, 0) as device:
        step(resident(), 6, seed=1)
        assert device.peak == needed
    with emulated_device(needed - 1, 1e9, 0) as device:
        cache = resident()
        with pytest.raises(torch.OutOfMemoryError) as caught:
            step(cache, 6, seed=1)
        for number in (layer_bytes(6), needed - 1, 3 * layer_bytes(6)):  # asked for, in all, used
            assert f"{number:,}" in str(caught.value)
        assert [layer.get_seq_length() for layer in cache.layers] == [6, 6, 6, 0]
        assert cache.nbytes() == device.used == cache.nbytes("emulated") == 3 * layer_bytes(6)
        del cache, caught
        gc.collect()
        assert device.used == 0


def test_growth_counts_spare_room_before_it_is_made():
    with emulated_device(LAYERS * layer_bytes(8) + layer_bytes(2), 1e9, 0):
        cache = resident()
        step(cache, 8, seed=1)
        cache.update(*states(1)[0], 0)  # 8 tokens become a buffer for 10
        before = copy.deepcopy(layers_of(cache))
        with pytest.raises(torch.OutOfMemoryError):
            cache.update(*states(1)[1], 1)
        assert_equal(layers_of(cache), before)


@pytest.mark.parametrize("offloading", [False, True])
def test_states_and_index_keys_are_counted_and_refused_like_keys(offloading):
    """They stay on the device, offloaded or not, and a cache may hold nothing else."""
    inputs, state, index = torch.ones(2, 6, 4), torch.ones(2, 6, 8), torch.ones(2, 5, 3)
    conv, recurrent, indexer = (tensor.nbytes for tensor in (inputs, state, index))
    layers = [LinearLayer(), DynamicIndexedLayer()]
    cache = kv.Cache(layers=layers, offloading=offloading)
    with emulated_device(conv + recurrent, 1e9, 0) as device:
        cache.update_conv_state(inputs, 0, conv_kernel_size=4)
        assert device.used == conv == cache.nbytes("emulated")
        cache.update_recurrent_state(state, 0)
        cache.update_recurrent_state(2 * state, 0)  # in place: nothing more is needed
        assert device.used == device.peak == conv + recurrent and device.moved_bytes == 0
        with pytest.raises(torch.OutOfMemoryError):
            cache.update_indexer(index, 1)
        assert not layers[1].is_initialized and torch.equal(cache.get_recurrent_state(0), 2 * state)
    with emulated_device(conv + recurrent - 1, 1e9, 0):
        cache.reset()
        cache.update_conv_state(inputs, 0, conv_kernel_size=4)
        with pytest.raises(torch.OutOfMemoryError):
            cache.update_recurrent_state(state, 0)
        assert cache.get_recurrent_state(0) is None and torch.equal(cache.get_conv_state(0), inputs)
    with emulated_device(indexer, 1e9, 0) as device:
        cache.reset()
        assert torch.equal(cache.update_indexer(index, 1), index) and device.peak == indexer


def test_an_offloaded_layer_needs_room_for_itself_alone():
    with emulated_device(layer_bytes(10), 1e9, 0) as device:
        cache, expected = offloaded(), resident()
        got = [step(cache, tokens, seed) for seed, tokens in enumerate([8, 1, 1])]  # a buffer for 10 tokens
        assert device.peak == layer_bytes(10)
        with pytest.raises(torch.OutOfMemoryError):
            cache.update(*states(1)[0], 0)
        assert [layer.get_seq_length() for layer in cache.layers] == [10] * LAYERS
    for seed, tokens in enumerate([8, 1, 1]):
        assert_equal(
            [(k[:, :, :8], v[:, :, :8]) for k, v in got[seed]],
            [(k[:, :, :8], v[:, :, :8]) for k, v in step(expected, tokens, seed)],
        )
    assert_equal(layers_of(cache), layers_of(expected))


def test_a_dropped_cache_makes_room():
    with emulated_device(LAYERS * layer_bytes(6), 1e9, 0):
        for seed in range(3):
            step(resident(), 6, seed=seed)


# Bytes that cross the link


def test_only_new_tokens_are_written_back_whatever_the_length():
    written = {}
    for length in (100, 1000):
        with emulated_device(**BIG) as device:
            cache = offloaded()
            step(cache, length, seed=1)
            before = device.written_bytes
            step(cache, 1, seed=2)
            written[length] = device.written_bytes - before
            assert device.moved_bytes == device.written_bytes + device.fetched_bytes
    assert written[100] == written[1000] == LAYERS * layer_bytes(1)


def test_bytes_of_the_timeline_are_the_bytes_of_the_device():
    with emulated_device(**BIG) as device:
        cache = offloaded()
        for seed, tokens in enumerate([7, 1, 1]):
            step(cache, tokens, seed)
        timeline = cache.offloader.timeline
    assert timeline == device.timeline
    for kind, total in (("fetch", device.fetched_bytes), ("write-back", device.written_bytes)):
        assert sum(event.nbytes for event in timeline if event.kind == kind) == total > 0


def test_layers_that_stay_are_not_moved():
    class Window(DynamicLayer):
        is_sliding = True

    def run(only_non_sliding):
        layers = [Window(), DynamicLayer(), Window(), DynamicLayer()]
        cache = kv.Cache(layers=layers, offloading=True, offload_only_non_sliding=only_non_sliding)
        for seed, tokens in enumerate([7, 1, 1]):
            step(cache, tokens, seed)
        return cache

    with emulated_device(**BIG) as device:
        cache = run(only_non_sliding=True)
        assert {event.layer for event in cache.offloader.timeline if event.kind != "compute"} == {1, 3}
        assert [event.layer for event in cache.offloader.timeline if event.kind == "compute"] == [0, 1, 2, 3] * 3
        copies = sum(cache.offloader.resident(cache.layers).values())
        assert device.used == cache.layers[0].nbytes() + cache.layers[2].nbytes() + copies
        cache = run(only_non_sliding=False)
        assert {event.layer for event in cache.offloader.timeline if event.kind == "fetch"} == {0, 1, 2, 3}


# Time


def test_the_virtual_clock_against_a_schedule_made_by_hand():
    # 3 layers, 3 steps of 1 token. The link takes 1 s and 1 s more for each token; a layer computes for 2 s.
    with emulated_device(10**9, layer_bytes(1), 1.0, compute=2.0) as device:
        cache = offloaded(3)
        for seed in range(3):
            step(cache, 1, seed)
        spans = [(event.layer, event.kind, event.start, event.end) for event in cache.offloader.timeline]
    # Step 1 finds empty layers: nothing to fetch. Layer 0 is fetched ahead while layer 2 computes, from second 4 on; a
    # write-back takes 1 + 1 s, and a layer is not fetched before its own is over.
    computed = [(0, 0, 2), (1, 2, 4), (2, 4, 6)]
    fetched = [(0, 4, 6)]
    # Step 2, buffers of 1 token, fetches of 2 s: 2 s of computing hide them, and nothing waits.
    computed += [(0, 6, 8), (1, 8, 10), (2, 10, 12)]
    fetched += [(1, 6, 8), (2, 8, 10), (0, 10, 13)]
    # Buffers of 2 tokens now, fetches of 3 s: each layer waits for a second.
    computed += [(0, 13, 15), (1, 16, 18), (2, 19, 21)]
    fetched += [(1, 13, 16), (2, 16, 19), (0, 19, 23)]
    # A write-back begins when the new tokens are there, which is when the layer before is done.
    written = [
        (0, 0, 2),
        (1, 2, 4),
        (2, 4, 6),
        (0, 6, 8),
        (1, 8, 10),
        (2, 10, 12),
        (0, 12, 14),
        (1, 15, 17),
        (2, 18, 20),
    ]
    for kind, expected in (("compute", computed), ("fetch", fetched), ("write-back", written)):
        assert [(layer, start, end) for layer, what, start, end in spans if what == kind] == expected
    assert stalls(cache.offloader.timeline) == [
        Event(0, "stall", 12, 13),
        Event(1, "stall", 15, 16),
        Event(2, "stall", 18, 19),
    ]
    assert device.now == 21


def test_overlap_hides_the_transfer_up_to_the_knee_whatever_the_depth():
    def seconds(depth, compute):
        with emulated_device(10**9, 1e6, 0.0, compute=compute) as device:
            cache = offloaded(depth=depth)
            step(cache, 64, seed=0)
            step(cache, 1, seed=1)  # the buffer has grown, and has room for the steps below
            before = device.now
            for seed in range(2, 8):
                step(cache, 1, seed)
            return (device.now - before) / 6 / LAYERS

    fetch = layer_bytes(80) / 1e6
    for depth in (1, 2):
        assert seconds(depth, 1.5 * fetch) == pytest.approx(1.5 * fetch)
        assert seconds(depth, 0.5 * fetch) == pytest.approx(fetch, rel=0.1)
    assert seconds(0, 1.5 * fetch) == pytest.approx(2.5 * fetch)


def test_a_resident_cache_computes_without_stalls():
    with emulated_device(**BIG, compute=lambda layer_idx, query_length: query_length * (layer_idx + 1)) as device:
        cache = resident(2)
        step(cache, 3, seed=0)
        step(cache, 1, seed=1)
        assert device.now == 3 * (1 + 2) + 1 * (1 + 2)
        assert {event.kind for event in device.timeline} == {"compute"} and stalls(device.timeline) == []


def test_the_wall_clock_waits_and_overlaps():
    with emulated_device(10**9, 1e9, 0.02, clock="wall") as device:
        cache = offloaded(3)
        for seed in range(3):
            step(cache, 1, seed)
        timeline = cache.offloader.timeline
    fetches = [event for event in timeline if event.kind == "fetch"]
    assert all(event.end - event.start >= 0.02 for event in fetches)
    computed = {(event.layer, round(event.start, 6)): event for event in timeline if event.kind == "compute"}
    assert len(computed) == 8  # the last one goes on until the context ends
    for before, after in zip(fetches, fetches[1:], strict=False):
        assert after.start >= before.end - 0.005  # one at a time
    assert len([event for event in device.timeline if event.kind == "compute"]) == 9


@pytest.mark.parametrize("clock", ["virtual", "wall"])
def test_an_error_of_the_copying_surfaces_and_leaves_the_cache_whole(clock, monkeypatch):
    with emulated_device(**BIG, clock=clock) as device:
        cache, expected = offloaded(), resident()
        step(cache, 4, seed=1)
        step(expected, 4, seed=1)
        cache.offload(0)
        before = copy.deepcopy(cache)

        def broken(tensors):
            raise OSError("the cable is loose")

        monkeypatch.setattr(device, "copy", broken)
        with pytest.raises(OSError, match="cable"):
            cache.update(*states(1)[0], 0)
        assert_equal(layers_of(cache), layers_of(before))
        monkeypatch.undo()
        assert_equal(step(cache, 1, seed=2), step(expected, 1, seed=2))


# Arguments


def test_prefetch_and_offload_by_hand():
    with emulated_device(**BIG):
        cache = offloaded()
        cache.prefetch(0)  # nothing to bring yet
        step(cache, 4, seed=1)
        assert set(cache.offloader.resident(cache.layers)) == {0, 3}
        cache.offload(3)
        cache.prefetch(2)
        assert set(cache.offloader.resident(cache.layers)) == {0, 2}
        cache.prefetch(5)  # past the end: around to the first
        assert set(cache.offloader.resident(cache.layers)) == {0, 2}
    for call in (resident().prefetch, resident().offload):
        with pytest.raises(RuntimeError, match="offloading=True"):
            call(0)


def test_wrong_settings_are_refused_by_name():
    for options, word in (
        (dict(memory=-1), "memory"),
        (dict(memory="1GB"), "memory='1GB'"),
        (dict(bandwidth=float("nan")), "bandwidth"),
        (dict(bandwidth=0), "bandwidth"),
        (dict(latency=-1), "latency"),
        (dict(compute=-1.0), "compute"),
        (dict(clock="sundial"), "'virtual' and 'wall'"),
    ):
        with pytest.raises(ValueError, match=word), emulated_device(**BIG | options):
            pass
    with pytest.raises(ValueError, match="depth"):
        offloaded().offloader.depth = -1


def test_a_cache_outlives_the_device():
    cache, expected = offloaded(), resident()
    for seed, context in enumerate([emulated_device(**BIG), None, emulated_device(**BIG)]):
        if context is None:
            assert_equal(step(cache, 2, seed), step(expected, 2, seed))
        else:
            with context:
                assert_equal(step(cache, 2, seed), step(expected, 2, seed))
    assert_equal(layers_of(cache), layers_of(expected))


@pytest.mark.parametrize("number", [int, lambda index: index - LAYERS, torch.tensor])
def test_a_layer_is_the_same_however_it_is_counted(number):
    with emulated_device(**BIG) as device:
        cache = offloaded()
        step(cache, 4, seed=1)
        cache.offloader.depth = LAYERS - 1
        step(cache, 1, seed=2)
        before = device.fetched_bytes
        cache.update(*states(1)[0], number(1))
        assert device.fetched_bytes == before and set(cache.offloader.resident(cache.layers)) == set(range(LAYERS))
        cache.offload(number(1))
        assert set(cache.offloader.resident(cache.layers)) == set(range(LAYERS)) - {1}
        with pytest.raises(ValueError, match="does not exist"):
            cache.offload(-LAYERS - 1)


def test_an_overflow_is_told_before_the_device_is_asked_for_room():
    config = LlamaConfig(hidden_size=16, num_attention_heads=2, num_hidden_layers=2)
    cache = kv.StaticCache(config, 6, offloading=True)
    keys = torch.ones(1, 2, 5, 8)
    with emulated_device(**BIG):
        cache.update(keys, keys, 0)
    with emulated_device(8, 1e9, 0), pytest.raises(ValueError, match="holds 6"):
        cache.update(keys, keys, 0)


def test_threads_bring_caches_while_others_count():
    def work():
        for seed in range(60):
            step(resident(), 3, seed)

    with emulated_device(**BIG) as device, ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(work) for _ in range(4)]:
            done.result()
        assert device.peak > 0


def test_prefetch_after_the_device_is_gone_does_nothing():
    cache = offloaded()
    with emulated_device(**BIG | {"clock": "wall"}):
        step(cache, 3, seed=1)
    cache.prefetch(0)
    assert step(cache, 1, seed=2) and cache.get_seq_length() == 4
