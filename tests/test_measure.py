"""Perplexity: the definition written out, and the same through any cache that forgets nothing."""

import math

import pytest
import torch

import kvcourse as kv
from kvcourse.models.twins import with_windows


@pytest.fixture(scope="module")
def text():
    return torch.randint(3, 97, (2, 21), generator=torch.Generator().manual_seed(3))


def test_perplexity_is_its_definition(llama, text):
    with torch.no_grad():
        odds = llama(text, use_cache=False).logits.log_softmax(-1)
    told = [odds[row, i, text[row, i + 1]].item() for row in range(2) for i in range(20)]
    assert kv.measure.perplexity(llama, text) == pytest.approx(math.exp(-sum(told) / 40), rel=1e-5)


@pytest.mark.parametrize("chunk", [1, 4, 5, 20, 21, 64])
def test_a_cache_fed_in_chunks_gives_the_same(llama, text, chunk):
    cache = kv.DynamicCache(config=llama.config)
    through = kv.measure.perplexity(llama, text, cache, chunk=chunk)
    assert through == pytest.approx(kv.measure.perplexity(llama, text), rel=1e-4)
    assert cache.get_seq_length() == 21


def test_a_mask_reaches_the_model_and_equals_the_window(llama, text):
    query, key = torch.arange(21)[:, None], torch.arange(21)
    mask = (key <= query) & (query - key < 4)
    windowed = kv.measure.perplexity(with_windows(llama, sliding_window=4), text)
    assert kv.measure.perplexity(llama, text, attention_mask=mask[None, None]) == pytest.approx(windowed, rel=1e-4)
    assert abs(windowed / kv.measure.perplexity(llama, text) - 1) > 0.01


def test_what_cannot_be_measured_is_refused(llama, text):
    cache = kv.DynamicCache()
    kv.greedy(llama, text[:, :3], 1, cache)
    with pytest.raises(ValueError, match="has seen 3 tokens"):
        kv.measure.perplexity(llama, text, cache)
    for ids, chunk in ((text[:, :1], 64), (text, 0)):
        with pytest.raises(ValueError, match="2 tokens or more"):
            kv.measure.perplexity(llama, ids, chunk=chunk)
