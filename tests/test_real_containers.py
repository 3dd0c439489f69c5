"""Every container on the real model: the tokens of a run without a cache, in `generate()` as a user calls it."""

import copy

import pytest
import torch

import kvcourse as kv

NEW = 10
CONTAINERS = {
    "dynamic": lambda config: kv.DynamicCache(config=config),
    "dynamic offloaded": lambda config: kv.make_cache("offloaded", config),
    "static": lambda config: kv.StaticCache(config, 40),
    "static offloaded": lambda config: kv.make_cache("offloaded_static", config, max_cache_len=40),
    "hqq, exact as long as the residual": lambda config: kv.QuantizedCache("hqq", config, residual_length=64),
    "hqq, 8 bits": lambda config: kv.QuantizedCache("hqq", config, nbits=8, residual_length=8),
}


@pytest.fixture(scope="module")
def windowed():
    """The real weights with a window of 8 tokens in every other layer."""
    return kv.load(layer_types=["sliding_attention", "full_attention"] * 15, sliding_window=8)


def ids(tokenizer):
    return tokenizer("The old clock in the kitchen had stopped, and nobody", return_tensors="pt").input_ids


@pytest.mark.parametrize("name", CONTAINERS)
def test_the_tokens_of_no_cache(real, name):
    model, tokenizer = real
    options = dict(do_sample=False, max_new_tokens=NEW)
    cache = CONTAINERS[name](model.config)
    text = model.generate(ids(tokenizer), cache=cache, **options)
    assert torch.equal(text, model.generate(ids(tokenizer), use_cache=False, **options))
    assert cache.get_seq_length() == text.shape[1] - 1 and cache.positions(0) == list(range(text.shape[1] - 1))


@pytest.mark.parametrize("name", ["dynamic", "dynamic offloaded", "static"])
def test_windows_in_the_real_weights(windowed, name):
    model, tokenizer = windowed
    options = dict(do_sample=False, max_new_tokens=NEW)
    cache = CONTAINERS[name](model.config)
    text = model.generate(ids(tokenizer), cache=cache, **options)
    assert torch.equal(text, model.generate(ids(tokenizer), use_cache=False, **options))
    assert len(cache.positions(0)) in (7, 8) and len(cache.positions(1)) == text.shape[1] - 1


def test_a_copied_prefix_prompt_lookup_and_beams(real):
    model, tokenizer = real
    prefix, options = ids(tokenizer), dict(do_sample=False, max_new_tokens=NEW)
    cache = kv.DynamicCache(config=model.config)
    with torch.no_grad():
        model(prefix[:, :-2], cache=cache)
    # Not prompt lookup from a filled cache: there generate() goes astray with any cache, transformers' own included.
    oracle = model.generate(prefix, use_cache=False, **options)
    assert torch.equal(model.generate(prefix, cache=copy.deepcopy(cache), **options), oracle)
    empty = kv.DynamicCache(config=model.config)
    assert torch.equal(model.generate(prefix, cache=empty, prompt_lookup_num_tokens=5, **options), oracle)
    cache.batch_repeat_interleave(3)
    text = model.generate(prefix, cache=cache, num_beams=3, **options)
    assert torch.equal(text, model.generate(prefix, num_beams=3, use_cache=False, **options))
