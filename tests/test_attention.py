"""Attention by hand: right by an independent implementation, and its costs by counting."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from kvcourse.attention import AttentionByHand, Cost, attend, positions


@pytest.mark.parametrize(("q_heads", "kv_heads"), [(1, 1), (4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("tokens", [1, 2, 7])
def test_attend_is_causal_attention(q_heads, kv_heads, tokens):
    q = torch.randn(3, q_heads, tokens, 8)
    k, v = torch.randn(3, kv_heads, tokens, 8), torch.randn(3, kv_heads, tokens, 8)
    expected = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(attend(q, k, v), expected)


def test_attend_with_an_offset_is_the_last_rows_of_the_whole():
    q, k, v = (torch.randn(2, 3, 9, 8) for _ in range(3))
    torch.testing.assert_close(attend(q[:, :, 6:], k, v, offset=6), attend(q, k, v)[:, :, 6:])


def steps(layer, x, prompt, cached):
    """Outputs of the last token at each step, for a text that is known beforehand."""
    outputs, memory = [], None
    for end in range(prompt, x.shape[1]):
        if cached:
            output, memory = layer.cached(x[:, :end] if memory is None else x[:, end - 1 : end], memory)
        else:
            output = layer.recomputed(x[:, :end])
        outputs.append(output)
    return torch.cat(outputs, dim=1)


@pytest.mark.parametrize(("q_heads", "kv_heads"), [(1, 1), (4, 2)])
def test_cached_equals_recomputed(q_heads, kv_heads):
    layer, x = AttentionByHand(8, q_heads, kv_heads, 4), torch.randn(2, 12, 8)
    torch.testing.assert_close(steps(layer, x, 5, cached=True), steps(layer, x, 5, cached=False))


@pytest.mark.parametrize(("prompt", "new"), [(1, 1), (5, 20), (6, 3)])
def test_costs_are_what_the_formulas_say(prompt, new):
    layer, x = AttentionByHand(8, 4, 2, 4), torch.randn(1, prompt + new, 8)
    steps(layer, x, prompt, cached=False)
    lengths = range(prompt, prompt + new)
    assert layer.cost == Cost(positions(prompt, new, False), sum(4 * n * n for n in lengths), 0)

    layer.cost = Cost()
    steps(layer, x, prompt, cached=True)
    dots = 4 * prompt * prompt + sum(4 * n for n in lengths[1:])
    held = 2 * 2 * 4 * (prompt + new - 1) * 4  # key and value, kv_heads, head_dim, tokens, bytes of a float32
    assert layer.cost == Cost(positions(prompt, new, True), dots, held)


def test_the_numbers_of_the_course():
    assert (positions(5, 20, cached=False), positions(5, 20, cached=True)) == (290, 24)
    assert (positions(250, 8, cached=False), positions(250, 8, cached=True)) == (2028, 257)


def test_heads_that_cannot_be_grouped_are_refused():
    with pytest.raises(ValueError, match="multiple of kv_heads; got 3 and 2"):
        AttentionByHand(q_heads=3, kv_heads=2)
