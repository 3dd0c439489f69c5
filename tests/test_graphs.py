"""Counting graphs: as many as torch itself counts, and the compiled run computes what the plain one does."""

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

import kvcourse as kv
from kvcourse.graphs import compiled, decode_compiled, recorder

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    sizes = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4)
    return LlamaForCausalLM(LlamaConfig(vocab_size=61, num_key_value_heads=2, **sizes)).eval()


def test_the_list_is_what_torch_counts():
    counters.clear()
    step, graphs = compiled(lambda x: x * 2 + 1, dynamic=False)
    for size in (3, 4, 3, 5):
        assert torch.equal(step(torch.ones(size)), torch.full((size,), 3.0))
    assert len(graphs) == counters["stats"]["unique_graphs"] == 3
    step, graphs = compiled(lambda x: x * 2 + 1)
    for size in (3, 4, 5, 6):
        step(torch.ones(size))
    assert len(graphs) == 2


def test_a_recorder_starts_from_an_empty_list_of_its_own():
    (backend, graphs), (_, others) = recorder(), recorder()
    torch._dynamo.reset()
    torch.compile(torch.sin, backend=backend)(torch.ones(2))
    assert len(graphs) == 1 and others == []


def test_a_static_cache_makes_one_graph_and_a_growing_one_two(model):
    ids = torch.arange(3, 8).view(1, 5)
    static = kv.StaticCache(model.config, 16)
    graphs, counts = decode_compiled(model, ids, static, steps=4, sequences=2)
    assert len(graphs) == 1 and counts == [1] * 8
    text = kv.greedy(model, ids, 5)
    assert static.get_seq_length() == 9
    plain = kv.DynamicCache(config=model.config)
    with torch.no_grad():
        model(text[:, :9], cache=plain)
    torch.testing.assert_close(static.layers[0].keys[:, :, :9], plain.layers[0].keys)
    graphs, counts = decode_compiled(model, ids, DynamicCache(config=model.config), steps=4)
    assert counts == [1, 2, 2, 2] and len(graphs) == 2
