"""Index keys of sparse attention: beside the keys and values, through every operation."""

import copy
import pickle

import pytest
import torch
import transformers
from conftest import distinct
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcourse.cache import Cache
from kvcourse.hf import layer_specs
from kvcourse.layers.dynamic import DynamicLayer
from kvcourse.layers.indexed import DynamicIndexedLayer, StaticIndexedLayer
from kvcourse.layers.linear import LinearLayer
from kvcourse.layers.static import StaticLayer

PROMPT = torch.tensor([[5, 17, 33, 2, 61, 9, 44]])
ROOM = 40
KINDS = {"dynamic": DynamicIndexedLayer, "static": lambda: StaticIndexedLayer(ROOM)}


def tiny(topk):
    sizes = dict(vocab_size=97, hidden_size=32, num_hidden_layers=2, pad_token_id=0, bos_token_id=1, eos_token_id=None)
    sizes |= dict(initializer_range=0.5, num_attention_heads=4, num_key_value_heads=4, intermediate_size=48)
    latent = dict(kv_lora_rank=8, q_lora_rank=8, qk_rope_head_dim=8, v_head_dim=8, qk_nope_head_dim=8)
    index = dict(index_topk=topk, index_head_dim=16, index_n_heads=2, mlp_layer_types=["dense"] * 2)
    torch.manual_seed(1)
    return transformers.DeepseekV32ForCausalLM(transformers.DeepseekV32Config(**sizes, **latent, **index)).eval()


def tiny_with_positions():
    """Linear layers with three convolution states, and an indexed layer on which the model leaves its positions."""
    sizes = dict(vocab_size=97, hidden_size=32, num_hidden_layers=2, pad_token_id=0, bos_token_id=1, eos_token_id=96)
    sizes |= dict(initializer_range=0.5, num_attention_heads=4, num_key_value_heads=2, head_dim=8)
    linear = dict(linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4)
    experts = dict(moe_intermediate_size=16, shared_expert_intermediate_size=16, num_experts_per_tok=2, num_experts=4)
    words = dict(hc_count=2, hc_lowrank=4, ple_layer_ids=[1], ple_embed_dim=16, ngram_vocab_size_base=50)
    words |= dict(heads_per_ngram=2, make_ngram_vocab_size_divisible_by=2, split_ngram_parts=1)
    index = dict(indexer_n_heads=2, indexer_kv_heads=1, indexer_head_dim=8, indexer_budget=4, indexer_compress_ratio=2)
    kinds = ["linear_attention", "indexed_attention"]
    torch.manual_seed(1)
    config = transformers.Qwen4ExpTextConfig(**sizes, **linear, **experts, **words, **index, layer_types=kinds)
    return transformers.Qwen4ExpForCausalLM(config).eval()


def cache_for(model, kind):
    layers = [
        KINDS[kind]() if spec.kind == "indexed_attention" else LinearLayer(spec.states)
        for spec in layer_specs(model.config)
    ]
    return Cache(layers=layers)


def theirs_for(model, kind):
    if kind == "static":
        return transformers.StaticCache(config=model.config, max_cache_len=ROOM)
    return transformers.DynamicCache(config=model.config)


def index_keys(start, stop, batch=2, size=3):
    return distinct(batch, 1, 100, size)[:, 0, start:stop]


def keys_at(start, stop, batch=2):
    return distinct(batch, 2, 100, 4)[:, :, start:stop]


def position_ids(start, stop, batch=2):
    return torch.arange(3 * batch * 100).view(3, batch, 100)[..., start:stop]


def feed(layer, start, stop, batch=2):
    """One step, as a model makes it: positions, then index keys, then keys and values."""
    held = layer.indexer_position_ids
    new = position_ids(start, stop, batch)
    layer.indexer_position_ids = new if held is None else torch.cat([held, new], dim=-1)
    indexed = layer.update_indexer(index_keys(start, stop, batch))
    layer.update(keys_at(start, stop, batch), -keys_at(start, stop, batch))
    return indexed


# In models


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True}, {"prompt_lookup_num_tokens": 3}])
def test_generate_gives_the_tokens_of_no_cache_and_of_transformers(kind, options):
    for topk in (3, 64):
        model = tiny(topk)
        texts = []
        for cache in (cache_for(model, kind), theirs_for(model, kind)):
            torch.manual_seed(7)
            how = {"do_sample": False, "max_new_tokens": 9} | options
            texts.append(model.generate(PROMPT, cache=cache, **how))
        assert torch.equal(*texts) and len(set(texts[0][0].tolist())) > 4
    # With 3 of the tokens, scores of exactly 0 tie, and without a cache others are picked: compared with 64 only.
    torch.manual_seed(7)
    how.pop("prompt_lookup_num_tokens", None)
    assert torch.equal(texts[0], model.generate(PROMPT, use_cache=False, **how))


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}])
def test_a_model_that_leaves_its_positions_on_the_layer(kind, options):
    model = tiny_with_positions()
    how = dict(do_sample=False, max_new_tokens=8, **options)
    cache = cache_for(model, kind)
    ours = model.generate(PROMPT, cache=cache, **how)
    assert torch.equal(ours, model.generate(PROMPT, use_cache=False, **how))
    assert cache.layers[1].indexer_position_ids.shape[-1] == cache.get_seq_length(1)


def test_states_equal_those_of_transformers():
    model = tiny(64)
    for kind in KINDS:
        ours, theirs = cache_for(model, kind), theirs_for(model, kind)
        with torch.no_grad():
            for part in PROMPT.split([3, 1, 1, 2], dim=1):
                assert torch.equal(model(part, cache=ours).logits, model(part, cache=theirs).logits)
        for a, b in zip(ours.layers, theirs.layers, strict=True):
            assert torch.equal(a.indexer_keys, b.indexer_keys) and torch.equal(a.keys, b.keys)
            assert a.is_indexer_initialized and b.is_indexer_initialized


def test_the_static_layer_compiles_to_one_graph():
    layer = StaticIndexedLayer(8)

    def step(index, keys):
        found = layer.update_indexer(index)
        return found, *layer.update(keys, -keys)

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(step, fullgraph=True, backend="eager")
    for _ in range(2):
        feed(layer, 0, 2)
        address = layer.indexer_keys.data_ptr()
        for position in range(2, 8):
            found, *_ = compiled(index_keys(position, position + 1), keys_at(position, position + 1))
            assert torch.equal(found[:, : position + 1], index_keys(0, position + 1))
        assert layer.indexer_keys.data_ptr() == address
        layer.reset()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


# The layer by itself


def held(layer, kind, length):
    """Index keys that count: a static layer also shows slots that are not filled."""
    keys = layer.indexer_keys
    assert keys.shape[1] == (ROOM if kind == "static" else length)
    return keys[:, :length]


@pytest.mark.parametrize("kind", list(KINDS))
def test_steps_chunks_and_one_shot_hold_the_same(kind):
    for sizes in ([23], [1] * 23, [7, 1, 1, 9, 5]):
        layer, start = KINDS[kind](), 0
        for size in sizes:
            found = feed(layer, start, start + size)
            start += size
            assert torch.equal(found[:, :start], index_keys(0, start))
        assert torch.equal(held(layer, kind, 23), index_keys(0, 23))
        assert torch.equal(layer.keys[:, :, :23], keys_at(0, 23)) and layer.positions() == list(range(23))


def test_bytes_equal_the_formula():
    dynamic, static = DynamicIndexedLayer(), StaticIndexedLayer(ROOM)
    for layer in (dynamic, static):
        feed(layer, 0, 10)
        feed(layer, 10, 11)
    one_token = 2 * 2 * 2 * 4 * 4 + 2 * 3 * 4  # keys and values, index keys; float32
    assert dynamic.nbytes() == one_token * 12 and dynamic.nbytes(used=True) == one_token * 11
    assert static.nbytes() == one_token * ROOM and static.nbytes(used=True) == one_token * 11
    assert dynamic.nbytes("cuda") == 0 and copy.deepcopy(dynamic).nbytes() == one_token * 11


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(list(KINDS)),
    steps=st.lists(st.one_of(st.integers(1, 4), st.integers(-9, 0)), min_size=1, max_size=9),
    changes=st.lists(st.sampled_from(["reorder", "repeat", "select", "copy", "pickle", None]), min_size=9),
)
def test_random_steps_against_a_plain_list(kind, steps, changes):
    """Positive: feed so many tokens. Zero or negative: crop. The oracle: rows and positions that must be held."""
    cache, rows, tokens, fed = Cache(layers=[KINDS[kind]()]), torch.arange(2), [], 0
    for step, change in zip(steps, changes, strict=False):
        layer = cache.layers[0]
        if step > 0:
            new = slice(fed, fed + step)
            where = position_ids(new.start, new.stop)[:, rows]
            before = layer.indexer_position_ids
            layer.indexer_position_ids = where if before is None else torch.cat([before, where], dim=-1)
            layer.update_indexer(index_keys(new.start, new.stop)[rows])
            cache.update(keys_at(new.start, new.stop)[rows], keys_at(new.start, new.stop)[rows], 0)
            tokens, fed = tokens + list(range(new.start, new.stop)), new.stop
        else:
            cache.crop(step)
            tokens = tokens[: max(len(tokens) + step, 0)]
        if change in ("copy", "pickle"):
            cache = copy.deepcopy(cache) if change == "copy" else pickle.loads(pickle.dumps(cache))
        elif change == "repeat" and len(rows) <= 4:
            cache.batch_repeat_interleave(2)
            rows = rows.repeat_interleave(2) if fed else rows
        elif change == "select" and fed:
            cache.batch_select_indices([len(rows) - 1, 0])
            rows = rows[[len(rows) - 1, 0]]
        elif change == "reorder" and fed:
            cache.reorder_cache(torch.arange(len(rows)).flip(0))
            rows = rows.flip(0)
        layer = cache.layers[0]
        assert layer.get_seq_length() == len(tokens)
        if fed:
            assert torch.equal(held(layer, kind, len(tokens)), index_keys(0, 100)[rows][:, tokens])
            assert torch.equal(layer.keys[:, :, : len(tokens)], keys_at(0, 100)[rows][:, :, tokens])
            assert torch.equal(layer.indexer_position_ids, position_ids(0, 100)[:, rows][..., tokens])


@pytest.mark.parametrize("kind", list(KINDS))
def test_reset_is_as_new_and_another_batch_works(kind):
    layer = KINDS[kind]()
    feed(layer, 0, 9)
    layer.reset()
    assert layer.get_seq_length() == 0 and layer.indexer_position_ids is None and layer.nbytes(used=True) == 0
    found = feed(layer, 0, 4, batch=5)
    assert torch.equal(found[:, :4], index_keys(0, 4, batch=5)) and layer.batch_size == 5
    found = layer.update_indexer(index_keys(4, 5, batch=5))
    assert torch.equal(found[:, :5], index_keys(0, 5, batch=5))


@pytest.mark.parametrize("kind", list(KINDS))
def test_refusals_change_nothing(kind):
    layer = KINDS[kind]()
    feed(layer, 0, 9)
    for new in (index_keys(0, 1, batch=4), index_keys(0, 1, size=5), keys_at(0, 1)):
        with pytest.raises(ValueError, match="index keys"):
            layer.update_indexer(new)
    if kind == "static":
        with pytest.raises(ValueError, match=f"41.*{ROOM}"):
            layer.update_indexer(index_keys(9, 41))
    assert torch.equal(held(layer, kind, 9), index_keys(0, 9)) and layer.get_seq_length() == 9
    for plain in (DynamicLayer(), StaticLayer(4)):
        with pytest.raises(ValueError, match="update_indexer: layer 0"):
            Cache(layers=[plain]).update_indexer(index_keys(0, 1), 0)


def test_copies_are_independent_and_carry_no_gradient():
    layer = DynamicIndexedLayer()
    with torch.inference_mode():
        feed(layer, 0, 3)
    twin = copy.deepcopy(layer)
    feed(twin, 3, 5)
    assert layer.indexer_keys.shape[1] == layer.indexer_position_ids.shape[-1] == 3
    trained = DynamicIndexedLayer()
    trained.update_indexer(index_keys(0, 2).requires_grad_())
    assert trained.update_indexer(index_keys(2, 3)).requires_grad  # gradients pass through
    assert not copy.deepcopy(trained).indexer_keys.requires_grad
