"""One graph: what a compiled decode step makes of each cache. With the backend "eager" only the tracing is tested."""

import copy

import pytest
import torch
from conftest import SMALL
from torch._dynamo.utils import counters
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from kvcourse.cache import Cache
from kvcourse.layers.sliding import DynamicSlidingLayer
from kvcourse.layers.static import StaticLayer
from kvcourse.layers.static_sliding import StaticSlidingLayer

torch.set_num_threads(1)
HYBRID = dict(layer_types=["sliding_attention", "full_attention"], sliding_window=6, query_pre_attn_scalar=8)
ROOM, WINDOW, PROMPT = 48, 6, 4
MODELS = {
    "full": lambda: LlamaForCausalLM(LlamaConfig(**SMALL)),
    "sliding": lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=WINDOW)),
    "hybrid": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**SMALL, **HYBRID)),
}
LAYERS = {"full": [StaticLayer] * 2, "sliding": [StaticSlidingLayer] * 2, "hybrid": [StaticSlidingLayer, StaticLayer]}


def make(name):
    torch.manual_seed(0)
    layers = [kind(ROOM) if kind is StaticLayer else kind(ROOM, WINDOW) for kind in LAYERS[name]]
    return MODELS[name]().eval(), Cache(layers=layers)


@pytest.fixture(autouse=True)
def count_from_zero():
    torch._dynamo.reset()
    counters.clear()


def graphs():
    return counters["stats"]["unique_graphs"]


def decode(model, forward, cache, ids, masks_outside=True):
    """Prompt in one eager forward, then one token a step through `forward`; logits of each step."""
    logits = [model(ids[:, :PROMPT], cache=cache).logits[:, -1]]
    for position in range(PROMPT, ids.shape[1]):
        token = ids[:, position : position + 1]
        if masks_outside:
            inputs = model.prepare_inputs_for_generation(
                token,
                cache=cache,
                attention_mask=torch.ones((ids.shape[0], position + 1), dtype=torch.long),
                position_ids=torch.tensor([[position]]),
            )
        else:
            inputs = dict(input_ids=token, cache=cache)
        logits.append(forward(**inputs).logits[:, -1])
    return torch.stack(logits, dim=1)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("masks_outside", [True, False])
@torch.no_grad()
def test_one_graph_while_it_fills_and_none_for_a_second_sequence(name, masks_outside):
    model, cache = make(name)
    forward = torch.compile(model.forward, fullgraph=True, backend="eager")
    for seed in (1, 2):
        ids = torch.randint(2, 61, (2, PROMPT + 30), generator=torch.Generator().manual_seed(seed))
        got = decode(model, forward, cache, ids, masks_outside)
        wanted = model(ids, use_cache=False).logits[:, PROMPT - 1 :]
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
        assert cache.get_seq_length() == PROMPT + 30
        assert graphs() == 1
        cache.reset()


@pytest.mark.parametrize("name", ["full", "sliding"])
@torch.no_grad()
def test_one_graph_from_the_first_token_on(name):
    model, cache = make(name)
    cache.early_initialization(1, 2, 8, torch.float32, "cpu")
    step = torch.compile(lambda keys, values: cache.update(keys, values, 0), fullgraph=True, backend="eager")
    for _ in range(2):
        for position in range(20):
            keys = torch.full((1, 2, 1, 8), float(position + 1))
            got, _ = step(keys, keys)
            length, offset = (ROOM, 0) if name == "full" else (WINDOW, max(position + 1 - WINDOW, 0))
            wanted = [p + 1.0 if p <= position else 0.0 for p in range(offset, offset + length)]
            assert got[0, 0, :, 0].tolist() == wanted
        cache.reset()
    assert graphs() == 1


@torch.no_grad()
def test_a_deep_copy_goes_on_compiled():
    for name in ("full", "sliding"):
        _, cache = make(name)
        cache.update(torch.full((1, 2, 9, 8), 1.0), torch.full((1, 2, 9, 8), 1.0), 0)
        twin = copy.deepcopy(cache)
        step = torch.compile(
            lambda keys, values, cache=twin: cache.update(keys, values, 0), fullgraph=True, backend="eager"
        )
        for number in (2.0, 3.0, 4.0):
            keys = torch.full((1, 2, 1, 8), number)
            got = step(keys, keys)
        wanted = [cache.update(torch.full((1, 2, 1, 8), n), torch.full((1, 2, 1, 8), n), 0) for n in (2.0, 3.0, 4.0)][
            -1
        ]
        assert torch.equal(got[0], wanted[0]) and twin.get_seq_length() == 12


@torch.no_grad()
def test_a_compiled_length_is_not_the_counter():
    cache = Cache(layers=[StaticLayer(9)])
    cache.update(torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 3, 8), 0)

    def before_and_after(keys):
        length = cache.get_seq_length()
        cache.update(keys, keys, 0)
        return length

    length = torch.compile(before_and_after, fullgraph=True, backend="eager")(torch.zeros(1, 2, 1, 8))
    assert int(length) == 3 and cache.get_seq_length() == 4
    assert length.data_ptr() != cache.layers[0]._seen.value.data_ptr()


@torch.no_grad()
def test_an_overflow_inside_a_graph_leaves_the_length():
    cache = Cache(layers=[StaticLayer(3)])
    step = torch.compile(lambda keys: cache.update(keys, keys, 0), fullgraph=True, backend="eager")
    cache.early_initialization(1, 2, 8, torch.float32, "cpu")
    for _ in range(3):
        step(torch.ones(1, 2, 1, 8))
    with pytest.raises((RuntimeError, IndexError)):
        step(torch.ones(1, 2, 1, 8))
    assert cache.get_seq_length() == 3


@torch.no_grad()
def test_several_tokens_at_once_leave_the_graph_of_a_ring_and_stay_right():
    cache, plain = (Cache(layers=[StaticSlidingLayer(ROOM, WINDOW)]) for _ in range(2))
    step = torch.compile(lambda keys, values: cache.update(keys, values, 0), backend="eager")
    first = 0
    for count in (4, 5, 1, 9, 3):
        keys = torch.arange(first, first + count).float().view(1, 1, count, 1).expand(1, 2, count, 8)
        first += count
        for got, wanted in zip(step(keys, -keys), plain.update(keys, -keys, 0), strict=True):
            assert torch.equal(got, wanted)


@torch.no_grad()
def test_a_growing_window_compiles_to_a_few_graphs():
    cache, plain = (Cache(layers=[DynamicSlidingLayer(WINDOW)]) for _ in range(2))
    step = torch.compile(lambda keys: cache.update(keys, -keys, 0), fullgraph=True, backend="eager")
    for number in range(25):
        keys = torch.full((1, 2, 1, 8), float(number))
        for got, wanted in zip(step(keys), plain.update(keys, -keys, 0), strict=True):
            assert torch.equal(got, wanted)
    assert 2 <= graphs() <= 8
