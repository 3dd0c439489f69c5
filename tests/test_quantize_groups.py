"""Affine groups: the bound on the error, what shares a group, the storage rule, bytes, cutting and joining."""

import copy

import pytest
import torch

from kvcourse.quantize import (
    PER_CHANNEL,
    PER_TOKEN,
    HalfQuadratic,
    MaxRange,
    grouping,
    join,
    make_format,
)

GROUPINGS = (PER_TOKEN, PER_CHANNEL)
FORMATS = [MaxRange(b, g, 16) for b in (2, 4) for g in GROUPINGS]
FORMATS += [HalfQuadratic(b, g, 16) for b in (1, 2, 3, 4, 8) for g in GROUPINGS]


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def steps(fmt, q, shape):
    """The step of each value's group, in the shape of the values, written out apart from the format's own code."""
    scales = q.scales.float()
    if fmt.grouping == PER_CHANNEL:
        return torch.stack([scales[:, :, t // fmt.group_size] for t in range(shape[2])], 2)
    size = min(fmt.group_size, shape[3])
    return torch.stack([scales[..., c // size] for c in range(shape[3])], 3)


def name(fmt):
    return f"{fmt.name}-{fmt.bits}-{fmt.grouping}"


@pytest.mark.parametrize("head_dim", [1, 5, 16, 24, 40])
@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("groups", GROUPINGS)
@pytest.mark.parametrize("shift, size", [(0, 1), (7, 1), (-300, 2), (0, 1e-8), (0, 1e5), (1e5, 1), (0, 1e-4)])
def test_largest_range_is_off_by_at_most_half_a_step(head_dim, bits, groups, shift, size):
    x = normal(2, 3, 32, head_dim) * size + shift
    fmt = MaxRange(bits, groups, 16)
    q = fmt.quantize(x)
    rounding = 4 * torch.finfo(torch.float32).eps * x.abs()
    error = (fmt.dequantize(q, torch.float32) - x).abs()
    step = steps(fmt, q, x.shape)
    assert (error <= step / 2 + rounding).all()
    dim = 2 if groups == PER_CHANNEL else 3
    spans = [(g.amax(dim, keepdim=True) - g.amin(dim, keepdim=True)).expand_as(g) for g in x.split(16, dim)]
    assert (step <= torch.cat(spans, dim) / fmt.levels * 1.01 + rounding).all()  # no wider than the range asks for


@pytest.mark.parametrize("fmt", FORMATS, ids=name)
@pytest.mark.parametrize("value", [0.0, 1.0, -3.7, 1e5, 1e-8, -1e-30])
def test_equal_values_are_exact(fmt, value):
    x = torch.full((1, 2, 16, 24), value)
    q = fmt.quantize(x)
    assert torch.equal(fmt.dequantize(q, torch.float32), x)
    assert not q.codes.any()


@pytest.mark.parametrize("fmt", FORMATS, ids=name)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtype_comes_back_and_is_computed_in_float32(fmt, dtype):
    x = normal(1, 2, 16, 24).to(dtype)
    q = fmt.quantize(x)
    back = fmt.dequantize(q, dtype)
    assert back.dtype == dtype and back.shape == x.shape
    same = fmt.quantize(x.float())
    assert torch.equal(q.codes, same.codes) and torch.equal(q.scales, same.scales)
    assert torch.equal(back, fmt.dequantize(q, torch.float32).to(dtype))


@pytest.mark.parametrize("fmt", FORMATS, ids=name)
def test_the_largest_float16_does_not_become_infinite(fmt):
    x = torch.linspace(-65504, 65504, 16 * 16).view(1, 1, 16, 16).to(torch.float16)
    assert fmt.dequantize(fmt.quantize(x), torch.float16).isfinite().all()


@pytest.mark.parametrize("fmt", FORMATS, ids=name)
def test_input_is_left_alone_and_gradients_do_not_follow(fmt):
    x = normal(1, 2, 16, 24).requires_grad_()
    before = x.detach().clone()
    q = fmt.quantize(x)
    assert torch.equal(x, before)
    assert not any(tensor.requires_grad for tensor in q.tensors().values())
    codes = q.codes.clone()
    fmt.dequantize(q, torch.float32).zero_()
    assert torch.equal(q.codes, codes)


@pytest.mark.parametrize("fmt", FORMATS, ids=name)
@pytest.mark.parametrize("head_dim", [16, 24, 20])
def test_nothing_but_its_own_group_decides_about_a_value(fmt, head_dim):
    x = normal(2, 3, 48, head_dim)
    q = fmt.quantize(x)
    back = fmt.dequantize(q, torch.float32)
    changed = x.clone()
    changed[1, 2, 20, 3] = 40.0  # one value of one token of one head of one row
    difference = fmt.dequantize(fmt.quantize(changed), torch.float32) != back
    inside = torch.zeros_like(difference)
    if fmt.grouping == PER_TOKEN:
        inside[1, 2, 20, :16] = True
    else:
        inside[1, 2, 16:32, 3] = True
    assert difference.any() and not (difference & ~inside).any()


@pytest.mark.parametrize("fmt", FORMATS, ids=name)
def test_a_block_alone_a_row_alone_and_the_whole_have_the_same_codes(fmt):
    x = normal(3, 2, 48, 16) * torch.tensor([1.0, 0.1, 1e6]).view(3, 1, 1, 1)  # row 2 needs float32
    whole = fmt.quantize(x)
    blocks = join([fmt.quantize(block) for block in x.split([16, 32], dim=2)])
    heads = [fmt.quantize(x[:, head : head + 1]) for head in range(2)]
    rows = [fmt.quantize(x[row : row + 1]) for row in range(3)]
    for field, tensor in whole.tensors().items():
        assert torch.equal(getattr(blocks, field), tensor)
        assert torch.equal(torch.cat([getattr(q, field) for q in heads], 1), tensor)
        assert torch.equal(torch.cat([getattr(q, field) for q in rows], 0), tensor)
    if fmt.grouping == PER_TOKEN:
        single = join([fmt.quantize(token) for token in x.split(1, dim=2)])
        assert torch.equal(single.codes, whole.codes) and torch.equal(single.scales, whole.scales)


@pytest.mark.parametrize("fmt", FORMATS, ids=name)
def test_bytes_equal_the_formula(fmt):
    for batch, kv_heads, tokens, head_dim in [(1, 3, 16, 64), (2, 1, 48, 20), (1, 3, 32, 7)]:
        q = fmt.quantize(normal(batch, kv_heads, tokens, head_dim))
        width = 4 if fmt.bits == 8 else 2
        per_token = -(-head_dim // min(16, head_dim))
        groups = tokens * per_token if fmt.grouping == PER_TOKEN else tokens // 16 * head_dim
        expected = batch * kv_heads * (tokens * -(-head_dim * fmt.bits // 8) + 2 * width * groups)
        assert q.nbytes() == fmt.nbytes(batch, kv_heads, tokens, head_dim) == expected
        wide = fmt.quantize(normal(batch, kv_heads, tokens, head_dim) * 1e6)
        assert wide.nbytes() == fmt.nbytes(batch, kv_heads, tokens, head_dim, float32=True)


def test_float16_where_it_is_harmless_float32_where_it_is_not():
    for groups in GROUPINGS:
        fmt = MaxRange(4, groups, 16)
        x = normal(1, 1, 16, 16)
        assert fmt.quantize(x).scales.dtype == fmt.quantize(x).offsets.dtype == torch.float16
        assert fmt.quantize(x + 30).scales.dtype == torch.float16
        for hard in (x * 1e6, x * 1e-7, x + 5000, torch.full_like(x, 0.1)):  # overflow, underflow, lost steps, inexact
            q = fmt.quantize(hard)
            assert q.scales.dtype == q.offsets.dtype == torch.float32
        assert MaxRange(4, groups, 16, exact_metadata=True).quantize(x).scales.dtype == torch.float32
        assert HalfQuadratic(8, groups, 16).quantize(x).scales.dtype == torch.float32


def test_outlier_channels_survive_per_channel():
    x = normal(1, 2, 64, 64)
    x[..., 21] *= 15
    x[..., 53] = x[..., 53] * 12 + 20
    ordinary = torch.ones(64, dtype=torch.bool)
    ordinary[[21, 53]] = False
    error = {}
    for groups in GROUPINGS:
        fmt = MaxRange(4, groups, 64)
        back = fmt.dequantize(fmt.quantize(x), torch.float32)
        error[groups] = (back - x)[..., ordinary].abs().mean().item()
    assert error[PER_CHANNEL] < 0.1 < 4 * error[PER_CHANNEL] < error[PER_TOKEN]


@pytest.mark.parametrize("fmt", FORMATS, ids=name)
def test_cut_inside_a_group_join_and_reorder_read_the_same_values(fmt):
    x = normal(3, 2, 48, 20)
    q = fmt.quantize(x)
    back = fmt.dequantize(q, torch.float32)
    for tokens in (0, 1, 15, 16, 17, 40, 48):
        cut = q.first(tokens, fmt.metadata_rows(tokens))
        assert cut.tokens == tokens
        assert torch.equal(fmt.dequantize(cut, torch.float32), back[:, :, :tokens])
        trimmed = cut.map(torch.clone)
        assert trimmed.nbytes() == fmt.nbytes(3, 2, tokens, 20)
    beams = torch.tensor([2, 0, 0, 1])
    assert torch.equal(fmt.dequantize(q.map(lambda t: t.index_select(0, beams)), torch.float32), back[beams])
    other = copy.deepcopy(q)
    q.codes.zero_()
    assert torch.equal(fmt.dequantize(other, torch.float32), back)


def test_join_widens_float16_scales_without_changing_values():
    fmt = MaxRange(4, PER_CHANNEL, 16)
    small, large = normal(1, 2, 16, 8), normal(1, 2, 32, 8, seed=1) * 1e6
    joined = join([fmt.quantize(small), fmt.quantize(large)])
    assert joined.scales.dtype == torch.float32 and joined.tokens == 48
    parts = [fmt.dequantize(fmt.quantize(x), torch.float32) for x in (small, large)]
    assert torch.equal(fmt.dequantize(joined, torch.float32), torch.cat(parts, 2))


@pytest.mark.parametrize("fmt", FORMATS, ids=name)
def test_a_nan_stays_in_its_group(fmt):
    x = normal(1, 2, 16, 32)
    back = fmt.dequantize(fmt.quantize(x), torch.float32)
    x[0, 1, 3, 5] = torch.nan
    broken = fmt.dequantize(fmt.quantize(x), torch.float32)
    inside = torch.zeros_like(x, dtype=torch.bool)
    inside[(0, 1, 3, slice(0, 16)) if fmt.grouping == PER_TOKEN else (0, 1, slice(None), 5)] = True
    assert broken[inside].isnan().all()
    assert torch.equal(broken[~inside], back[~inside])


def test_empty_blocks():
    for fmt in FORMATS:
        q = fmt.quantize(torch.empty(2, 3, 0, 24))
        assert fmt.dequantize(q, torch.float32).shape == (2, 3, 0, 24)
        assert q.nbytes() == 0


def test_axes_of_the_two_backends():
    assert grouping("hqq", 1) == grouping("quanto", 0) == PER_TOKEN
    assert grouping("hqq", 0) == grouping("quanto", -1) == PER_CHANNEL
    with pytest.raises(ValueError, match=r"quanto are 0 \(per token\), -1 \(per channel\), got 1"):
        grouping("quanto", 1)
    with pytest.raises(ValueError, match="hqq, quanto, got 'fp8'"):
        grouping("fp8", 0)


def test_make_format_and_its_refusals():
    assert make_format("quanto", 2, PER_TOKEN, 32) == MaxRange(2, PER_TOKEN, 32)
    assert make_format("hqq") == HalfQuadratic(4, PER_CHANNEL, 64)
    for call, words in [
        (lambda: make_format("int4"), "hqq, quanto, fp8, got 'int4'"),
        (lambda: make_format("quanto", 3), "quanto keeps 2, 4 bits a value, got 3"),
        (lambda: make_format("hqq", 4.0), "got 4.0"),
        (lambda: make_format("hqq", 5), "hqq keeps 1, 2, 3, 4, 8 bits a value, got 5"),
        (lambda: make_format("hqq", grouping="per head"), "got 'per head'"),
        (lambda: make_format("hqq", group_size=0), "group size 0"),
        (lambda: make_format("fp8", bits=8, group_size=64), "no options, got bits, group_size"),
        (lambda: MaxRange(4, PER_CHANNEL, 64).quantize(torch.zeros(1, 1, 65, 8)), "multiple of 64 tokens, got 65"),
        (lambda: MaxRange(4).quantize(torch.zeros(64, 8)), r"got shape \(64, 8\)"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()
