"""float8_e4m3fn with one scale for each block: nothing is clipped, flushed or turned into nan by what came before."""

import pytest
import torch

from kvcourse.quantize import Fp8, join

FMT = Fp8()


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def read(*blocks):
    return FMT.dequantize(join([FMT.quantize(block) for block in blocks]), torch.float32)


def assert_close(back, x):
    """The bound of the docstring, block by block: relative 2 ** -4, below the normal range 2 ** -10 of the scale."""
    largest = x.abs().amax((1, 2, 3), keepdim=True)
    scale = largest / 224  # never more: the scale is the smallest power of two that brings all under 448
    assert ((back - x).abs() <= torch.maximum(x.abs() * 2**-4, scale * 2**-10)).all()


@pytest.mark.parametrize("size", [1e-34, 1e-30, 1e-8, 1e-3, 0.7, 1.0, 447.9, 448, 449, 1e5, 1e30])
def test_relative_error_at_any_size(size):
    x = normal(2, 3, 20, 16) * size
    back = read(x)
    assert back.isfinite().all()
    assert_close(back, x)


@pytest.mark.parametrize("first", [0.0, 1e-6, 1e-30])
def test_tiny_or_zero_first_token_then_large_ones(first):
    x = [
        torch.full((1, 2, 1, 8), first),
        normal(1, 2, 5, 8),
        normal(1, 2, 1, 8, seed=1) * 1e4,
        normal(1, 2, 2, 8) / 1e5,
    ]
    back = read(*x).split([1, 5, 1, 2], dim=2)
    for ours, true in zip(back, x, strict=True):
        assert_close(ours, true)
    assert torch.equal(back[0] == 0, x[0] == 0)


def test_largest_value_is_never_clipped():
    sizes = torch.linspace(1, 2, 997) * 448
    for size in sizes.tolist() + [448.0, 464.0, 480.0, 896.0, 1792.0, 3.0e38]:
        x = torch.tensor([size, -size]).view(1, 1, 1, 2)
        back = read(x)
        assert ((back - x).abs() <= x.abs() * 2**-4).all()


def test_a_value_reads_the_same_whichever_block_it_came_in():
    x = normal(2, 3, 33, 16)
    x = torch.where(x.abs() < 1e-3, 1e-3, x)  # within 1 / 14,336 of the largest
    whole = read(x)
    assert torch.equal(whole, read(*x.split(1, dim=2)))
    assert torch.equal(whole, read(*x.split([7, 20, 6], dim=2)))


def test_one_scale_for_each_row_of_each_block_and_rows_are_independent():
    x = normal(2, 3, 5, 16) * torch.tensor([1.0, 1e6]).view(2, 1, 1, 1)
    q = FMT.quantize(x)
    assert q.scales.shape == (2, 1, 5, 1) and q.scales.dtype == torch.int8
    assert all(len(row.unique()) == 1 for row in q.scales)
    for row in range(2):
        alone = FMT.quantize(x[row : row + 1])
        assert torch.equal(alone.codes[0], q.codes[row]) and torch.equal(alone.scales[0], q.scales[row])


def test_codes_of_earlier_blocks_are_never_rescaled():
    first, second = FMT.quantize(normal(1, 2, 3, 8)), FMT.quantize(normal(1, 2, 4, 8) * 1e6)
    joined = join([first, second])
    assert torch.equal(joined.codes[:, :, :3], first.codes) and torch.equal(joined.scales[:, :, :3], first.scales)


def test_codes_are_those_of_float8_itself_when_the_scale_is_one():
    x = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    x = x[x.isfinite()].view(1, 1, 1, -1)  # every number of the format, 448 the largest
    q = FMT.quantize(x)
    assert not q.scales.any()
    assert torch.equal(q.codes, x.to(torch.float8_e4m3fn).view(torch.uint8))
    assert torch.equal(FMT.dequantize(q, torch.float32), x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtype_comes_back(dtype):
    x = normal(1, 2, 6, 8).to(dtype)
    back = FMT.dequantize(FMT.quantize(x), dtype)
    assert back.dtype == dtype
    assert_close(back.float(), x.float())
    largest = torch.full((1, 1, 1, 2), torch.finfo(dtype).max if dtype != torch.float64 else 3e38, dtype=dtype)
    back = FMT.dequantize(FMT.quantize(largest), dtype)  # rounds up, past the largest number, were it not held back
    assert back.isfinite().all() and (back >= largest * 0.93).all()


def test_every_exponent_is_exact():
    for exponent in range(-126, 120):
        x = torch.tensor([2.0**exponent, 1.5 * 2.0**exponent]).view(1, 1, 1, 2)
        assert torch.equal(read(x), x)


def test_nan_stays_where_it_is():
    x = normal(2, 2, 4, 8) * 1e6
    clean = read(x)
    x[1, 0, 2, 3] = torch.nan
    back = read(x)
    assert back[1, 0, 2, 3].isnan() and back.isnan().sum() == 1
    assert torch.equal(back.nan_to_num(0), torch.where(x.isnan(), 0.0, clean))


def test_bytes_cut_and_reorder():
    x = normal(3, 2, 10, 8)
    q = FMT.quantize(x)
    assert q.nbytes() == FMT.nbytes(3, 2, 10, 8) == 3 * 10 * (2 * 8 + 1)
    assert FMT.quantize(normal(1, 3, 100, 64)).nbytes() <= 1.006 * 3 * 100 * 64
    back = FMT.dequantize(q, torch.float32)
    cut = q.first(7, FMT.metadata_rows(7))
    assert torch.equal(FMT.dequantize(cut, torch.float32), back[:, :, :7])
    rows = torch.tensor([2, 2, 0])
    assert torch.equal(FMT.dequantize(q.map(lambda t: t.index_select(0, rows)), torch.float32), back[rows])
    assert FMT.dequantize(FMT.quantize(x[:, :, :0]), torch.float32).shape == (3, 2, 0, 8)
    with pytest.raises(ValueError, match=r"got shape \(2, 10, 8\)"):
        FMT.quantize(x[0])
