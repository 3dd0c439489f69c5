"""Bytes of a plan are those of real caches filled with zeros; what fits, fits, and one more token does not."""

import pytest
import torch
import transformers
from kinds import config

import kvcourse as kv
from kvcourse.cache_kinds import KINDS
from kvcourse.hf import head_shapes, layer_specs
from kvcourse.models.toy_models import mamba, t5
from kvcourse.planning import in_units
from kvcourse.public import PUBLIC

DTYPES = {torch.bfloat16: 2, torch.float32: 4}
LENGTHS = (1, 4, 5, 127, 128, 129, 191, 192, 193, 400)  # around the windows, the residual, and a full group of keys
RESIDENT = ("dynamic", "static", "fp8", "hqq, 4 bits", "hqq, 2 bits")
FULL, MIXED = config("full_attention", "full_attention"), config("sliding_attention", "full_attention")
CHUNKED = config("chunked_attention", "full_attention", "chunked_attention")
WIDE = transformers.LlamaConfig(num_hidden_layers=1, hidden_size=80, num_attention_heads=1, head_dim=80)
SHARED = transformers.Gemma3nTextConfig(
    num_hidden_layers=5,
    num_kv_shared_layers=2,
    hidden_size=32,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=12,
    sliding_window=7,
    layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
)
CONFIGS = {"full": FULL, "mixed": MIXED, "chunked": CHUNKED, "padded": WIDE, "shared": SHARED}
PLENTY = 2**40


def made(name, config, context):
    """The cache that the plan recommends to make, from its own line of code."""
    line = next(kind.code for kind in KINDS if kind.name == name).format(context=context)
    return eval(line, {"kv": kv, "config": config})


def fill(cache, config, tokens, batch=1, dtype=torch.bfloat16):
    """Zeros in every layer that keeps keys; in one go."""
    for index, (spec, (heads, head_dim)) in enumerate(zip(layer_specs(config), head_shapes(config), strict=True)):
        if spec.kind != "dummy":
            zeros = torch.zeros(batch, heads, tokens, head_dim, dtype=dtype)
            cache.update(zeros, zeros, index)
    return cache


@pytest.mark.parametrize("name", RESIDENT)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_bytes_are_those_of_a_real_cache(config, name):
    for tokens in LENGTHS:
        for batch, dtype in ((1, torch.bfloat16), (3, torch.float32)):
            planned = kv.plan(config, PLENTY, tokens, batch, dtype)[name]
            real = fill(made(name, config, tokens), config, tokens, batch, dtype)
            assert planned.nbytes == real.nbytes(), (tokens, batch, dtype)
            assert planned.host_nbytes == 0


@pytest.mark.parametrize("name", PUBLIC)
def test_bytes_of_models_that_people_know(name):
    config = PUBLIC[name].config()
    planned = kv.plan(config, PLENTY, 8192, batch=4)
    assert planned["dynamic"].nbytes == 4 * 8192 * kv.measure.bytes_per_token(config)
    with torch.device("meta"):
        assert planned["dynamic"].nbytes == fill(kv.DynamicCache(config=config), config, 8192, 4).nbytes()
        assert planned["static"].nbytes == fill(kv.StaticCache(config, 8192), config, 1, 4).nbytes()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("name", ["offloaded", "offloaded static"])
def test_offloaded_bytes_are_the_most_that_a_step_has_on_the_device(config, name):
    cache, specs = made(name, config, 40), layer_specs(config)
    with kv.emulated_device(memory=PLENTY, bandwidth=1e9, latency=0.0) as device:
        fill(cache, config, 40 if name == "offloaded" else 39)
        used = []
        for index, (spec, (heads, head_dim)) in enumerate(zip(specs, head_shapes(config), strict=True)):
            if spec.kind != "dummy":
                # a growing buffer would grow for one token more, so its second forward brings none
                new = torch.zeros(1, heads, 0 if name == "offloaded" else 1, head_dim, dtype=torch.bfloat16)
                cache.update(new, new, index)
                used.append(device.used)
        planned = kv.plan(config, PLENTY, 40)[name]
        assert planned.nbytes == max(used)
        moving = [layer for layer in cache.layers if cache.offloader.moves(layer)]
        assert planned.host_nbytes == sum(layer.nbytes() for layer in moving)


@pytest.mark.parametrize("name", RESIDENT)
def test_an_encoder_adds_its_text_once(name):
    config = t5().config
    own, cross = made(name, config, 150), kv.DynamicCache(config=config)
    fill(own, config, 150, 2)
    fill(cross, config, 31, 2)
    assert kv.plan(config, PLENTY, 150, 2, source=31)[name].nbytes == kv.EncoderDecoderCache(own, cross).nbytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["mamba", "mamba2"])
def test_states_are_those_that_a_model_leaves(kind, dtype):
    if kind == "mamba2":
        model = mamba()
    else:
        model = transformers.MambaForCausalLM(
            transformers.MambaConfig(vocab_size=32, hidden_size=24, num_hidden_layers=3)
        )
    cache = kv.DynamicCache(config=model.config)
    with torch.no_grad():
        model.to(dtype)(torch.zeros(2, 5, dtype=torch.long), cache=cache)
    planned = kv.plan(model.config, PLENTY, 9_999, 2, dtype)
    assert {option.nbytes for option in planned.options} == {cache.nbytes()}
    assert {option.tokens for option in planned.options} == {None}


@pytest.mark.parametrize("name", RESIDENT)
def test_states_beside_keys(name):
    config_ = config("hybrid", "linear_attention", "full_attention", "hybrid_sliding")
    cache = made(name, config_, 200)
    for index, kind in enumerate(config_.layer_types):
        if kind != "full_attention":
            cache.update_conv_state(torch.zeros(1, 6, 200), index, conv_kernel_size=3)
            cache.update_recurrent_state(torch.zeros(1, 7), index)
        if kind != "linear_attention":
            cache.update(*[torch.zeros(1, 2, 200, 8, dtype=torch.bfloat16)] * 2, index)
    assert kv.plan(config_, PLENTY, 200, state_bytes=4 * (6 * 3 + 7))[name].nbytes == cache.nbytes()


def test_unknown_states_are_asked_for():
    with pytest.raises(ValueError, match="llama.*state_bytes"):
        kv.plan(config("linear_attention"), PLENTY, 10)


@pytest.mark.parametrize("name", ["dynamic", "static", "fp8"])
def test_one_token_more_than_fit_does_not_fit(name):
    for config_, memory, batch in ((FULL, 50_000, 1), (MIXED, 50_000, 3), (WIDE, 80_000, 2), (SHARED, 9_000, 1)):
        tokens = kv.plan(config_, memory, 10, batch)[name].tokens
        sizes = [fill(made(name, config_, n), config_, n, batch).nbytes() for n in (tokens, tokens + 1)]
        assert sizes[0] <= memory < sizes[1]


@pytest.mark.parametrize("name", ["hqq, 4 bits", "hqq, 2 bits"])
def test_quantized_texts_fit_at_every_length_on_the_way(name):
    for memory in (20_000, 24_100, 26_000, 30_001):
        tokens = kv.plan(FULL, memory, 10)[name].tokens
        sizes = {n: fill(made(name, FULL, n), FULL, n).nbytes() for n in range(max(tokens - 90, 1), tokens + 2)}
        assert sizes.pop(tokens + 1) > memory and max(sizes.values()) <= memory


def test_a_model_of_windows_takes_any_text():
    sliding = config("sliding_attention", "sliding_attention")
    planned = kv.plan(sliding, 10_000, 10**6)
    assert planned["dynamic"].tokens is None and planned["dynamic"].fits and "any number" in repr(planned)
    # 2 layers of 64 bytes a token: three tokens in 400 bytes, where the window would hold four
    assert kv.plan(sliding, 400, 10**6)["dynamic"].tokens == 3


@pytest.mark.parametrize("prompt", [1, 3, 50])
@pytest.mark.parametrize("name", ["dynamic", "fp8", "hqq, 4 bits"])
@pytest.mark.parametrize("config", [FULL, MIXED], ids=["full", "mixed"])
def test_a_cache_that_grows_stays_below_at_most(config, name, prompt):
    cache = fill(made(name, config, 0), config, prompt)
    for tokens in range(prompt + 1, 330):
        fill(cache, config, 1)
        if tokens % 9 == 0 or tokens < 20:
            planned = kv.plan(config, PLENTY, tokens)[name]
            assert planned.nbytes <= planned.at_most and cache.nbytes() <= planned.at_most
    assert cache.nbytes() > planned.nbytes  # spare room there is


def test_weights_are_subtracted_and_batch_multiplies():
    free, beside = kv.plan(FULL, 100_000, 100), kv.plan(FULL, 100_000, 100, weights=40_000)
    assert beside["dynamic"].available == 60_000 and beside["dynamic"].nbytes == free["dynamic"].nbytes
    assert beside["dynamic"].tokens == 60_000 // 128 and free["dynamic"].tokens == 100_000 // 128
    assert kv.plan(FULL, 100_000, 100, batch=8)["dynamic"].tokens == 100_000 // (8 * 128)
    assert kv.plan(FULL, 30_000, 100, weights=40_000)["dynamic"].tokens == 0


@pytest.mark.parametrize(
    "memory, options, expected, lesson",
    [
        (1.3, {}, "dynamic", "02"),
        (1.3, {"compiled": True}, "static", "08"),
        (1.1, {}, "static", "08"),  # dynamic may need a quarter more while it grows
        (0.8, {}, "fp8", "12"),
        (0.5, {}, "hqq, 4 bits", "12"),
        (0.8, {"exact": True}, "offloaded", "09"),
        (0.14, {}, "offloaded static", "09"),
        (0.1, {}, None, None),
    ],
)
def test_what_fits_is_recommended_in_the_order_of_what_it_gives_up(memory, options, expected, lesson):
    llama = transformers.LlamaConfig(num_hidden_layers=16, hidden_size=256, num_attention_heads=4)
    full = kv.plan(llama, 0, 4_000)["dynamic"].nbytes
    planned = kv.plan(llama, int(memory * full), 4_000, **options)
    if expected is None:
        assert planned.recommended is None and "Nothing fits" in planned.reason and "take this" not in repr(planned)
        return
    assert planned.recommended is planned[expected] and planned.recommended.fits_growing
    assert f"{expected} (lesson {lesson})" in planned.reason
    assert repr(planned).count("<- take this") == 1
    assert in_units(planned.recommended.nbytes) in planned.reason or expected == "dynamic"


def test_it_prints_a_table():
    planned = kv.plan(FULL, 20_000, 100, weights=4_000)
    assert repr(planned).splitlines()[:3] == [
        "cache              on the device  on the host  tokens that fit  fits",
        "dynamic                 12.5 KiB            -              125  yes  <- take this",
        "static                  12.5 KiB            -              125  yes",
    ]
    assert planned.reason == (
        "15.6 KiB of 19.5 KiB are left beside the weights. Take dynamic (lesson 02): at most 15.6 KiB while it grows, "
        "exact, nothing to decide."
    )
    with pytest.raises(KeyError, match="the options are dynamic, static"):
        planned["paged"]


@pytest.mark.parametrize(
    "change, words",
    [
        ({"context": 0}, "context=0"),
        ({"batch": 1.5}, "batch=1.5"),
        ({"memory": -1}, "memory=-1"),
        ({"weights": True}, "weights=True"),
        ({"source": 5}, "no encoder"),
    ],
)
def test_impossible_numbers_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        kv.plan(FULL, **{"memory": 1000, "context": 10} | change)
    with pytest.raises(ValueError, match="an encoder: give source="):
        kv.plan(t5().config, 1000, 10)


@pytest.mark.parametrize(
    "nbytes, words", [(0, "0 B"), (1023, "1,023 B"), (1536, "1.5 KiB"), (2**20, "1.0 MiB"), (5 * 2**39, "2,560.0 GiB")]
)
def test_bytes_in_words(nbytes, words):
    assert in_units(nbytes) == words
