"""Models on the weights of another, and the tiny chunked one: what they share, and what each token sees."""

import pytest
import torch

import kvcourse as kv
from kvcourse.models.chunked import tiny_chunked
from kvcourse.models.twins import with_windows

IDS = torch.randint(3, 60, (1, 13), generator=torch.Generator().manual_seed(4))


def seen(model):
    """Of layer 0: whether each query (row) gives any weight to each key."""
    with torch.no_grad():
        return model(IDS, use_cache=False, output_attentions=True).attentions[0][0, 0] > 0


def test_a_twin_holds_no_weights_of_its_own_and_changes_nothing(llama):
    before = {name: tensor.data_ptr() for name, tensor in llama.state_dict().items()}
    twin = with_windows(llama, sliding_window=3)
    assert {name: tensor.data_ptr() for name, tensor in twin.state_dict().items()} == before
    assert not any(tensor.is_meta for tensor in [*twin.parameters(), *twin.buffers()])
    assert llama.config.model_type == "llama" and twin.config.sliding_window == 3 and not twin.training
    full = with_windows(llama, ["full_attention"] * 2)
    with torch.no_grad():
        assert torch.equal(full(IDS).logits, llama(IDS).logits)
        assert not torch.allclose(twin(IDS).logits, llama(IDS).logits, atol=0.1)


def test_a_twin_equals_the_model_loaded_with_windows():
    model, _ = kv.load("tiny")
    loaded, _ = kv.load("tiny", layer_types=["sliding_attention", "full_attention"], sliding_window=4)
    twin = with_windows(model, ["sliding_attention", "full_attention"], 4)
    assert torch.equal(kv.greedy(twin, IDS, 12, kv.DynamicCache(config=twin.config)), kv.greedy(loaded, IDS, 12))


def test_a_window_counts_the_token_that_looks(llama):
    twin = with_windows(llama, sliding_window=4, attn_implementation="eager")
    query, key = torch.arange(13)[:, None], torch.arange(13)
    assert torch.equal(seen(twin), (key <= query) & (query - key < 4))
    assert llama.config._attn_implementation != "eager"


@pytest.mark.parametrize("chunk", [3, 5])
def test_a_chunk_sees_itself_alone(chunk):
    model = tiny_chunked(chunk, attn_implementation="eager")
    query, key = torch.arange(13)[:, None], torch.arange(13)
    assert torch.equal(seen(model), (key <= query) & (key // chunk == query // chunk))
    cache = kv.DynamicCache(config=model.config)
    assert cache.is_sliding == [True] * 4
    assert torch.equal(kv.greedy(model, IDS, 9, cache), kv.greedy(model, IDS, 9))
    assert len(cache.positions(0)) == chunk - 1


def test_every_fourth_layer_may_be_full():
    cache = kv.DynamicCache(config=tiny_chunked(4, layers=8, every_fourth_full=True).config)
    assert cache.is_sliding == [True, True, True, False] * 2


def test_the_callers_random_state_is_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    tiny_chunked(4)
    assert torch.equal(torch.rand(1), expected)
