"""The static layers, full and sliding, against a plain list, against transformers, and against no cache."""

import copy
import pickle

import numpy as np
import pytest
import torch
from conftest import SMALL
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_list import Life, PlainList, states
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    Llama4ForCausalLM,
    Llama4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)
from transformers import cache_utils as theirs

import kvcourse as kv
from kvcourse.cache import Cache
from kvcourse.layers.dynamic import DynamicLayer
from kvcourse.layers.static import StaticLayer
from kvcourse.layers.static_sliding import StaticSlidingLayer

torch.set_num_threads(1)
HYBRID = dict(layer_types=["sliding_attention", "full_attention"], sliding_window=6)
CHUNKED = dict(layer_types=["chunked_attention", "full_attention"], attention_chunk_size=6)
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=6)),
    "window of 1": lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=1)),
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**SMALL, **HYBRID, query_pre_attn_scalar=8)),
    "llama4": lambda: Llama4ForCausalLM(
        Llama4TextConfig(**SMALL, **CHUNKED, intermediate_size_mlp=48, num_local_experts=2, moe_layers=[])
    ),
}


def make_model(name):
    torch.manual_seed(0)
    return MODELS[name]().eval()


def make_cache(model, max_cache_len):
    config = model.config
    window = getattr(config, "attention_chunk_size", None) or getattr(config, "sliding_window", None)
    other = "full_attention" if window is None else "sliding_attention"
    kinds = getattr(config, "layer_types", None) or [other] * config.num_hidden_layers
    full = [kind == "full_attention" for kind in kinds]
    return Cache(layers=[StaticLayer(max_cache_len) if f else StaticSlidingLayer(max_cache_len, window) for f in full])


class FixedList(PlainList):
    room = None

    def mask_sizes(self, count):
        return self.room, 0

    def has_room(self, count):
        return self.length + count <= self.room

    def trim_to_window(self):
        pass

    def record(self, on):
        pass


class RingList(PlainList):
    window = None

    def mask_sizes(self, count):
        offset = max(self.length - (self.window - 1), 0)
        if count == 1 or self.length + count <= self.window:
            return self.window, offset
        return self.length - offset + count, offset

    def may_crop(self, count):
        return self.length <= self.window

    def trim(self):
        self.first = max(self.length - self.window, 0)

    trim_to_window = trim

    def record(self, on):
        pass


@settings(derandomize=True, deadline=None, max_examples=120)
@given(st.data())
def test_any_life_of_a_full_layer_agrees_with_a_plain_list(data):
    plain = FixedList()
    plain.room = data.draw(st.sampled_from([1, 3, 10, 24]))
    short = data.draw(st.booleans())  # a window that the text can't fill is a full layer
    life = Life(StaticSlidingLayer(plain.room, plain.room + 2) if short else StaticLayer(plain.room), plain)
    life.check()
    for _ in range(data.draw(st.integers(1, 14))):
        life.step(data)


@settings(derandomize=True, deadline=None, max_examples=120)
@given(st.data())
def test_any_life_of_a_ring_agrees_with_a_plain_list(data):
    plain = RingList()
    plain.window = data.draw(st.sampled_from([1, 2, 3, 4, 9]))
    life = Life(StaticSlidingLayer(plain.window + data.draw(st.integers(0, 20)), plain.window), plain)
    life.check()
    for _ in range(data.draw(st.integers(1, 14))):
        life.step(data)


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (StaticLayer(40), theirs.StaticLayer(40)),
        (StaticSlidingLayer(64, 8), theirs.StaticSlidingWindowLayer(64, 8)),
        (StaticSlidingLayer(64, 3), theirs.StaticSlidingWindowLayer(64, 3)),
        (StaticSlidingLayer(64, 1), theirs.StaticSlidingWindowLayer(64, 1)),
        (StaticSlidingLayer(40, 50), theirs.StaticSlidingWindowLayer(40, 50)),
        (StaticSlidingLayer(8, 8), theirs.StaticSlidingWindowLayer(8, 8)),
    ],
    ids=lambda layer: f"{type(layer).__name__}-{layer.max_cache_len}",
)
@pytest.mark.parametrize("counts", [(2, 1, 1, 3, 1, 1, 1, 5, 1, 4, 1, 1, 1), (11, 1, 1, 9, 1, 1, 1, 1)])
def test_equals_transformers_layer_by_layer(ours, theirs, counts):
    ours, theirs, first = copy.deepcopy(ours), copy.deepcopy(theirs), 1
    for count in counts:
        assert ours.get_mask_sizes(count) == theirs.get_mask_sizes(count)
        new = states(2, count, first)
        first += new[0].numel()
        for got, wanted in zip(ours.update(*new), theirs.update(*new), strict=True):
            assert torch.equal(got, wanted)
        assert torch.equal(ours.keys, theirs.keys) and torch.equal(ours.values, theirs.values)
        assert ours.get_seq_length() == theirs.get_seq_length()
    assert ours.get_max_length() == theirs.get_max_length() and ours.is_sliding == theirs.is_sliding


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("padding", [0, 3])
def test_text_equals_no_cache_whatever_the_capacity(name, padding):
    model, ids = make_model(name), torch.randint(2, 61, (2, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[0, :padding] = 0
    options = dict(attention_mask=mask, max_new_tokens=14, do_sample=False)
    plain = model.generate(ids, use_cache=False, **options)
    for room in (23, 50):
        assert torch.equal(model.generate(ids, cache=make_cache(model, room), **options), plain)
    assert torch.equal(model.generate(ids, cache=make_cache(model, 30), prefill_chunk_size=4, **options), plain)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("parts", [[1] * 20, [7, 1, 5, 1, 1, 5], [4, 2, 13, 1], [20]])
@torch.no_grad()
def test_logits_equal_no_cache_in_any_parts(name, parts):
    model, ids = make_model(name), torch.randint(2, 61, (2, 20), generator=torch.Generator().manual_seed(2))
    cache = make_cache(model, 25)
    got = torch.cat([model(part, cache=cache).logits for part in ids.split(parts, dim=1)], dim=1)
    torch.testing.assert_close(got, model(ids, use_cache=False).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma3"])
def test_beams_equal_no_cache_and_keep_the_address(name):
    model, ids = make_model(name), torch.tensor([[5, 6, 7, 8, 5, 6, 7, 8, 5, 6]])
    options = dict(max_new_tokens=8, num_beams=3, do_sample=False)
    plain, cache = model.generate(ids, use_cache=False, **options), make_cache(model, 20)
    cache.early_initialization(3, 2, 8, torch.float32, "cpu")
    before = [layer._keys.buffer.data_ptr() for layer in cache.layers]
    assert torch.equal(model.generate(ids, cache=cache, **options), plain)
    assert before == [layer._keys.buffer.data_ptr() for layer in cache.layers]


def test_prompt_lookup_on_a_full_layer():
    model, ids = make_model("llama"), torch.tensor([[5, 6, 7, 8, 5, 6, 7, 8, 5, 6]])
    plain = model.generate(ids, use_cache=False, max_new_tokens=15, do_sample=False)
    got = model.generate(ids, cache=make_cache(model, 40), max_new_tokens=15, prompt_lookup_num_tokens=4)
    assert torch.equal(got, plain)


@torch.no_grad()
def test_a_deep_copied_prefix_goes_on():
    model, ids = make_model("gemma3"), torch.randint(2, 61, (1, 16), generator=torch.Generator().manual_seed(3))
    prefix = make_cache(model, 30)
    model(ids[:, :10], cache=prefix)
    for _ in range(2):
        cache = copy.deepcopy(prefix)
        assert cache.nbytes() == prefix.nbytes(used=True) < prefix.nbytes()
        got = model.generate(ids, cache=cache, max_new_tokens=6, do_sample=False)
        assert torch.equal(got, model.generate(ids, use_cache=False, max_new_tokens=6, do_sample=False))
        assert cache.nbytes() == prefix.nbytes()
    assert prefix.get_seq_length() == 10


@pytest.mark.parametrize("make", [lambda: StaticLayer(9), lambda: StaticSlidingLayer(9, 5)], ids=["full", "ring"])
def test_a_copy_can_be_cropped_and_copied_again(make):
    layer = make()
    layer.update(*states(1, 4))
    twin = copy.deepcopy(layer)
    for one in (layer, twin):
        one.crop(-2)
    third = copy.deepcopy(twin)
    assert third.nbytes() == third.nbytes(used=True) == layer.nbytes(used=True)
    for one in (layer, twin, third):
        keys, _ = one.update(*states(1, 1, 100))
        assert keys[0, 0, :3, 0].tolist() == [0, 6, 100]


@pytest.mark.parametrize("layer", [StaticLayer(7), StaticSlidingLayer(7, 9)], ids=["full", "short window"])
def test_overflow_is_refused_and_changes_nothing(layer):
    cache = Cache(layers=[copy.deepcopy(layer)])
    cache.update(*states(1, 5), 0)
    before = cache.layers[0].keys.clone()
    with pytest.raises(ValueError, match=r"makes 8 tokens, and the static cache holds 7"):
        cache.update(*states(1, 3, 100), 0)
    assert cache.get_seq_length() == 5 and torch.equal(cache.layers[0].keys, before)
    cache.update(*states(1, 2, 100), 0)
    assert cache.positions() == list(range(7))


def test_overflow_beside_a_window_is_refused_before_the_window_changes():
    cache = Cache(layers=[StaticSlidingLayer(7, 3), StaticLayer(7)])
    for layer_idx in (0, 1):
        cache.update(*states(1, 6), layer_idx)
    with pytest.raises(ValueError, match="makes 8 tokens, and the static cache holds 7"):
        cache.update(*states(1, 2), 0)
    assert cache.positions(0) == [3, 4, 5] and cache.get_seq_length(0) == 6


def test_a_window_alone_goes_on_past_max_cache_len():
    layer = StaticSlidingLayer(7, 3)
    for number in range(20):
        keys, _ = Cache(layers=[layer]).update(*states(1, 1, 10 * number), 0)
    assert layer.positions() == [17, 18, 19]
    assert keys[0, 0, :, 0].tolist() == [170, 180, 190]


def test_bytes_equal_the_formula():
    token = 2 * 3 * 2 * 3 * 2  # keys and values, batch, heads, head_dim, float16
    for layer, slots, held in (
        (StaticLayer(20), 20, 11),
        (StaticSlidingLayer(20, 6), 12, 6),
        (StaticSlidingLayer(20, 20), 40, 11),
        (StaticSlidingLayer(20, 21), 20, 11),
    ):
        assert layer.nbytes() == 0
        layer.update(*states(3, 11, dtype=torch.float16))
        assert layer.nbytes() == layer.nbytes("cpu") == token * slots and layer.nbytes("meta") == 0
        assert layer.nbytes(used=True) == token * held
        assert copy.deepcopy(layer).nbytes() == token * held


def test_a_length_is_a_value():
    layer = StaticLayer(9)
    layer.update(*states(1, 3))
    length = layer.get_seq_length()
    layer.update(*states(1, 3))
    assert length == 3 and layer.get_seq_length() == 6


@pytest.mark.parametrize("make", [lambda: StaticLayer(9), lambda: StaticSlidingLayer(9, 4)], ids=["full", "ring"])
def test_reset_keeps_the_address_and_takes_another_batch(make):
    layer = make()
    layer.update(*states(2, 6))
    address = layer._keys.buffer.data_ptr(), layer._seen.value.data_ptr()
    layer.reset()
    assert layer.get_seq_length() == 0 and layer.positions() == [] and layer.is_croppable
    assert not layer._keys.buffer.any()
    layer.update(*states(2, 6))
    assert address == (layer._keys.buffer.data_ptr(), layer._seen.value.data_ptr())
    layer.reset()
    fresh = make()
    for got, wanted in zip(layer.update(*states(3, 2)), fresh.update(*states(3, 2)), strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("make", [lambda: StaticLayer(30), lambda: StaticSlidingLayer(30, 4)], ids=["full", "ring"])
def test_filled_under_inference_mode_and_continued_outside(make):
    with torch.inference_mode():
        layer = make()
        for count in (2, 1, 1, 7, 1):
            layer.update(*states(1, count))
        other, packed = copy.deepcopy(layer), pickle.dumps(layer)
        third = pickle.loads(packed)
    with torch.no_grad():
        for one in (layer, other, third, pickle.loads(packed)):
            one.update(*states(1, 1))
            one.reorder_cache(torch.tensor([0]))
            one.update(*states(1, 1))
            assert one.get_seq_length() == 14 and not one._keys.buffer.is_inference()
            assert torch.equal(one.keys, layer.keys)


@pytest.mark.parametrize("make", [lambda: StaticLayer(30), lambda: StaticSlidingLayer(30, 4)], ids=["full", "ring"])
def test_gradients_flow_through_one_update_and_not_into_a_copy(make):
    layer, (keys, values) = make(), states(1, 3)
    keys.requires_grad_()
    layer.update(keys, values)[0].sum().backward()
    assert torch.equal(keys.grad, torch.ones_like(keys))
    twin = copy.deepcopy(layer)
    assert not twin.keys.requires_grad
    layer.reset()
    assert not layer.keys.requires_grad


def test_what_does_not_fit_is_refused_by_name():
    for make in (lambda: StaticLayer(0), lambda: StaticSlidingLayer(0, 3)):
        with pytest.raises(ValueError, match="max_cache_len=0"):
            make()
    with pytest.raises(ValueError, match="sliding_window=0"):
        StaticSlidingLayer(5, 0)
    cache = Cache(layers=[StaticLayer(5)])
    cache.update(*states(1, 1), 0)
    with pytest.raises(ValueError, match="float32.*float16.*early_initialization"):
        cache.update(*states(1, 1, dtype=torch.float16), 0)
    assert cache.get_seq_length() == 1


def test_older_arguments_are_taken_and_misspelt_ones_refused():
    config = LlamaConfig(num_hidden_layers=2)
    cache = kv.StaticCache(config, 5, max_batch_size=3, device="cpu", dtype=torch.float16)
    assert len(cache) == 2 and not cache.is_initialized
    with pytest.raises(TypeError, match="offload_only_nonsliding"):
        kv.StaticCache(config, 5, offload_only_nonsliding=False)
    with pytest.raises(ValueError, match="offloadin"):
        kv.make_cache("static", config, max_cache_len=5, offloadin=True)


@pytest.mark.parametrize("number", [np.int64(2), torch.tensor(2)])
def test_sizes_may_come_from_numpy_or_a_tensor(number):
    cache = Cache(layers=[StaticLayer(5), StaticLayer(5)])
    cache.early_initialization(number, number, [4, number], torch.float32, "cpu")
    assert [layer.keys.shape for layer in cache.layers] == [(2, 2, 5, 4), (2, 2, 5, 2)]
    for wrong in ([2], [2, 2, 2], 0, 2.5):
        with pytest.raises(ValueError, match="num_heads"):
            Cache(layers=[StaticLayer(5)] * 2).early_initialization(1, wrong, 4, torch.float32, "cpu")


def test_a_ring_reads_like_a_growing_layer():
    full, ring, first = DynamicLayer(), StaticSlidingLayer(99, 5), 1
    for count in (3, 1, 1, 1, 1, 1, 1, 1, 8, 1, 1):
        new = states(1, count, first)
        first += new[0].numel()
        length, offset = ring.get_mask_sizes(count)
        got, wanted = ring.update(*new), full.update(*new)
        for mine, all_of_them in zip(got, wanted, strict=True):
            filled = min(length, full.get_seq_length() - offset)
            assert torch.equal(mine[:, :, :filled], all_of_them[:, :, offset : offset + filled])


def test_a_compiled_overflow_beside_a_window_leaves_every_length():
    """The graph asks all layers for room before the first one writes."""
    cache = Cache(layers=[StaticSlidingLayer(8, 4), StaticLayer(8), StaticSlidingLayer(8, 4), StaticLayer(8)])

    def step(tokens):
        for layer_idx in range(4):
            cache.update(tokens, tokens, layer_idx)

    tokens = torch.randn(1, 2, 8, 8)
    step(tokens)
    with pytest.raises(Exception, match="static cache|index"):
        torch.compile(step, backend="eager", fullgraph=True)(tokens[:, :, :1])
    assert [cache.get_seq_length(layer_idx) for layer_idx in range(4)] == [8] * 4


@pytest.mark.parametrize("length", [0, 1, 3, 4, 9])
@pytest.mark.parametrize("count", [0, 1, 2, 4, 6])
def test_a_ring_returns_what_it_announced(length, count):
    layer, text = StaticSlidingLayer(20, 4), states(1, 20)
    if length:
        layer.update(*(part[:, :, :length] for part in text))
    kv_length, offset = layer.get_mask_sizes(count)
    keys, _ = layer.update(*(part[:, :, length : length + count] for part in text))
    known = min(kv_length, length + count - offset)
    assert keys.shape[-2] == kv_length and torch.equal(keys[:, :, :known], text[0][:, :, offset : offset + known])
    assert known == min(length + count, kv_length)
