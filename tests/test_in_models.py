"""The cache inside models: the same tokens as without a cache, and the same states as transformers."""

import copy

import pytest
import torch
import transformers

import kvcourse as kv
from kvcourse.hf import layer_specs

PROMPT = torch.tensor([[5, 17, 33, 2, 61, 9, 44]])
PADDED = torch.tensor([[0, 0, 0, 5, 17, 33, 2], [8, 61, 9, 44, 23, 3, 70]])


def both_ways(model, ids, **options):
    """Tokens with our cache, and the oracle: the same call without any cache."""
    options = {"do_sample": False, "max_new_tokens": 12} | options
    cache = kv.DynamicCache(config=model.config)
    return model.generate(ids, cache=cache, **options), model.generate(ids, use_cache=False, **options), cache


@pytest.mark.parametrize(
    ("ids", "options"),
    [
        (PROMPT, {}),
        (PROMPT, {"num_beams": 4}),
        (PROMPT, {"num_beams": 3, "num_return_sequences": 3, "length_penalty": 0.0}),
        (PADDED, {"attention_mask": (PADDED != 0).long()}),
        (PADDED, {"attention_mask": (PADDED != 0).long(), "num_beams": 2}),
    ],
)
def test_generate_gives_the_tokens_of_no_cache(llama, ids, options):
    ours, oracle, cache = both_ways(llama, ids, **options)
    assert torch.equal(ours, oracle)
    assert len(set(ours[0].tolist())) > 5  # a model that repeats one token would hide a fault
    assert cache.get_seq_length() == ours.shape[1] - 1


def test_sampling_with_a_seed(llama):
    texts = []
    for options in ({"cache": kv.DynamicCache()}, {"use_cache": False}):
        torch.manual_seed(7)
        texts.append(llama.generate(PROMPT, do_sample=True, max_new_tokens=12, **options))
    assert torch.equal(*texts)


def test_prefill_in_chunks_and_prompt_lookup(llama):
    oracle = llama.generate(PROMPT, do_sample=False, max_new_tokens=12, use_cache=False)
    for options in ({"prefill_chunk_size": 3}, {"prompt_lookup_num_tokens": 4}):
        cache = kv.DynamicCache(config=llama.config)
        assert torch.equal(llama.generate(PROMPT, do_sample=False, max_new_tokens=12, cache=cache, **options), oracle)


def test_the_old_spelling_still_works(llama):
    cache = kv.DynamicCache()
    with torch.no_grad():
        out = llama(PROMPT, past_key_values=cache)
        assert out.cache is cache and cache.get_seq_length() == PROMPT.shape[1]
        text = llama.generate(PROMPT, past_key_values=kv.DynamicCache(), do_sample=False, max_new_tokens=5)
    assert torch.equal(text, llama.generate(PROMPT, use_cache=False, do_sample=False, max_new_tokens=5))


def test_states_equal_those_of_transformers_layer_by_layer(llama):
    ours, theirs = kv.DynamicCache(config=llama.config), transformers.DynamicCache(config=llama.config)
    with torch.no_grad():
        for part in PROMPT.split([3, 1, 1, 2], dim=1):
            assert ours.get_mask_sizes(part.shape[1], 0) == theirs.get_mask_sizes(part.shape[1], 0)
            logits = [llama(part, cache=cache).logits for cache in (ours, theirs)]
            assert torch.equal(*logits)
    for a, b in zip(ours.layers, theirs.layers, strict=True):
        assert torch.equal(a.keys, b.keys) and torch.equal(a.values, b.values)
    assert ours.get_seq_length() == theirs.get_seq_length() and ours.get_max_length() == theirs.get_max_length()


def test_a_copied_prefix_continues_twice(llama):
    prefix = kv.DynamicCache()
    with torch.inference_mode():
        llama(PROMPT[:, :4], cache=prefix)
    for tail in ([61, 9, 44], [3, 3, 50, 8]):
        text = torch.cat([PROMPT[:, :4], torch.tensor([tail])], dim=1)
        continued = llama.generate(text, cache=copy.deepcopy(prefix), do_sample=False, max_new_tokens=8)
        assert torch.equal(continued, llama.generate(text, use_cache=False, do_sample=False, max_new_tokens=8))
    assert prefix.get_seq_length() == 4


def test_our_loop_equals_generate_and_feeds_only_what_is_new(llama):
    oracle = llama.generate(PROMPT, do_sample=False, max_new_tokens=9, use_cache=False)
    for cache in (None, kv.DynamicCache()):
        run = kv.measure.decode(llama, PROMPT, 9, cache)
        assert torch.equal(run.text, oracle) and torch.equal(kv.greedy(llama, PROMPT, 9), oracle)
        assert sum(run.positions) == kv.attention.positions(PROMPT.shape[1], 9, cached=cache is not None)
    assert run.nbytes == cache.nbytes() and len(run.seconds) == 9
    text = kv.greedy(llama, run.text, 3, cache)  # a filled cache goes on
    assert torch.equal(text, kv.greedy(llama, run.text, 3))


def test_our_loop_stops_and_refuses_a_cache_that_is_ahead(llama):
    text = kv.greedy(llama, PROMPT, 9)
    third = text[0, PROMPT.shape[1] + 2].item()
    assert kv.greedy(llama, PROMPT, 9, kv.DynamicCache(), stop_at=third).shape[1] <= PROMPT.shape[1] + 3
    cache = kv.DynamicCache()
    kv.greedy(llama, PROMPT, 2, cache)
    with pytest.raises(ValueError, match="seen 8 tokens and the text has 7"):
        kv.greedy(llama, PROMPT, 2, cache)


def test_compare_in_one_line(llama):
    line = repr(kv.compare(llama, PROMPT))
    assert line.startswith("same 20 tokens; keys and values equal in 2 of 2 layers; bytes used: ours 13,312, ")


def test_diagnose_tells_rounding_from_a_fault(llama):
    assert kv.diagnose(llama, PROMPT).verdict == "rounding"
    assert kv.diagnose(llama, PROMPT, dtypes=(torch.float16, torch.float32)).largest[torch.float16] < 0.1
    assert kv.diagnose(llama, PROMPT, lambda model, ids: model(ids, use_cache=False).logits).verdict == "identical"

    def wrong_positions(model, ids, start=3):
        cache, parts = kv.DynamicCache(), []
        for i, token in enumerate(ids.split(1, dim=1)):
            position = torch.tensor([[i if i < start else i + 1]])
            parts.append(model(token, cache=cache, position_ids=position).logits)
        return torch.cat(parts, dim=1)

    fault = kv.diagnose(llama, PROMPT, wrong_positions)
    assert (fault.verdict, fault.position) == ("fault", 3)


def test_layer_kinds_are_read_from_the_config():
    gemma = transformers.Gemma2Config(num_hidden_layers=4, sliding_window=16)
    assert [spec.kind for spec in layer_specs(gemma)] == ["sliding_attention", "full_attention"] * 2
    assert [spec.window for spec in layer_specs(gemma)] == [16, None] * 2
    mistral = transformers.MistralConfig(num_hidden_layers=2, sliding_window=8)
    assert [(spec.kind, spec.window) for spec in layer_specs(mistral)] == [("sliding_attention", 8)] * 2
    qwen = transformers.Qwen3Config(num_hidden_layers=3, per_layer_config={1: {"sliding_window": 32}}, layer_types=None)
    assert len(layer_specs(qwen)) == 3


# The real model


def test_sixty_tokens_of_the_real_model(real):
    model, tokenizer = real
    ids = tokenizer("I like rock music because", return_tensors="pt").input_ids
    cache = kv.DynamicCache(config=model.config)
    assert torch.equal(kv.greedy(model, ids, 60, cache), kv.greedy(model, ids, 60))
    held = ids.shape[1] + 59
    assert cache.nbytes(used=True) == held * kv.measure.bytes_per_token(model.config, torch.float32) == held * 46_080


def test_one_of_the_real_model_against_transformers(real):
    model, tokenizer = real
    ids = tokenizer("Caches remember. Models", return_tensors="pt").input_ids
    same = kv.compare(model, ids, max_new_tokens=10)
    assert same.same_tokens and same.same_layers == same.layers == 30 and same.our_bytes == same.their_bytes


PUBLIC_MODELS = {  # kv_heads, layers, head_dim from each model's published config.json; bytes a token in bfloat16
    "Llama-2-7B": (dict(num_hidden_layers=32, num_attention_heads=32, hidden_size=4096), 524_288),
    "Llama-3.1-8B": (
        dict(num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, hidden_size=4096),
        131_072,
    ),
    "Qwen3-0.6B": (
        dict(num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, hidden_size=1024, head_dim=128),
        114_688,
    ),
}


@pytest.mark.parametrize("name", PUBLIC_MODELS)
def test_bytes_a_token_of_public_models(name):
    sizes, expected = PUBLIC_MODELS[name]
    config = transformers.LlamaConfig(**sizes)
    cache = kv.measure.fill(kv.DynamicCache(config=config), config, tokens=16)
    assert cache.nbytes() == 16 * kv.measure.bytes_per_token(config) == 16 * expected


def test_an_assistant_drafts_and_the_cache_is_rolled_back(llama):
    """The assistant is another random model, so most drafts are refused and every refusal is a crop."""
    torch.manual_seed(3)
    assistant = transformers.LlamaForCausalLM(llama.config).eval()
    oracle = llama.generate(PROMPT, do_sample=False, max_new_tokens=12, use_cache=False)
    for options in ({}, {"offloading": True}):
        cache = kv.DynamicCache(config=llama.config, **options)
        text = llama.generate(PROMPT, cache=cache, assistant_model=assistant, do_sample=False, max_new_tokens=12)
        assert torch.equal(text, oracle)
    cache = kv.StaticCache(llama.config, 40)
    text = llama.generate(PROMPT, cache=cache, assistant_model=assistant, do_sample=False, max_new_tokens=12)
    assert torch.equal(text, oracle)
