"""Whose tensor is it: what others hold is not written over, and what was made in another mode can go on."""

import io
import pickle

import pytest
import torch
import transformers
from conftest import SMALL
from kinds import KINDS, Story
from transformers import LlamaConfig, LlamaForCausalLM

import kvcourse as kv
from kvcourse.layers import (
    DynamicIndexedLayer,
    DynamicLayer,
    DynamicSlidingLayer,
    LinearLayer,
    QuantizedLayer,
    StaticLayer,
    StaticSlidingLayer,
)

GROWING = {
    "dynamic": DynamicLayer,
    "sliding": lambda: DynamicSlidingLayer(9),
    "quantized": lambda: QuantizedLayer("quanto", residual_length=8),
    "indexed": DynamicIndexedLayer,
}
ALL = GROWING | {"static": lambda: StaticLayer(20), "static sliding": lambda: StaticSlidingLayer(20, 9)}


def states(tokens, seed=0, batch=2):
    return torch.randn(2, batch, 2, tokens, 4, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", ALL)
@torch.no_grad()
def test_an_assigned_tensor_is_read_and_never_written(kind):
    mine = states(5)
    before = mine.clone()
    for change in (
        lambda layer: layer.reorder_cache(torch.tensor([1, 0])),
        lambda layer: (layer.crop(-2), layer.update(*states(1, seed=1))),
        lambda layer: layer.update(*states(1, seed=1)),
        lambda layer: layer.reset(),
    ):
        layer = ALL[kind]()
        layer.update(*states(5, seed=2))
        layer.keys, layer.values = mine
        change(layer)
        assert torch.equal(mine, before)


@pytest.mark.parametrize("kind", GROWING)
@torch.no_grad()
def test_keys_that_someone_has_read_stay_as_they_were(kind):
    layer = GROWING[kind]()
    layer.update(*states(5))
    layer.update(*states(1, seed=1))
    kept = layer.keys, layer.values
    before = [tensor.clone() for tensor in kept]
    layer.crop(-2)
    layer.update(*states(2, seed=2))
    layer.reorder_cache(torch.tensor([1, 0]))
    assert all(map(torch.equal, kept, before))
    assert torch.equal(layer.keys[:, :, :4].flip(0), before[0][:, :, :4])


@torch.no_grad()
def test_a_rejected_draft_is_written_over_in_place_when_nobody_looked():
    layer = DynamicLayer()
    layer.update(*states(100))
    layer.update(*states(10, seed=1))
    buffer = layer._keys.buffer
    layer.crop(-3)
    layer.update(*states(3, seed=2))
    assert layer._keys.buffer is buffer


@pytest.mark.parametrize("change", [lambda cache: cache.crop(-3), lambda cache: cache.reorder_cache(torch.tensor([0]))])
def test_queries_train_over_a_prefix_that_is_continued_twice(change):
    """Only the queries learn, as with adapters: keys carry no gradient, but autograd keeps them for the queries'."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SMALL | {"num_key_value_heads": SMALL["num_attention_heads"]}))
    model.requires_grad_(False)
    weight = model.model.layers[0].self_attn.q_proj.weight.requires_grad_()
    ids = torch.arange(1, 10)[None]

    def loss(cache):
        first = model(ids[:, 5:8], cache=cache).logits.logsumexp(-1).sum()
        change(cache)
        return first + model(ids[:, 6:9], cache=cache).logits.logsumexp(-1).sum()

    gradients = []
    for library in (kv, transformers):
        cache = library.DynamicCache(config=model.config)
        with torch.no_grad():
            model(ids[:, :5], cache=cache)
        gradients.append(torch.autograd.grad(loss(cache), weight)[0])
    assert gradients[0].abs().sum() > 0
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("how", ["pickle", "torch"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_loaded_in_inference_mode_goes_on_outside(kind, how):
    story = Story(KINDS[kind])
    story.update(9), story.update(1)
    file = io.BytesIO()
    with torch.inference_mode():
        if how == "torch":
            torch.save(story.cache, file)
            file.seek(0)
        story.cache = (
            torch.load(file, weights_only=False) if how == "torch" else pickle.loads(pickle.dumps(story.cache))
        )
        story.update(1)
    with torch.no_grad(), kv.emulated_device(10**9, 1e9, 0):
        story.rows([1, 0])
        story.update(2)
        if story.can_crop(1):
            story.crop(1)
        story.rows([1, 1])
        story.update(1)
        story.check()
        story.reset()
        story.update(3)
        story.check()


def test_states_assigned_or_made_in_inference_mode_are_not_written():
    with torch.inference_mode():
        mine = torch.ones(2, 3, 4), torch.ones(2, 3)
    layer = LinearLayer()
    layer.conv_states[0], layer.recurrent_states[0] = mine
    with torch.no_grad():
        layer.conv_states[0].add_(1), layer.recurrent_states[0].add_(1)  # as models do
        layer.update_conv_state(torch.full((2, 3, 1), 5.0), conv_kernel_size=4)
        layer.update_recurrent_state(torch.zeros(2, 3))
        layer.reorder_cache(torch.tensor([1, 0]))
    assert all((tensor == 1).all() for tensor in mine)
    assert layer.conv_states[0][0, 0].tolist() == [2, 2, 2, 5] and not layer.recurrent_states[0].any()


@pytest.mark.parametrize("make", [kv.DynamicCache, lambda config: kv.StaticCache(config, 20)])
def test_a_compiled_step_in_inference_mode_leaves_nothing_frozen(make):
    config = LlamaConfig(**SMALL)
    model = LlamaForCausalLM(config).eval()
    step = torch.compile(model.forward, backend="eager")
    ids = torch.arange(1, 9)[None]
    cache = make(config=config)
    with torch.inference_mode():
        step(ids[:, :6], cache=cache)
        step(ids[:, 6:7], cache=cache)
    with torch.no_grad():
        cache.reorder_cache(torch.tensor([0]))
        logits = model(ids[:, 7:], cache=cache).logits
        torch.testing.assert_close(logits, model(ids).logits[:, 7:], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", GROWING)
def test_a_layer_that_holds_nothing_takes_another_batch(kind):
    layer = GROWING[kind]()
    layer.update(*states(3))
    with pytest.raises(ValueError, match="batch of 2"):
        layer.check_update(*states(1, batch=3))
    layer.crop(-3)
    layer.check_update(*states(1, batch=3))
    layer.update(*states(4, batch=3))
    assert layer.keys.shape == (3, 2, 4, 4) and layer.positions() == [0, 1, 2, 3]
