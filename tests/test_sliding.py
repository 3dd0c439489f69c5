"""The dynamic sliding-window layer, against a plain list, against transformers, and against no cache."""

import copy
import pickle

import pytest
import torch
from conftest import SMALL
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_list import Life, PlainList, states
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    Llama4ForCausalLM,
    Llama4TextConfig,
    MistralConfig,
    MistralForCausalLM,
)
from transformers.cache_utils import DynamicSlidingWindowLayer

from kvcourse.cache import Cache
from kvcourse.layers.dynamic import DynamicLayer
from kvcourse.layers.sliding import DynamicSlidingLayer

torch.set_num_threads(1)
HYBRID = dict(layer_types=["sliding_attention", "full_attention"], sliding_window=6)
CHUNKED = dict(layer_types=["chunked_attention", "full_attention"], attention_chunk_size=6)
MODELS = {
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=6)),
    "window of 1": lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=1)),
    "gemma2": lambda: Gemma2ForCausalLM(Gemma2Config(**SMALL, **HYBRID, query_pre_attn_scalar=8)),
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**SMALL, **HYBRID, query_pre_attn_scalar=8)),
    "llama4": lambda: Llama4ForCausalLM(
        Llama4TextConfig(**SMALL, **CHUNKED, intermediate_size_mlp=48, num_local_experts=2, moe_layers=[])
    ),
}


def make_model(name):
    torch.manual_seed(0)
    return MODELS[name]().eval()


def make_cache(model):
    config = model.config
    window = getattr(config, "attention_chunk_size", None) or config.sliding_window
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    return Cache(layers=[DynamicLayer() if kind == "full_attention" else DynamicSlidingLayer(window) for kind in kinds])


class WindowList(PlainList):
    window = None

    def mask_sizes(self, count):
        offset = max(self.length - (self.window - 1), 0)
        return self.length - offset + count, offset

    def may_crop(self, count):
        return all(p >= self.first for p in range(max(self.length - count - (self.window - 1), 0), self.length))

    def trim(self):
        if not self.recording:
            self.trim_to_window()

    def trim_to_window(self):
        self.first = max(self.first, self.length - (self.window - 1), 0)

    def record(self, on):
        self.recording = on


class OneTokenWindow(WindowList):
    def may_crop(self, count):  # it holds nothing, so the rule is the one for every window: not once it has dropped
        return self.first <= max(self.length - count, 0)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.data())
def test_any_life_agrees_with_a_plain_list(data):
    window = data.draw(st.sampled_from([1, 2, 3, 4, 9]))
    plain = OneTokenWindow() if window == 1 else WindowList()
    plain.window = window
    life = Life(DynamicSlidingLayer(window), plain)
    life.check()
    for _ in range(data.draw(st.integers(1, 14))):
        life.step(data)


@pytest.mark.parametrize("window", [2, 3, 5, 8])
@pytest.mark.parametrize("record", [False, True])
def test_equals_transformers_layer_by_layer(window, record):
    ours, theirs = DynamicSlidingLayer(window), DynamicSlidingWindowLayer(sliding_window=window)
    if record:
        ours.activate_past_recording(), theirs.activate_past_recording()
    first = 1
    for count in (5, 1, 1, 3, 1, 9, 1, 1, 2 * window, 1, 2):
        assert ours.get_mask_sizes(count) == theirs.get_mask_sizes(count)
        new = states(2, count, first)
        first += new[0].numel()
        for got, wanted in zip(ours.update(*new), theirs.update(*new), strict=True):
            assert torch.equal(got, wanted)
        assert torch.equal(ours.keys, theirs.keys) and torch.equal(ours.values, theirs.values)
        assert ours.get_seq_length() == theirs.get_seq_length()
        if record:
            ours.crop(-1), theirs.crop(-1)
            assert torch.equal(ours.keys, theirs.keys)
    assert ours.get_max_length() == theirs.get_max_length() and ours.is_sliding and theirs.is_sliding


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("padding", [0, 3])
def test_text_equals_no_cache(name, padding):
    model, ids = make_model(name), torch.randint(2, 61, (2, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[0, :padding] = 0
    options = dict(attention_mask=mask, max_new_tokens=14, do_sample=False)
    plain = model.generate(ids, use_cache=False, **options)
    assert torch.equal(model.generate(ids, cache=make_cache(model), **options), plain)
    assert torch.equal(model.generate(ids, cache=make_cache(model), prefill_chunk_size=4, **options), plain)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("parts", [[1] * 20, [7, 1, 5, 1, 1, 5], [20]])
@torch.no_grad()
def test_logits_equal_no_cache_in_any_parts(name, parts):
    model, ids = make_model(name), torch.randint(2, 61, (2, 20), generator=torch.Generator().manual_seed(2))
    cache = make_cache(model)
    got = torch.cat([model(part, cache=cache).logits for part in ids.split(parts, dim=1)], dim=1)
    torch.testing.assert_close(got, model(ids, use_cache=False).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["mistral", "gemma3", "llama4"])
def test_prompt_lookup_and_beams_equal_no_cache(name):
    model, ids = make_model(name), torch.tensor([[5, 6, 7, 8, 5, 6, 7, 8, 5, 6]])
    plain = model.generate(ids, use_cache=False, max_new_tokens=15, do_sample=False)
    cache = make_cache(model)
    assert torch.equal(model.generate(ids, cache=cache, max_new_tokens=15, prompt_lookup_num_tokens=4), plain)
    beams = dict(max_new_tokens=8, num_beams=3, do_sample=False)
    plain = model.generate(ids, use_cache=False, **beams)
    assert torch.equal(model.generate(ids, cache=make_cache(model), **beams), plain)


def test_window_as_long_as_the_text_is_full_attention():
    full, window = DynamicLayer(), DynamicSlidingLayer(12)
    for count in (4, 1, 1, 5):
        new = states(1, count, count)
        for got, wanted in zip(window.update(*new), full.update(*new), strict=True):
            assert torch.equal(got, wanted)


def test_the_picture_of_crop():
    full, window = DynamicLayer(), DynamicSlidingLayer(2)
    cache = Cache(layers=[full, window])
    cache.activate_past_recording()
    for layer_idx in (0, 1):
        cache.update(*states(1, 6), layer_idx)
    cache.crop(-3)
    assert full.positions() == [0, 1, 2] and window.positions() == [2]
    assert full.get_seq_length() == window.get_seq_length() == 3


def test_recording_reaches_as_far_back_as_it_was_on():
    layer = DynamicSlidingLayer(4)
    layer.update(*states(1, 10))
    assert layer.positions() == [7, 8, 9] and not layer.is_croppable
    layer.activate_past_recording()
    assert layer.is_croppable
    with pytest.raises(RuntimeError, match="before position 7, so 0 can go"):
        layer.crop(-1)
    layer.update(*states(1, 5))
    assert layer.positions() == list(range(7, 15))
    with pytest.raises(RuntimeError, match="so 5 can go at most.*activate_past_recording"):
        layer.crop(-99)
    twin = copy.deepcopy(layer)
    layer.crop(-2)
    with pytest.raises(RuntimeError):
        layer.crop(-3)
    twin.crop(-5)
    assert layer.positions() == [10, 11, 12] and twin.positions() == [7, 8, 9]


def test_a_crop_of_nothing_frees_what_was_recorded():
    layer = DynamicSlidingLayer(4)
    layer.activate_past_recording()
    layer.update(*states(1, 50))
    assert layer.nbytes() == 2 * 50 * 2 * 3 * 4
    layer.crop(0)
    assert layer.positions() == [47, 48, 49] and layer.nbytes() == 2 * 3 * 2 * 3 * 4


def test_recording_switched_off_is_trimmed_by_the_next_update():
    layer = DynamicSlidingLayer(4)
    layer.activate_past_recording()
    layer.update(*states(1, 50))
    layer.record_past = False
    length, offset = layer.get_mask_sizes(1)
    assert layer.update(*states(1, 1))[0].shape[-2] == length == 4 and offset == 47
    assert layer.positions() == [48, 49, 50]


@settings(derandomize=True, deadline=None, max_examples=60)
@given(window=st.integers(1, 40), counts=st.lists(st.integers(1, 90) | st.just(1), min_size=1, max_size=30))
def test_bytes_equal_the_formula(window, counts):
    layer, keep = DynamicSlidingLayer(window), window - 1
    held = capacity = end = 0  # `end`: the slot behind the last token
    for count in counts:
        layer.update(*states(2, count))
        total = held + count
        if held == 0 or total > max(keep + 1, int(1.25 * keep)):
            capacity = end = min(total, keep)
        elif end + count > capacity:
            capacity, end = max(total, int(1.25 * held)), total
        else:
            end += count
        held = min(total, keep)
        assert layer.nbytes() == 2 * 2 * 2 * 3 * capacity * 4
        assert layer.nbytes(used=True) == 2 * 2 * 2 * 3 * held * 4
        assert layer.nbytes("cpu") == layer.nbytes() and layer.nbytes("meta") == 0
        assert capacity <= max(window, int(1.25 * keep))


def test_a_token_is_moved_about_four_times_at_any_window():
    for window in (100, 1000):
        layer = DynamicSlidingLayer(window)
        for _ in range(3 * window):
            layer.update(*states(1, 1))
        moved = layer._keys.moved_bytes / (3 * window * 2 * 3 * 4)
        assert 3 < moved < 6


def test_a_long_prompt_leaves_no_view_behind():
    layer, (keys, values) = DynamicSlidingLayer(8), states(1, 500)
    layer.update(keys[:, :, :400], values[:, :, :400])
    layer.update(keys[:, :, 400:], values[:, :, 400:])
    for held in (layer.keys, layer.values):
        assert held.untyped_storage().nbytes() == 7 * 2 * 3 * 4
    assert torch.equal(layer.keys, keys[:, :, -7:])


def test_views_handed_out_stay_as_they_were():
    layer, kept = DynamicSlidingLayer(5), []
    for number in range(40):
        keys, _ = layer.update(*states(1, 1, 10 * number))
        kept.append((keys, keys.clone()))
    assert all(torch.equal(view, then) for view, then in kept)


def test_training_through_the_cache():
    window, layer = 4, DynamicSlidingLayer(4)
    keys, values = (tensor.requires_grad_() for tensor in states(1, 9))
    total = sum(
        sum(t.pow(2).sum() for t in layer.update(keys[:, :, p : p + 1], values[:, :, p : p + 1])) for p in range(9)
    )
    total.backward()
    times = torch.tensor([min(window, 9 - p) for p in range(9)]).view(1, 1, 9, 1)  # steps that see position p
    assert torch.equal(keys.grad, 2 * keys.detach() * times)
    twin = copy.deepcopy(layer)
    assert not twin.keys.requires_grad and torch.equal(twin.keys, layer.keys)
    with torch.no_grad():
        twin.update(*states(1, 1))


def test_autograd_through_views_finds_them_as_they_were():
    layer, queries = DynamicSlidingLayer(20), torch.ones(1, 2, 1, 3, requires_grad=True)
    scores = [(queries * layer.update(*states(1, 1, 10 * step))[0]).sum() for step in range(30)]
    sum(scores).backward()  # 29 later writes, and none into what these views show
    layer.reset()
    layer.update(*states(1, 9))
    layer.update(*states(1, 1))
    queries.grad = None
    seen = layer.update(*states(1, 1))[0]
    expected, score = seen.sum(dim=2, keepdim=True).clone(), (queries * seen).sum()
    layer.crop(-1)
    layer.update(*states(1, 1, 50))
    layer.reorder_cache(torch.tensor([0]))
    score.backward()
    assert torch.equal(queries.grad, expected)


def test_filled_under_inference_mode_and_continued_outside():
    layer = DynamicSlidingLayer(4)
    with torch.inference_mode():
        for count in (2, 1, 1, 7, 1):
            layer.update(*states(1, count))
        other = pickle.loads(pickle.dumps(layer))
    with torch.no_grad():
        for one in (layer, other):
            one.update(*states(1, 1))
            one.reorder_cache(torch.tensor([0]))
            one.update(*states(1, 1))
            assert one.positions() == [11, 12, 13] and not one.keys.is_inference()


def test_a_window_holds_at_least_the_current_token():
    with pytest.raises(ValueError, match="sliding_window=0"):
        DynamicSlidingLayer(0)
