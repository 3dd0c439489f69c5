"""Going on from a held text: the ids that are fed and counted, and the same words as without a cache."""

import copy
import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kvcourse as kv

VOCABULARY = 97


def random_text(tokens, seed=0):
    return torch.randint(1, VOCABULARY, (1, tokens), generator=torch.Generator().manual_seed(seed))


def written(model, ids, tokens=6, **options):
    """The continuation without any cache: the oracle of all words."""
    options = {"do_sample": False, "max_new_tokens": tokens, "use_cache": False} | options
    return model.generate(ids, attention_mask=torch.ones_like(ids), **options)


def filled(model, ids, cache):
    with torch.no_grad():
        model(ids, cache=cache)
    return cache


def windowed(llama, window=8, kinds=("sliding_attention", "full_attention")):
    """The same weights with a window in some layers."""
    from transformers import MinistralForCausalLM

    from kvcourse.models.variants import windowed_config

    model = MinistralForCausalLM(windowed_config(llama.config, list(kinds), window)).eval()
    model.load_state_dict(llama.state_dict())
    return model


# common_prefix


@pytest.mark.parametrize(
    "a, b, expected",
    [
        ([1, 2, 3], [9, 2, 3], 0),
        ([1, 2, 3, 4], [1, 2, 9, 4], 2),
        ([1, 2, 3], [1, 2, 9], 2),
        ([1, 2, 3], [1, 2, 3], 3),
        ([1, 2], [1, 2, 3], 2),
        ([1, 2, 3], [1, 2], 2),
        ([], [1], 0),
        ([], [], 0),
    ],
)
def test_common_prefix_of_lists_tensors_and_batches_of_one(a, b, expected):
    long = torch.long
    forms = [lambda x: x, lambda x: torch.tensor(x, dtype=long), lambda x: torch.tensor([x], dtype=long), lambda x: [x]]
    for left in forms:
        for right in forms:
            assert kv.common_prefix(left(a), right(b)) == expected


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
@settings(derandomize=True, deadline=None)
def test_common_prefix_is_that_of_the_standard_library(a, b):
    assert kv.common_prefix(a, b) == len(os.path.commonprefix([a, b]))


@pytest.mark.parametrize("text", ["some words", ["some", "words"]])
def test_text_is_refused_with_the_reason(text):
    with pytest.raises(ValueError, match=r"not text.*input_ids"):
        kv.common_prefix([1, 2], text)


@pytest.mark.parametrize(
    "ids, says",
    [
        ({"input_ids": [1]}, "input_ids"),
        ([0.5, 1.0], "whole numbers"),
        ([[1], [2]], "one text at a time.*batch_repeat_interleave"),
        (torch.zeros(1, 1, 3, dtype=torch.long), "whole numbers"),
    ],
)
def test_what_is_not_one_text_is_refused(ids, says):
    with pytest.raises(ValueError, match=says):
        kv.common_prefix(ids, [1, 2])


# continue_from


@pytest.mark.parametrize("edit", [0, 7, 19], ids=["front", "middle", "end"])
@pytest.mark.parametrize("kind", ["dynamic", "static", "offloaded", "quantized"])
def test_an_edited_text_goes_on_as_without_a_cache(llama, edit, kind):
    old = random_text(20)
    new = torch.cat([old, random_text(5, seed=1)], dim=1)
    new[0, edit] = (old[0, edit] + 1) % VOCABULARY
    exact = {"backend": "hqq", "nbits": 8, "residual_length": 64}
    options = {"static": {"max_cache_len": 64}, "quantized": exact}.get(kind, {})
    cache = filled(llama, old, kv.make_cache(kind, llama.config, **options))
    step = kv.continue_from(cache, old, new)
    assert step.cache is cache and cache.get_seq_length() == step.saved == edit
    assert step.feed.tolist() == new[:, edit:].tolist()
    assert step.rolled_back == step.recomputed == 20 - edit
    assert llama.generate(**step.inputs, do_sample=False, max_new_tokens=6).equal(written(llama, new))


def test_a_grown_text_feeds_the_rest_and_rolls_nothing_back(llama):
    old = random_text(12)
    cache = kv.DynamicCache(config=llama.config)
    answer = kv.greedy(llama, old, 5, cache)  # 17 tokens, of which the cache has read 16
    new = torch.cat([answer, random_text(3, seed=1)], dim=1)
    step = kv.continue_from(cache, answer, new)
    assert (step.saved, step.feed.shape[1], step.rolled_back, step.recomputed) == (16, 4, 0, 0)
    assert kv.greedy(llama, step.ids, 6, step.cache).equal(written(llama, new))


def test_one_token_is_always_left_to_feed(llama):
    text = random_text(9)
    for new in (text, text[:, :6]):
        cache = filled(llama, text, kv.DynamicCache(config=llama.config))
        step = kv.continue_from(cache, text, new)
        assert step.saved == new.shape[1] - 1 and step.feed.equal(new[:, -1:])
        assert llama.generate(**step.inputs, do_sample=False, max_new_tokens=6).equal(written(llama, new))


def test_an_empty_cache_feeds_everything(llama):
    text = random_text(5)
    step = kv.continue_from(kv.DynamicCache(config=llama.config), [], text)
    assert (step.saved, step.rolled_back, step.feed.tolist()) == (0, 0, text.tolist())


@given(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=9), min_size=2, max_size=5))
@settings(derandomize=True, deadline=None, max_examples=25)
def test_any_series_of_texts_on_one_cache_gives_the_logits_of_no_cache(texts):
    from conftest import tiny_llama

    model = tiny_llama()
    cache, held = kv.DynamicCache(config=model.config), []
    for text in texts:
        step = kv.continue_from(cache, held, text)
        assert step.saved == min(len(os.path.commonprefix([held, text])), len(text) - 1)
        with torch.no_grad():
            cached = model(step.feed, cache=cache).logits
            plain = model(step.ids, use_cache=False).logits[:, step.saved :]
        assert torch.allclose(cached, plain, atol=1e-4)
        held = text


def test_a_filled_window_starts_again_from_the_safe_copy_and_leaves_it_safe(llama):
    model = windowed(llama)
    prompt = random_text(14)
    safe = filled(model, prompt, kv.DynamicCache(config=model.config)), prompt
    cache = copy.deepcopy(safe[0])
    answer = kv.greedy(model, torch.cat([prompt, random_text(1, seed=9)], dim=1), 7, cache)
    for seed in (1, 2):  # twice, so that a copy used up would show
        new = torch.cat([prompt, random_text(4, seed)], dim=1)
        step = kv.continue_from(cache, answer, new, safe)
        assert step.cache is not cache and step.cache is not safe[0]
        assert (step.saved, step.feed.shape[1], step.rolled_back, step.recomputed) == (14, 4, 7, 4)
        assert "started again from the safe copy" in repr(step)
        assert model.generate(**step.inputs, do_sample=False, max_new_tokens=6).equal(written(model, new))
        assert safe[0].get_seq_length() == 14 and cache.get_seq_length() == 21


@pytest.mark.parametrize("with_safe", [False, True])
def test_where_even_the_safe_copy_cannot_go_back_it_starts_empty(llama, with_safe):
    model = windowed(llama)
    prompt = random_text(14)
    safe = (filled(model, prompt, kv.DynamicCache(config=model.config)), prompt) if with_safe else None
    cache = filled(model, prompt, kv.DynamicCache(config=model.config))
    new = torch.cat([prompt[:, :5], random_text(9, seed=3)], dim=1)
    step = kv.continue_from(cache, prompt, new, safe)
    assert (step.saved, step.rolled_back, step.recomputed) == (0, 14, 14)
    assert step.cache.get_seq_length() == 0 and "empty cache" in step.note
    assert model.generate(**step.inputs, do_sample=False, max_new_tokens=6).equal(written(model, new))


def test_recurrent_states_start_again_and_need_no_length():
    from transformers import MambaConfig, MambaForCausalLM

    torch.manual_seed(0)
    config = MambaConfig(vocab_size=VOCABULARY, hidden_size=16, state_size=4, num_hidden_layers=2)
    model = MambaForCausalLM(config).eval()
    text = random_text(6)
    cache = filled(model, text, kv.DynamicCache(config=config))
    grown = torch.cat([text, random_text(1, seed=1)], dim=1)
    step = kv.continue_from(cache, text, grown)
    assert (step.saved, step.note) == (6, "")
    with torch.no_grad():
        one_more = model(step.feed, cache=cache).logits[:, -1]
        assert torch.allclose(one_more, model(grown, use_cache=False).logits[:, -1], atol=1e-4)
    step = kv.continue_from(cache, grown, text)
    assert (step.saved, step.rolled_back) == (0, 7) and "started again" in step.note
    assert not cache.has_previous_state()


def test_refused_questions_change_nothing(llama):
    text = random_text(8)
    cache = filled(llama, text, kv.DynamicCache(config=llama.config))
    for held, new, says in [
        (text[:, :5], text, "has read 8 tokens and held_ids has 5"),
        (text, [], "at least one token"),
        (text, "words", "not text"),
        (text, text.repeat(3, 1), r"one text at a time.*batch_repeat_interleave\(3\)"),
    ]:
        with pytest.raises(ValueError, match=says):
            kv.continue_from(cache, held, new)
        assert cache.positions(0) == list(range(8))
    cache.batch_repeat_interleave(2)
    with pytest.raises(ValueError, match=r"batch of 2.*batch_select_indices"):
        kv.continue_from(cache, text, text)


@pytest.mark.parametrize("kind", ["dynamic", "static", "quantized", "sliding"])
@pytest.mark.parametrize("options, rows", [({"num_beams": 3}, 3), ({"num_return_sequences": 2, "do_sample": True}, 2)])
def test_beams_on_one_row_say_batch_repeat_interleave_and_that_is_enough(llama, kind, options, rows):
    model = windowed(llama) if kind == "sliding" else llama
    made = {
        "dynamic": lambda: kv.DynamicCache(config=model.config),
        "sliding": lambda: kv.DynamicCache(config=model.config),
        "static": lambda: kv.StaticCache(model.config, 64),
        "quantized": lambda: kv.QuantizedCache("hqq", model.config, nbits=8, residual_length=64),
    }
    prefix = random_text(11)
    text = torch.cat([prefix, random_text(4, seed=1)], dim=1)
    step = kv.continue_from(filled(model, prefix, made[kind]()), prefix, text)
    with pytest.raises(ValueError, match=rf"batch_repeat_interleave\({rows}\)"):
        model.generate(**step.inputs, max_new_tokens=5, **options)
    assert step.cache.get_seq_length() == 11 and step.cache.batch_size == 1
    step.cache.batch_repeat_interleave(rows)
    torch.manual_seed(3)
    cached = model.generate(**step.inputs, max_new_tokens=5, **options)
    torch.manual_seed(3)
    assert cached.equal(written(model, text, 5, **{"do_sample": False} | options))


def test_the_result_is_one_readable_line(llama):
    text = random_text(8)
    cache = filled(llama, text, kv.DynamicCache(config=llama.config))
    other = torch.cat([text[:, :5], random_text(9, seed=1)], dim=1)
    other[0, 5] = (text[0, 5] + 1) % VOCABULARY
    assert repr(kv.continue_from(cache, text, other)) == "14 tokens: 5 from the cache, 9 to feed, 3 of them again"
