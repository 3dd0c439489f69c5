"""resilient_generate: more beams than fit, and still the same tokens."""

import copy
import logging

import pytest
import torch
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
)

import kvcourse as kv
from kvcourse import resilient_generate
from kvcourse.offload import emulated_device

BEAMS = dict(num_beams=40, num_return_sequences=20, max_new_tokens=10, pad_token_id=0)
GREEDY = dict(do_sample=False, max_new_tokens=10, pad_token_id=0)
LINK = dict(bandwidth=1e9, latency=1e-6)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    shape = dict(vocab_size=96, hidden_size=32, intermediate_size=64, num_attention_heads=4, head_dim=8)
    config = LlamaConfig(**shape, num_hidden_layers=4, num_key_value_heads=2, initializer_range=0.3, eos_token_id=None)
    return LlamaForCausalLM(config).eval()


def prompt(tokens=9, batch=1):
    return torch.randint(3, 96, (batch, tokens), generator=torch.Generator().manual_seed(1))


class Attempts:
    """Notes what kind of cache each call of model.generate got, and keeps none alive; can make a call fail."""

    def __init__(self, model, monkeypatch, error=None, on=()):
        self.offloading, self.kinds = [], []
        original = model.generate

        def generate(*args, **kwargs):
            self.offloading.append(getattr(kwargs.get("cache"), "offloading", None))
            self.kinds.append(type(kwargs.get("cache")))
            output = original(*args, **kwargs)
            if error is not None and len(self.kinds) in on:
                raise error
            return output

        monkeypatch.setattr(model, "generate", generate)


def test_many_beams_fail_first_and_then_succeed(model, monkeypatch):
    expected = model.generate(prompt(), **BEAMS)
    attempts = Attempts(model, monkeypatch)
    with emulated_device(300_000, **LINK) as device:
        got = resilient_generate(model, prompt(), **BEAMS)
        assert attempts.offloading == [False, True]
        assert 0 < device.peak <= 300_000
        with pytest.raises(torch.OutOfMemoryError):
            model.generate(prompt(), cache=kv.DynamicCache(config=model.config), **BEAMS)
    assert got.shape == (20, 19) and torch.equal(got, expected)


def test_enough_memory_takes_one_attempt_and_the_result_is_that_of_generate(model, monkeypatch):
    options = dict(return_dict_in_generate=True, output_scores=True)
    expected = model.generate(input_ids=prompt(), **GREEDY, **options)
    attempts = Attempts(model, monkeypatch)
    got = resilient_generate(model, input_ids=prompt(), **GREEDY, **options)
    assert attempts.offloading == [False]
    assert type(got) is type(expected) and torch.equal(got.sequences, expected.sequences)
    assert all(torch.equal(mine, other) for mine, other in zip(got.scores, expected.scores, strict=True))
    assert isinstance(got.cache, kv.DynamicCache) and got.cache.get_seq_length() == 18


def test_other_errors_pass_unchanged(model, monkeypatch):
    error = RuntimeError("CUDA error: something else")
    attempts = Attempts(model, monkeypatch, error, on=(1,))
    with pytest.raises(RuntimeError) as caught:
        resilient_generate(model, prompt(), **GREEDY)
    assert caught.value is error and len(attempts.kinds) == 1


def test_a_second_failure_passes(model, monkeypatch):
    attempts = Attempts(model, monkeypatch)
    with emulated_device(1_000, **LINK), pytest.raises(torch.OutOfMemoryError) as caught:
        resilient_generate(model, prompt(), **GREEDY)
    assert attempts.offloading == [False, True]
    assert caught.value.__context__ is None  # the first error, with its tensors, is gone


def test_the_retry_begins_with_an_empty_device(model):
    used = []

    with emulated_device(8_000, **LINK) as device:
        handle = model.get_input_embeddings().register_forward_hook(lambda *_: used.append(device.used))
        resilient_generate(model, prompt(), **GREEDY)
        handle.remove()
    assert used[0] == 0 and used.count(0) == 2  # once at the start of each attempt


def test_sampling_gives_the_tokens_of_more_memory(model):
    options = dict(do_sample=True, max_new_tokens=10, pad_token_id=0)
    torch.manual_seed(3)
    expected = model.generate(prompt(), **options)
    torch.manual_seed(3)
    with emulated_device(8_000, **LINK):
        assert torch.equal(resilient_generate(model, prompt(), **options), expected)


def test_a_streamer_gets_each_token_once(model):
    class Ends:
        def __init__(self):
            self.tokens, self.ends = [], 0

        def put(self, value):
            self.tokens += value.flatten().tolist()

        def end(self):
            self.ends += 1

    streamer = Ends()
    with emulated_device(8_000, **LINK):
        got = resilient_generate(model, prompt(), streamer=streamer, **GREEDY)
    assert streamer.tokens == got[0].tolist() and streamer.ends == 1


def test_no_cache_is_respected(model, monkeypatch):
    attempts = Attempts(model, monkeypatch)
    expected = model.generate(prompt(), use_cache=False, **GREEDY)
    with emulated_device(0, **LINK):
        got = resilient_generate(model, prompt(), use_cache=False, **GREEDY)
    assert torch.equal(got, expected) and attempts.offloading == [None, None]


@pytest.mark.parametrize("where", ["argument", "config", "positional config", "model"])
def test_a_cache_implementation_is_respected(model, monkeypatch, where):
    attempts = Attempts(model, monkeypatch)
    expected = model.generate(prompt(), **GREEDY)
    named = dict(cache_implementation="offloaded")
    if where == "argument":
        got = resilient_generate(model, prompt(), **GREEDY, **named)
    elif where == "config":
        config = GenerationConfig(**GREEDY, **named)
        got = resilient_generate(model, prompt(), generation_config=config)
        assert config.cache_implementation == "offloaded"  # the caller's own, as it was
    elif where == "positional config":
        got = resilient_generate(model, prompt(), GenerationConfig(**GREEDY, **named))
    else:
        monkeypatch.setattr(model.generation_config, "cache_implementation", "offloaded")
        got = resilient_generate(model, prompt(), **GREEDY)
    assert torch.equal(got, expected) and attempts.offloading == [None, True]


@pytest.mark.parametrize(
    "options",
    [
        dict(cache_implementation="static"),
        dict(cache_implementation="quantized", cache_config=dict(backend="quanto", nbits=4, residual_length=4)),
    ],
    ids=["static", "quantized"],
)
def test_other_kinds_are_retried_as_the_same_kind(model, monkeypatch, options):
    first = resilient_generate(model, prompt(), **GREEDY, **options)
    attempts = Attempts(model, monkeypatch)
    with emulated_device(8_000 if "static" in options.values() else 4_000, **LINK):
        assert torch.equal(resilient_generate(model, prompt(), **GREEDY, **options), first)
    assert attempts.offloading == [False, True]
    assert attempts.kinds[0] is attempts.kinds[1] is not kv.DynamicCache


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
def test_a_filled_cache_of_the_callers_goes_on_and_ends_as_after_generate(model, name):
    ids = prompt(12)
    expected_cache = kv.DynamicCache(config=model.config)
    model(ids[:, :8], cache=expected_cache)
    mine = copy.deepcopy(expected_cache)
    expected = model.generate(ids, cache=expected_cache, **GREEDY)
    with emulated_device(9_000, **LINK):
        got = resilient_generate(model, ids, **{name: mine}, **GREEDY)
        assert mine.offloading
    assert torch.equal(got, expected)
    assert mine.get_seq_length() == expected_cache.get_seq_length() == 21
    for layer, other in zip(mine.layers, expected_cache.layers, strict=True):
        assert torch.equal(layer.keys, other.keys) and torch.equal(layer.values, other.values)


def test_a_filled_cache_is_as_it_was_after_an_error(model, monkeypatch):
    ids = prompt(12)
    cache = kv.DynamicCache(config=model.config)
    model(ids[:, :8], cache=cache)
    before = copy.deepcopy(cache)

    def check():
        assert cache.get_seq_length() == 8 and not cache.offloading
        for layer, other in zip(cache.layers, before.layers, strict=True):
            assert torch.equal(layer.keys, other.keys) and torch.equal(layer.values, other.values)

    with emulated_device(1_000, **LINK), pytest.raises(torch.OutOfMemoryError):
        resilient_generate(model, ids, cache=cache, **GREEDY)
    check()
    Attempts(model, monkeypatch, KeyError("half-way"), on=(1,))
    with pytest.raises(KeyError):
        resilient_generate(model, ids, cache=cache, **GREEDY)
    check()


def test_a_foreign_cache_is_refused_by_name(model):
    from transformers import DynamicCache

    with pytest.raises(ValueError, match="kvcourse.DynamicCache"):
        resilient_generate(model, prompt(), cache=DynamicCache(config=model.config), **GREEDY)


def test_an_encoder_decoder_model():
    torch.manual_seed(0)
    sizes = dict(vocab_size=60, d_model=32, d_kv=8, num_heads=4, d_ff=64, num_layers=3)
    model = T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0, eos_token_id=None)).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    ids = prompt(14) % 60
    options = dict(max_new_tokens=30, num_beams=3)
    expected = model.generate(ids, **options)
    with emulated_device(10**9, **LINK) as device:
        resilient_generate(model, ids, **options)
        needed = device.peak
    with emulated_device(needed * 2 // 3, **LINK) as device:
        assert torch.equal(resilient_generate(model, ids, **options), expected)
        assert device.fetched_bytes > 0


def test_what_happened_is_logged_and_not_printed(model, caplog, capfd):
    with caplog.at_level(logging.INFO, "kvcourse.resilient"), emulated_device(8_000, **LINK):
        resilient_generate(model, prompt(), **GREEDY)
    assert "out of memory" in caplog.text and "offloaded" in caplog.text
    assert capfd.readouterr() == ("", "")


def test_a_model_that_takes_no_cache_is_left_alone():
    torch.manual_seed(0)
    sizes = dict(vocab_size=32, n_positions=32, n_embd=16, n_layer=1, n_head=2)
    model = OpenAIGPTLMHeadModel(OpenAIGPTConfig(**sizes)).eval()
    options = {"inputs": torch.arange(1, 6)[None], "max_new_tokens": 4, "do_sample": False}
    assert torch.equal(kv.resilient_generate(model, **options), model.generate(**options))
