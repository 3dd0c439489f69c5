"""Bit packing: any count, honest bytes, and the layout that the docstring draws."""

import pytest
import torch

from kvcourse.quantize import BITS, pack, packed_bytes, unpack


@pytest.mark.parametrize("bits", BITS)
def test_round_trip_for_every_count(bits):
    generator = torch.Generator().manual_seed(bits)
    for count in range(1, 71):
        codes = torch.randint(0, 2**bits, (2, 3, count), generator=generator, dtype=torch.uint8)
        packed = pack(codes, bits)
        assert packed.dtype == torch.uint8
        assert packed.shape == (2, 3, -(-count * bits // 8)) == (2, 3, packed_bytes(count, bits))
        assert packed.untyped_storage().nbytes() == packed.nbytes  # no larger buffer behind a view
        assert torch.equal(unpack(packed, bits, count), codes)


@pytest.mark.parametrize("bits", BITS)
def test_layout_is_a_stream_of_bits_lowest_first(bits):
    codes = torch.randint(0, 2**bits, (37,), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    stream = sum(code << (i * bits) for i, code in enumerate(codes.tolist()))
    expected = stream.to_bytes(packed_bytes(37, bits), "little")
    assert bytes(pack(codes, bits).tolist()) == expected


def test_eight_codes_of_three_bits_take_three_bytes():
    assert [packed_bytes(count, 3) for count in (1, 2, 3, 8, 9, 64)] == [1, 1, 2, 3, 4, 24]
    assert [packed_bytes(64, bits) for bits in BITS] == [8, 16, 24, 32, 64]


def test_every_byte_unpacks_alike_whatever_lies_around_it():
    everything = torch.arange(256, dtype=torch.uint8).unsqueeze(1)
    assert torch.equal(unpack(everything, 4, 2), torch.stack([everything[:, 0] % 16, everything[:, 0] // 16], 1))
    assert torch.equal(unpack(everything, 8, 1), everything)


def test_non_contiguous_and_empty_input():
    codes = torch.randint(0, 8, (5, 10, 4), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    assert torch.equal(unpack(pack(codes.transpose(1, 2), 3), 3, 10), codes.transpose(1, 2))
    assert pack(codes[:0], 3).shape == (0, 10, 2)
    assert unpack(pack(codes[..., :0], 3), 3, 0).shape == (5, 10, 0)


def test_packed_eight_bits_are_a_copy():
    codes = torch.tensor([1, 2, 3], dtype=torch.uint8)
    packed = pack(codes, 8)
    codes.zero_()
    assert packed.tolist() == [1, 2, 3]


def test_refusals():
    codes = torch.tensor([0, 15, 16], dtype=torch.uint8)
    with pytest.raises(ValueError, match="4 bits is at most 15, got 16"):
        pack(codes, 4)
    with pytest.raises(ValueError, match="1, 2, 3, 4, 8 bits, got 5"):
        pack(codes, 5)
    with pytest.raises(ValueError, match="torch.float32"):
        pack(codes.float(), 8)
    with pytest.raises(ValueError, match="3 codes of 4 bits take 2 bytes, got 3"):
        unpack(codes, 4, 3)
