"""Layers with attention and states side by side, and layers with nothing."""

import copy
import pickle

import pytest
import torch
import transformers
from conftest import distinct

from kvcourse.cache import Cache
from kvcourse.hf import layer_specs
from kvcourse.layers.dummy import DummyLayer
from kvcourse.layers.dynamic import DynamicLayer
from kvcourse.layers.hybrid import HybridLayer
from kvcourse.layers.linear import LinearLayer
from kvcourse.layers.sliding import DynamicSlidingLayer
from kvcourse.layers.static import StaticLayer
from kvcourse.layers.static_sliding import StaticSlidingLayer

PROMPT = torch.tensor([[5, 17, 33, 2, 61, 9, 44]])
KERNEL = 4
ATTENTION = {
    "dynamic": DynamicLayer,
    "sliding": lambda: DynamicSlidingLayer(3),
    "static": lambda: StaticLayer(40),
    "static sliding": lambda: StaticSlidingLayer(40, 12),
}


def tiny(kind):
    sizes = dict(vocab_size=97, hidden_size=32, num_hidden_layers=2, pad_token_id=0, bos_token_id=1, eos_token_id=None)
    sizes |= dict(initializer_range=0.5, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2)
    torch.manual_seed(1)
    if kind == "qwen3_next":  # linear attention and full attention in turns, with experts
        linear = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8)
        experts = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
        experts |= dict(shared_expert_intermediate_size=16, head_dim=8)
        kinds = ["linear_attention", "full_attention"]
        config = transformers.Qwen3NextConfig(**sizes, **linear, **experts, layer_types=kinds)
        return transformers.Qwen3NextForCausalLM(config).eval()
    if kind == "falcon_h1":  # Mamba and attention in each layer
        mamba = dict(mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8, mamba_n_groups=1)
        config = transformers.FalconH1Config(**sizes, **mamba, mamba_chunk_size=8)
        return transformers.FalconH1ForCausalLM(config).eval()
    # four short convolutions beside the attention of each layer, windows of 4
    heads = dict(head_dim=8, swa_num_attention_heads=4, swa_num_key_value_heads=2, swa_head_dim=8)
    kinds = dict(layer_types=["hybrid_sliding", "hybrid"], mlp_layer_types=["dense", "dense"], sliding_window_size=4)
    config = transformers.InklingTextConfig(
        **sizes, **heads, **kinds, d_rel=4, rel_extent=32, logits_mup_width_multiplier=1.0
    )
    return transformers.InklingForCausalLM(config).eval()


def cache_for(model, static=None):
    return Cache(layers=[layer_for(spec, static) for spec in layer_specs(model.config)])


def layer_for(spec, static):
    linear = LinearLayer(spec.states, keep_buffers=static is not None)
    if spec.kind == "linear_attention":
        return linear
    if spec.window is None:
        attention = DynamicLayer() if static is None else StaticLayer(static)
    else:
        attention = DynamicSlidingLayer(spec.window)
    return HybridLayer(linear, attention) if spec.kind.startswith("hybrid") else attention


@pytest.fixture(scope="module", params=["qwen3_next", "falcon_h1", "inkling"])
def model(request):
    return tiny(request.param)


@pytest.mark.parametrize("length", [2, 7])
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True}])
def test_generate_gives_the_tokens_of_no_cache_and_of_transformers(model, length, options):
    caches = [cache_for(model), transformers.DynamicCache(config=model.config), None]
    if model.config.model_type != "inkling_text":  # its masks fit growing caches only, also those of transformers
        caches.append(cache_for(model, static=40))
    texts = []
    for cache in caches:
        torch.manual_seed(7)
        how = {"use_cache": False} if cache is None else {"cache": cache}
        texts.append(model.generate(PROMPT[:, :length], **({"do_sample": False, "max_new_tokens": 9} | options), **how))
    assert all(torch.equal(text, texts[0]) for text in texts)
    assert len(set(texts[0][0].tolist())) > 4


def test_left_padded_batches(model):
    ids = torch.tensor([[0, 0, 0, 5, 17, 33, 2], [8, 61, 9, 44, 23, 3, 70]])
    for more in ({}, {"num_beams": 2}):
        options = dict(attention_mask=(ids != 0).long(), do_sample=False, max_new_tokens=9, **more)
        ours = model.generate(ids, cache=cache_for(model), **options)
        assert torch.equal(ours, model.generate(ids, use_cache=False, **options))


@pytest.mark.parametrize("length", [2, 7])
def test_prompt_lookup_where_all_states_can_be_rolled_back(length):
    model = tiny("inkling")
    ids = PROMPT[:, :length].repeat(1, 3)
    cache = cache_for(model)
    ours = model.generate(ids, cache=cache, prompt_lookup_num_tokens=3, do_sample=False, max_new_tokens=12)
    assert torch.equal(ours, model.generate(ids, use_cache=False, do_sample=False, max_new_tokens=12))
    assert cache.get_seq_length() == ours.shape[1] - 1


def test_a_recurrent_model_is_refused_by_assisted_decoding():
    model = tiny("falcon_h1")
    cache = cache_for(model)
    with torch.no_grad():
        model(PROMPT, cache=cache)
    assert not cache.is_croppable
    with pytest.raises(RuntimeError, match="deepcopy"):
        cache.crop(-1)
    assert cache.positions(0) == list(range(7))  # the attention half of the pair has not changed either


def test_decoding_compiles_to_one_graph_also_after_a_reset():
    """Linear and static full attention in turns, the masks made outside of the step."""
    model = tiny("qwen3_next")
    cache = cache_for(model, static=16)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    step = torch.compile(model.forward, fullgraph=True, backend="eager")
    with torch.no_grad():
        whole = model(PROMPT, use_cache=False).logits
        for _ in range(2):
            model(PROMPT[:, :2], cache=cache)
            for position in range(2, 7):
                seen = (torch.arange(16) <= position).view(1, 1, 1, 16)
                token, where = PROMPT[:, position : position + 1], torch.tensor([[position]])
                logits = step(token, attention_mask=seen, position_ids=where, cache=cache).logits
                torch.testing.assert_close(logits, whole[:, position : position + 1], atol=2e-4, rtol=2e-4)
            cache.reset()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


# The pair by itself


def pair(attention="dynamic", tokens=5, batch=2, recurrent=False, recording=False):
    layer = HybridLayer(LinearLayer(), ATTENTION[attention]())
    if recording:
        layer.activate_past_recording()
    feed(layer, 0, tokens, batch)
    if recurrent:
        layer.update_recurrent_state(torch.arange(batch * 3.0).view(batch, 3))
    return layer


def keys_at(start, stop, batch=2):
    """Keys (batch, 2, tokens, 4) of positions start to stop; convolution inputs are the same numbers."""
    return distinct(batch, 2, 100, 4)[:, :, start:stop]


def feed(layer, start, stop, batch=2):
    keys = keys_at(start, stop, batch)
    layer.update_conv_state(keys[:, 0].transpose(1, 2), conv_kernel_size=KERNEL)
    return layer.update(keys, -keys)


@pytest.mark.parametrize("attention", list(ATTENTION))
def test_the_pair_answers_as_its_attention_part(attention):
    layer, alone = pair(attention), ATTENTION[attention]()
    alone.update(keys_at(0, 5), -keys_at(0, 5))
    for ask in (
        "is_sliding",
        "is_compileable",
        "supports_early_init",
        "batch_size",
        "is_initialized",
        "device",
        "dtype",
    ):
        assert getattr(layer, ask) == getattr(alone, ask), ask
    assert layer.get_seq_length() == alone.get_seq_length() and layer.get_max_length() == alone.get_max_length()
    assert layer.get_mask_sizes(3) == alone.get_mask_sizes(3) and layer.positions() == alone.positions()
    assert torch.equal(layer.keys, alone.keys) and torch.equal(layer.values, alone.values)
    assert getattr(layer, "sliding_window", None) == getattr(alone, "sliding_window", None)
    assert not layer.is_linear and not layer.is_dummy
    assert layer.nbytes() == alone.nbytes() + 2 * 4 * KERNEL * 4
    assert torch.equal(layer.conv_states[0], keys_at(1, 5)[:, 0].transpose(1, 2))
    assert layer.has_previous_state == {0: True}


@pytest.mark.parametrize("attention", ["dynamic", "sliding", "static"])
def test_both_parts_are_rolled_back(attention):
    layer, expected = pair(attention, recording=True), pair(attention, tokens=3, recording=True)
    assert layer.is_croppable and layer.record_past
    layer.crop(-2)
    expected.crop(0)
    assert layer.get_seq_length() == 3 and layer.positions() == expected.positions()
    assert torch.equal(layer.conv_states[0], expected.conv_states[0])
    for a, b in zip(feed(layer, 3, 8), feed(expected, 3, 8), strict=True):
        assert torch.equal(a, b)
    layer.record_past = False
    assert torch.equal(layer.conv_states[0], keys_at(4, 8)[:, 0].transpose(1, 2))
    layer = pair(attention, recording=True)
    layer.crop(-99)
    assert layer.get_seq_length() == 0 and layer.conv_states[0] is None


@pytest.mark.parametrize("options", [{}, {"recurrent": True}, {"recurrent": True, "recording": True}])
@pytest.mark.parametrize("attention", ["dynamic", "sliding"])
def test_a_refused_crop_changes_neither_part(attention, options):
    layer = pair(attention, **options)
    held = layer.positions(), layer.conv_states[0].clone(), layer.nbytes()
    assert not layer.is_croppable
    with pytest.raises(RuntimeError):
        layer.crop(-1)
    layer.crop(0)
    assert layer.positions() == held[0] or options.get("recording")
    assert torch.equal(layer.conv_states[0][..., -KERNEL:], held[1][..., -KERNEL:])
    assert layer.get_seq_length() == 5


def test_an_update_that_does_not_fit_changes_nothing():
    cache = Cache(layers=[pair("static"), pair("dynamic")])
    with pytest.raises(ValueError, match="46.*40"):
        cache.update(keys_at(0, 41), keys_at(0, 41), 1)
    assert cache.get_seq_length(0) == cache.get_seq_length(1) == 5


@pytest.mark.parametrize("attention", list(ATTENTION))
def test_batch_operations_reset_and_copies_reach_both_parts(attention):
    layer = pair(attention, recurrent=True)
    before = layer.keys.clone(), layer.conv_states[0].clone(), layer.recurrent_states[0].clone()
    layer.batch_repeat_interleave(2)
    layer.batch_select_indices(torch.tensor([3, 0, 0]))
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), layer):
        assert twin.batch_size == 3 and twin.get_seq_length() == 5
        after = twin.keys, twin.conv_states[0], twin.recurrent_states[0]
        assert all(torch.equal(a, b[[1, 0, 0]]) for a, b in zip(after, before, strict=True))
    twin = copy.deepcopy(layer)
    feed(twin, 5, 6, batch=3)
    assert layer.get_seq_length() == 5 and torch.equal(layer.conv_states[0], before[1][[1, 0, 0]])
    layer.reset()
    assert layer.get_seq_length() == 0 and layer.conv_states[0] is None and layer.recurrent_states[0] is None
    feed(layer, 0, 5, batch=1)
    assert layer.batch_size == 1 and layer.positions() == pair(attention, batch=1).positions()


def test_keys_can_be_set_and_early_initialization_makes_room():
    cache = Cache(layers=[HybridLayer(LinearLayer(), StaticLayer(8)), LinearLayer(), DummyLayer()])
    cache.early_initialization(2, 3, 4, torch.float32, "cpu")
    assert cache.is_initialized and cache.nbytes() == 2 * 2 * 3 * 4 * 8 * 4 and cache.batch_size == 2
    layer = pair()
    layer.keys, layer.values = keys_at(0, 3), keys_at(3, 6)
    assert layer.get_seq_length() == 3 and torch.equal(layer.values, keys_at(3, 6))
    assert not hasattr(layer, "no_such_name")


# The layer with nothing


def test_a_dummy_keeps_nothing_and_says_so():
    keys = keys_at(0, 3)
    cache = Cache(layers=[DummyLayer(), DynamicLayer()])
    with pytest.raises(ValueError, match="reuses those of an earlier layer"):
        cache.update(keys, keys, 0)
    assert cache.layers[0].update(None, None) == (None, None)
    cache.update(keys, keys, 1)
    assert cache.is_dummy == [True, False] and cache.batch_size == 2 and cache.get_seq_length() == 3
    cache.reorder_cache(torch.tensor([1, 0]))
    cache.batch_repeat_interleave(2)
    cache.crop(-1)
    assert cache.positions(0) == [] and cache.layers[0].nbytes() == 0 and cache.layers[0].keys is None
    assert cache.is_croppable and torch.equal(cache.layers[1].keys, keys[[1, 1, 0, 0], :, :2])
    cache.reset()
    assert cache.get_max_length() == -1 and DummyLayer().is_compileable


def test_recording_beside_a_static_layer_still_masks_unfilled_slots():
    """A cache that says "not compileable" gets no mask for a single token, and static slots need theirs."""
    layers = [LinearLayer(keep_buffers=True), StaticLayer(40)]
    cache = Cache(layers=layers)
    assert cache.is_compileable
    cache.activate_past_recording()
    assert cache.is_compileable and HybridLayer(LinearLayer(), StaticLayer(8)).is_compileable
    assert not HybridLayer(LinearLayer(), DynamicLayer()).is_compileable
