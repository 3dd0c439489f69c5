"""Bit packing: codes of 1, 2, 3, 4 or 8 bits, laid end to end in bytes.

The smallest thing a computer addresses is a byte, so a 4-bit code that is stored alone still takes 8 bits. Packing
lays the codes of the last dimension end to end, lowest bit first: code i takes the bits from `i * bits` up to
`(i + 1) * bits`, counted from the low end of byte 0.

    4 bits    byte 0 = 1111 0000                       the digit says which code a bit belongs to
    2 bits    byte 0 = 33 22 11 00
    3 bits    byte 0 = 22 111 000    byte 1 = 5 444 333 2    byte 2 = 777 666 55

Three bits do not divide eight: codes 2 and 5 lie across two bytes, and eight codes fill exactly three bytes. Nothing
is lost between codes (packing ten 3-bit codes into a 32-bit word, as is also done, loses two bits a word); only the
end of the last byte of a row is padded, with zeros.
"""

from math import gcd

import torch
from torch.nn.functional import pad

BITS = (1, 2, 3, 4, 8)
WIDE = {1: torch.int64, 2: torch.int32, 4: torch.int16}  # bits of a code -> an integer with a byte for each of a byte's


def packed_bytes(count, bits):
    """Bytes that `count` codes take: count * bits / 8, rounded up."""
    _check_bits(bits)
    return -(-count * bits // 8)


def pack(codes, bits):
    """Lay the codes of the last dimension end to end.

    codes: uint8 (..., n), each below 2 ** bits -> uint8 (..., packed_bytes(n, bits)), in memory of its own.
    ValueError for another number of bits, another dtype, or a code that does not fit.
    """
    _check_bits(bits)
    if codes.dtype != torch.uint8:
        raise ValueError(f"pack takes codes of dtype torch.uint8, got {codes.dtype}: call .to(torch.uint8) first")
    if codes.numel() and int(codes.max()) >= 2**bits:
        raise ValueError(f"a code of {bits} bits is at most {2**bits - 1}, got {codes.max().item()}")
    count = codes.shape[-1]
    lanes, width = _unit(bits)
    units = -(-count // lanes)
    codes = pad(codes, (0, units * lanes - count)).unflatten(-1, (units, lanes))
    packed = codes.new_zeros(*codes.shape[:-1], width)
    for lane in range(lanes):
        byte, shift = divmod(lane * bits, 8)
        packed[..., byte] |= codes[..., lane] << shift  # in uint8, bits pushed over the top are gone ...
        if shift + bits > 8:
            packed[..., byte + 1] |= codes[..., lane] >> (8 - shift)  # ... and begin the next byte
    return packed.flatten(-2)[..., : packed_bytes(count, bits)].contiguous()


def unpack(packed, bits, count):
    """The inverse of `pack`: uint8 (..., packed_bytes(count, bits)) -> uint8 (..., count).

    ValueError when the last dimension is not what `count` codes take.
    """
    expected = packed_bytes(count, bits)
    if packed.shape[-1] != expected:
        raise ValueError(f"{count} codes of {bits} bits take {expected} bytes, got {packed.shape[-1]}")
    if bits in WIDE:
        return _spread(packed, bits)[..., :count]
    lanes, width = _unit(bits)
    units = -(-count // lanes)
    packed = pad(packed, (0, units * width - expected)).unflatten(-1, (units, width))
    codes = packed.new_empty(*packed.shape[:-1], lanes)
    for lane in range(lanes):
        byte, shift = divmod(lane * bits, 8)
        code = packed[..., byte] >> shift
        if shift + bits > 8:
            code |= packed[..., byte + 1] << (8 - shift)
        codes[..., lane] = code & (2**bits - 1)
    return codes.flatten(-2)[..., :count]


def _spread(packed, bits):
    """Codes of which none lies across two bytes. Each byte becomes an integer with a byte for each of its codes, and
    what stands together is halved until every code has moved into a byte of its own:

        2 bits    000000 000000 000000 33221100  ->  00000000 00003322 00000000 00001100  ->  33 | 22 | 11 | 00

    Every step is one pass over memory that lies in order, several times faster than picking each code from its place.
    The integer is then read byte by byte, lowest first, as all processors that PyTorch runs on store it.
    """
    wide = packed.to(WIDE[bits], memory_format=torch.contiguous_format)
    half = 4
    while half >= bits:
        apart = 8 * half // bits  # bits from the start of one half to the start of the next
        mask = sum((2**half - 1) << start for start in range(0, 8 * 8 // bits, apart))
        wide = (wide | (wide << (apart - half))).bitwise_and_(mask)
        half //= 2
    return wide.view(torch.uint8)


def _unit(bits):
    """The pattern that repeats: (codes, bytes) of the shortest run of codes that ends where a byte ends."""
    common = gcd(bits, 8)
    return 8 // common, bits // common


def _check_bits(bits):
    if bits not in BITS:
        raise ValueError(f"codes can have {', '.join(map(str, BITS))} bits, got {bits}")
