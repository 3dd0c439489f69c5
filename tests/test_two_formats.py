"""Keys and values in formats of their own: the same codes as the quantized cache, and each side pays for its own."""

import copy

import pytest
import torch

import kvcourse as kv
from kvcourse.models.twins import with_windows
from kvcourse.quantize import PER_CHANNEL, PER_TOKEN, Fp8, HalfQuadratic
from kvcourse.two_formats import two_formats_cache


def fmt(bits, grouping):
    return HalfQuadratic(bits, grouping, 4)


def filled(cache, tokens=21):
    generator = torch.Generator().manual_seed(5)
    for part in torch.randn(2, 1, 2, tokens, 16, generator=generator).split(5, dim=3):
        for layer_idx in range(2):
            cache.update(part[0].clone(), part[1].clone(), layer_idx)
    return cache


def test_with_one_format_twice_it_is_the_quantized_cache(llama):
    ours = filled(two_formats_cache(llama.config, fmt(2, PER_CHANNEL), fmt(2, PER_TOKEN), 3))
    plain = filled(kv.QuantizedCache("hqq", llama.config, nbits=2, q_group_size=4, residual_length=3))
    for one, other in zip(ours.layers, plain.layers, strict=True):
        assert torch.equal(one.keys, other.keys) and torch.equal(one.values, other.values)
        assert one.quantized_positions() == other.quantized_positions() == (list(range(16)), list(range(18)))
    assert ours.nbytes() == plain.nbytes()


def test_each_side_pays_for_its_own_bits(llama):
    few, many = fmt(2, PER_TOKEN), fmt(4, PER_TOKEN)
    small, keys, values = (
        filled(two_formats_cache(llama.config, *formats)) for formats in ((few, few), (many, few), (few, many))
    )
    for a, k, v in zip(small.layers, keys.layers, values.layers, strict=True):
        assert torch.equal(a.values, k.values) and torch.equal(a.keys, v.keys)
        assert not torch.equal(a.keys, k.keys) and not torch.equal(a.values, v.values)
    extra = 2 * (many.nbytes(1, 2, 21, 16) - few.nbytes(1, 2, 21, 16))
    assert (
        keys.nbytes(used=True) - small.nbytes(used=True) == extra == values.nbytes(used=True) - small.nbytes(used=True)
    )


def test_it_decodes_copies_and_crops_like_any_cache(llama):
    cache = two_formats_cache(llama.config, Fp8(), HalfQuadratic(8, PER_TOKEN, 16))
    text = torch.randint(3, 97, (1, 9), generator=torch.Generator().manual_seed(2))
    twin = copy.deepcopy(cache)
    assert kv.greedy(llama, text, 6, cache).shape == (1, 15)
    cache.crop(-4)
    assert cache.positions(0) == list(range(10)) and twin.get_seq_length() == 0


def test_layers_with_a_window_stay_exact(llama):
    model = with_windows(llama, ["full_attention", "sliding_attention"], 4)
    cache = two_formats_cache(model.config, fmt(2, PER_TOKEN), fmt(2, PER_TOKEN))
    assert [layer.is_sliding for layer in cache.layers] == [False, True]
    with pytest.raises(AttributeError):
        cache.layers[1].quantized_positions()
