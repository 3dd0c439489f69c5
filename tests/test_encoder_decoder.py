"""Two caches for an encoder-decoder model: the text that grows, and the source that is read once."""

import copy
import pickle

import pytest
import torch
import transformers
from conftest import distinct

from kvcourse import DynamicCache
from kvcourse.cache import Cache
from kvcourse.encoder_decoder import EncoderDecoderCache
from kvcourse.hf import EncoderDecoderCacheBase
from kvcourse.layers.dynamic import DynamicLayer
from kvcourse.layers.linear import LinearLayer
from kvcourse.layers.quantized import QuantizedLayer
from kvcourse.layers.sliding import DynamicSlidingLayer
from kvcourse.layers.static import StaticLayer
from kvcourse.layers.static_sliding import StaticSlidingLayer
from kvcourse.offload import emulated_device

SOURCE = torch.tensor([[5, 17, 33, 2, 61, 9, 44], [3, 4, 70, 8, 0, 0, 0]])


def static(room):
    return Cache(layers=[StaticLayer(room), StaticLayer(room)])


def quantized():
    """Source and text are shorter than the residual, so that all of it is exact."""
    return Cache(layers=[QuantizedLayer("quanto", 4), QuantizedLayer("quanto", 4)])


def offloaded():
    return DynamicCache(offloading=True)


KINDS = {
    "both dynamic": lambda: EncoderDecoderCache(DynamicCache(), DynamicCache()),
    "static text": lambda: EncoderDecoderCache(static(40), DynamicCache()),
    "static source, too large": lambda: EncoderDecoderCache(DynamicCache(), static(50)),
    "both static": lambda: EncoderDecoderCache(static(40), static(33)),
    "source behind a window": lambda: EncoderDecoderCache(
        DynamicCache(), Cache(layers=[DynamicSlidingLayer(3), DynamicSlidingLayer(3)])
    ),
    "quantized text and source": lambda: EncoderDecoderCache(quantized(), quantized()),
    "both offloaded": lambda: EncoderDecoderCache(offloaded(), offloaded()),
}


def tiny(kind):
    common = dict(vocab_size=97, pad_token_id=0, eos_token_id=None, decoder_start_token_id=1)
    sizes = dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4)
    sizes |= dict(encoder_ffn_dim=48, decoder_ffn_dim=48, init_std=0.5, bos_token_id=1)
    torch.manual_seed(1)
    if kind == "t5":
        layers = dict(num_layers=2, num_decoder_layers=2, num_heads=4, d_model=32, d_kv=8, d_ff=48)
        config = transformers.T5Config(**common, **layers, dropout_rate=0.0, initializer_factor=4.0)
        return transformers.T5ForConditionalGeneration(config).eval()
    if kind == "bart":
        config = transformers.BartConfig(**common, **sizes, max_position_embeddings=64, forced_eos_token_id=None)
        return transformers.BartForConditionalGeneration(config).eval()
    speech = dict(max_source_positions=20, max_target_positions=64, num_mel_bins=8)
    speech |= dict(suppress_tokens=None, begin_suppress_tokens=None)
    return transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**common, **sizes, **speech)).eval()


@pytest.fixture(scope="module", params=["t5", "bart", "whisper"])
def model(request):
    return tiny(request.param)


def generate(model, batch=2, **options):
    options = {"do_sample": False, "max_new_tokens": 9} | options
    torch.manual_seed(7)
    if model.config.model_type == "whisper":  # its own generate() cuts long recordings; the text is made by this one
        sound = torch.arange(2 * 8 * 40.0).view(2, 8, 40).sin()[:batch]
        return transformers.GenerationMixin.generate(model, input_features=sound, **options)
    mask = (SOURCE != 0).long()[:batch]
    return model.generate(SOURCE[:batch], attention_mask=mask, **options)


# In models


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True, "temperature": 3.0}])
def test_generate_gives_the_tokens_of_no_cache_and_of_transformers(model, options):
    oracle = generate(model, use_cache=False, **options)
    theirs = transformers.EncoderDecoderCache(transformers.DynamicCache(), transformers.DynamicCache())
    assert torch.equal(generate(model, cache=theirs, **options), oracle)
    for name, make in KINDS.items():
        cache = make()
        assert torch.equal(generate(model, cache=cache, **options), oracle), name
        assert cache.is_updated == {0: True, 1: True}


@pytest.mark.parametrize("kind", list(KINDS))
def test_prompt_lookup_crops_the_text_and_not_the_source(model, kind):
    oracle = generate(model, batch=1, use_cache=False, max_new_tokens=14)
    cache = KINDS[kind]()
    assert torch.equal(generate(model, batch=1, cache=cache, prompt_lookup_num_tokens=3, max_new_tokens=14), oracle)
    assert cache.get_seq_length() == oracle.shape[1] - 1
    assert cache.cross_attention_cache.get_seq_length() == (20 if model.config.model_type == "whisper" else 7)


@pytest.mark.parametrize("kind", list(KINDS))
def test_source_is_projected_once_and_again_after_a_reset(kind):
    model, cache = tiny("t5").double(), KINDS[kind]()
    projection = model.decoder.block[0].layer[1].EncDecAttention.k
    calls = []
    handle = projection.register_forward_hook(lambda *_: calls.append(1))
    for source, batch in ((SOURCE, 2), (SOURCE[:1, :5], 1)):
        calls.clear()
        with torch.no_grad():
            encoded = model.encoder(source)
            whole = model(encoder_outputs=encoded, decoder_input_ids=SOURCE[:batch], use_cache=False).logits
            assert calls == [1]
            parts = [
                model(encoder_outputs=encoded, decoder_input_ids=token, cache=cache).logits
                for token in SOURCE[:batch].split(1, dim=1)
            ]
        assert calls == [1, 1]
        torch.testing.assert_close(torch.cat(parts, dim=1), whole)
        assert cache.get_seq_length() == 7 and cache.cross_attention_cache.get_seq_length() == source.shape[1]
        cache.reset()
        assert cache.get_seq_length() == 0 and cache.is_updated == {0: False, 1: False}
    handle.remove()


# The container by itself


def filled(kind="both dynamic", text=5, source=7, batch=2):
    cache = KINDS[kind]()
    for layer in range(2):
        cache.update(states(text, layer, batch), -states(text, layer, batch), layer)
        cache.cross_attention_cache.update(states(source, layer + 2, batch), -states(source, layer + 2, batch), layer)
        cache.is_updated[layer] = True
    return cache


def states(tokens, layer, batch=2):
    return distinct(batch, 2, tokens, 4, 10_000 * layer)


@pytest.mark.parametrize("kind", list(KINDS))
def test_models_read_the_source_and_nothing_else(kind):
    cache = filled(kind)
    cross = cache.cross_attention_cache
    for layer in range(2):
        assert torch.equal(cross.layers[layer].keys, states(7, layer + 2))
        assert torch.equal(cross.layers[layer].values, -states(7, layer + 2))
    assert cross.get_seq_length() == 7 and cross.get_mask_sizes(1, 0)[0] in (8, 3)  # 3: a window announces itself
    assert cross.positions(0) == list(range(7))


@pytest.mark.parametrize("kind", list(KINDS))
def test_questions_are_answered_by_the_text_side(kind):
    cache = filled(kind)
    own = cache.self_attention_cache
    assert isinstance(cache, EncoderDecoderCacheBase) and isinstance(cache, transformers.Cache)
    for ask in ("is_sliding", "is_linear", "is_dummy", "is_compileable", "is_croppable", "is_initialized"):
        assert getattr(cache, ask) == getattr(own, ask), ask
    assert cache.get_seq_length(1) == cache.get_query_offset(1) == 5 and cache.positions(1) == list(range(5))
    assert cache.get_mask_sizes(2, 1) == own.get_mask_sizes(2, 1) and cache.get_max_length() == own.get_max_length()
    assert len(cache) == 2 and cache.batch_size == 2 and cache.layers is own.layers
    assert cache.nbytes() == own.nbytes() + cache.cross_attention_cache.nbytes()
    assert cache.nbytes(used=True) == 2 * 2 * 2 * 2 * 4 * 4 * (5 + 7)  # layers, K and V, batch, heads, dim, float32
    for method in ("crop", "batch_repeat_interleave", "batch_select_indices"):
        cache.check_dynamic_cache(method)
    with pytest.raises(TypeError, match="'fly'"):
        cache.check_dynamic_cache("fly")
    assert repr(own) in repr(cache)


@pytest.mark.parametrize("kind", list(KINDS))
def test_crop_rolls_back_the_text_alone(kind):
    cache = filled(kind)
    with pytest.raises(ValueError, match="crop"):
        cache.crop(1)
    cache.crop(-2)
    cache.crop(0)
    assert cache.positions(0) == [0, 1, 2] and cache.is_updated == {0: True, 1: True}
    cache.crop(-99)
    assert cache.get_seq_length() == 0
    assert torch.equal(cache.cross_attention_cache.layers[1].keys, states(7, 3))


@pytest.mark.parametrize("kind", list(KINDS))
def test_batch_operations_and_copies_reach_both_sides(kind):
    cache = filled(kind)
    cache.note = "new attributes are welcome"
    cache.batch_repeat_interleave(2)
    cache.batch_select_indices(torch.tensor([3, 0, 0]))
    cache.reorder_cache(torch.tensor([1, 0, 2]))
    rows = [0, 1, 0]
    for twin in (copy.deepcopy(cache), pickle.loads(pickle.dumps(cache)), cache):
        assert twin.batch_size == 3 and twin.is_updated == {0: True, 1: True} and twin.note == cache.note
        for layer in range(2):
            assert torch.equal(twin.layers[layer].keys[:, :, :5], states(5, layer)[rows])
            assert torch.equal(twin.cross_attention_cache.layers[layer].values, -states(7, layer + 2)[rows])
    twin = copy.deepcopy(cache)
    twin.reset()
    assert cache.get_seq_length() == 5 and cache.is_updated[0] and cache.cross_attention_cache.get_seq_length() == 7
    with pytest.raises(ValueError, match="no row"):
        cache.batch_select_indices([0, 3])
    assert cache.batch_size == cache.cross_attention_cache.batch_size == 3


def test_tensors_in_and_out_as_in_data_parallel_training():
    cache = filled()
    entries = list(cache)
    assert [len(entry) for entry in entries] == [6, 6]
    short = [(own_k, own_v, cross_k, cross_v) for own_k, own_v, _, cross_k, cross_v, _ in entries]
    for data in (entries, short, iter(short)):
        again = EncoderDecoderCache(data)
        assert again.is_updated == {0: True, 1: True} and again.get_seq_length() == 5
        assert torch.equal(again.layers[1].keys, states(5, 1))
        assert torch.equal(again.cross_attention_cache.layers[1].keys, states(7, 3))
    theirs = transformers.EncoderDecoderCache(short)
    assert torch.equal(theirs.cross_attention_cache.layers[0].keys, again.cross_attention_cache.layers[0].keys)
    with pytest.raises(ValueError, match="layer 0: give 4 entries"):
        EncoderDecoderCache([(1, 2, 3)])


def test_a_filled_source_counts_as_read():
    source = DynamicCache([(states(7, 0), states(7, 0))])
    assert EncoderDecoderCache(self_attention_cache=DynamicCache(), cross_attention_cache=source).is_updated == {
        0: True
    }
    large = static(30)
    large.update(states(7, 0), states(7, 0), 0)
    cache = EncoderDecoderCache(DynamicCache(), large)
    assert cache.is_updated == {0: True, 1: False} and large.layers[0].keys.shape[2] == 7
    cache.cross_attention_cache = static(9)  # some models put another one in its place
    assert cache.cross_attention_cache.layers[0].keys is None


def test_parts_that_cannot_work_are_refused():
    ours, window = DynamicCache(), DynamicSlidingLayer(3)
    window.update(states(7, 0), states(7, 0))
    pair = EncoderDecoderCache(DynamicCache(), DynamicCache())
    for error, pattern, parts in [
        (TypeError, "DynamicCache and list", (ours, [])),
        (TypeError, "DynamicCache and DynamicCache", (ours, transformers.DynamicCache())),
        (TypeError, "EncoderDecoderCache and DynamicCache", (pair, ours)),
        (TypeError, "two caches are needed", (ours,)),
        (ValueError, "the same DynamicCache", (ours, ours)),
        (ValueError, "layer 1 is a LinearLayer", (ours, Cache(layers=[DynamicLayer(), LinearLayer()]))),
        (ValueError, "DynamicCache.. without a config", (ours, Cache(layers=[StaticSlidingLayer(9, 4)]))),
        (ValueError, "whole source", (ours, Cache(layers=[window]))),
    ]:
        with pytest.raises(error, match=pattern):
            EncoderDecoderCache(*parts)


def test_a_source_larger_than_its_static_cache_is_refused_before_anything_changes():
    cache = EncoderDecoderCache(DynamicCache(), static(6))
    with pytest.raises(ValueError, match="7.*6"):
        cache.cross_attention_cache.update(states(7, 0), states(7, 0), 0)
    assert cache.cross_attention_cache.get_seq_length() == 0 and cache.cross_attention_cache.layers[0].keys is None


def test_offloading_is_for_caches_made_with_it():
    cache = filled("both offloaded")
    assert cache.offloading and not filled().offloading
    cache.offload(0)
    cache.prefetch(0)
    with pytest.raises(RuntimeError, match="offloading=True"):
        filled().prefetch(0)


def test_a_quantized_source_is_read_back_as_tensors():
    coarse = Cache(layers=[QuantizedLayer("quanto", 4, q_group_size=4, residual_length=1)])
    cache = EncoderDecoderCache(DynamicCache(), coarse)
    exact, _ = coarse.update(states(9, 0), states(9, 0), 0)
    assert torch.equal(exact, states(9, 0))  # the forward that reads the source computes with exact states
    held = cache.cross_attention_cache.layers[0].keys
    assert held.shape == (2, 2, 9, 4) and held.dtype == torch.float32
    assert 0 < (held - states(9, 0)).abs().max() < 2 and coarse.nbytes() < 2 * states(9, 0).nbytes


def test_early_initialization_prepares_both_sides():
    cache = EncoderDecoderCache(static(8), static(5))
    cache.early_initialization(2, 3, 4, torch.float32, "cpu")
    assert cache.is_initialized and cache.nbytes() == 2 * 2 * 2 * 3 * 4 * (8 + 5) * 4
    assert cache.cross_attention_cache.layers[0].keys.shape == (2, 3, 0, 4) and cache.is_updated == {0: False, 1: False}


@pytest.mark.parametrize("layers", [(2, 3), (3, 2)])
def test_a_decoder_of_another_depth_than_the_encoder(layers):
    sizes = dict(vocab_size=32, d_model=16, d_kv=8, d_ff=32, num_heads=2, dropout_rate=0.0, initializer_factor=3.0)
    config = transformers.T5Config(
        **sizes, num_layers=layers[0], num_decoder_layers=layers[1], decoder_start_token_id=0
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    source = torch.tensor([[5, 9, 3, 17, 1]])
    cache = EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))
    assert len(cache) == layers[1]
    text = model.generate(source, cache=cache, do_sample=False, max_new_tokens=8)
    assert torch.equal(text, model.generate(source, use_cache=False, do_sample=False, max_new_tokens=8))


@pytest.mark.parametrize("offloaded", [(False, True), (True, True), (True, False)])
def test_a_source_that_lives_on_the_host_is_read_over_a_link(offloaded):
    sizes = dict(vocab_size=32, d_model=16, d_kv=8, d_ff=32, num_heads=2, dropout_rate=0.0, initializer_factor=3.0)
    config = transformers.T5Config(**sizes, num_layers=2, decoder_start_token_id=0)
    model = transformers.T5ForConditionalGeneration(config).eval()
    source = torch.tensor([[5, 9, 3, 17, 1]])
    with emulated_device(10**7, 1e9, 0):
        cache = EncoderDecoderCache(*(DynamicCache(config=config, offloading=each) for each in offloaded))
        text = model.generate(source, cache=cache, do_sample=False, max_new_tokens=8)
        assert cache.cross_attention_cache.get_seq_length() == 5
    assert torch.equal(text, model.generate(source, use_cache=False, do_sample=False, max_new_tokens=8))
