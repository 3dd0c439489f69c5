"""Task 11b: codes of 4 and of 3 bits, laid end to end in bytes."""

import torch

from ..quantize import packing
from .runner import Stopped
from .task import Case, Mistake, compare, task
from .withheld import run_without
from .words import Phrase, words

OWN = [(packing, "_check_bits")]  # pack and unpack both need it


def packs(what, bits, numbers):
    """A case: the bytes that codes become, and the codes that the right bytes become."""

    def play(answer, seen):
        codes = torch.tensor(numbers, dtype=torch.uint8)
        packed = called("pack_codes", seen, answer[0], codes, bits)
        if packed is None:
            return
        seen["bytes taken"] = packed.nbytes
        seen["bytes, bit by bit"] = bits_of(packed)
        read = called("unpack_codes", seen, answer[1], pack(codes, bits), bits, len(numbers))
        if read is not None:
            seen["codes that unpack_codes reads from the right bytes"] = tuple(read.tolist())

    return Case(what, play, explain)


BYTES = Phrase("a tensor of type torch.uint8 with one axis")
WRITTEN = "numbers handed over that were written over"


def called(name, seen, function, given, *numbers):
    """What one of the two functions returns, if it is bytes; noted in `seen` in any case."""
    mine, label = given.clone(), f"what {name} returned"
    try:
        result = run_without(OWN, function, function, mine, *numbers)
    except Stopped as stop:
        if stop.kind != "error" or "IndexError" not in stop.what:
            raise
        seen[label] = Phrase(str(stop))
        return None
    seen[label] = kind(result)
    if seen[label] != BYTES:
        return None
    seen[f"{WRITTEN} by {name}"] = int((mine != given).sum())
    return result


def kind(given):
    """What sort of object this is, in words; None for None."""
    if given is None:
        return None
    if not isinstance(given, torch.Tensor):
        return Phrase(words(given))
    if given.dtype != torch.uint8:
        return Phrase(f"a tensor of type {given.dtype}")
    return BYTES if given.ndim == 1 else Phrase(words(given))


def explain(label, expected, came):
    if label.startswith(WRITTEN):
        return "your function wrote into the caller's tensor: make a new one for the result"
    if "IndexError" in str(came):
        return (
            "there is no such byte. n codes take n * bits / 8 bytes, rounded up; divmod(i * bits, 8) gives first the "
            "byte, then the bit in it; and a code goes on in the next byte only where shift + bits > 8"
        )
    if label.startswith("what") and came is not None:
        return f"{label.split()[1]} returns a tensor of type torch.uint8, (n,)"
    return None


def bits_of(packed):
    return Phrase(" ".join(f"{byte:08b}" for byte in packed.flatten().tolist()))


CASES = [
    packs("4 bits, two codes: 5 = 0101 and 12 = 1100", 4, [5, 12]),
    packs("4 bits, five codes, the last one alone in its byte", 4, [3, 10, 15, 0, 9]),
    packs("3 bits, two codes: 5 = 101 and 6 = 110", 3, [5, 6]),
    packs("3 bits, three codes: 5, 2 and 7; the last one lies across two bytes", 3, [5, 2, 7]),
    packs("3 bits, eight codes, which fill three bytes", 3, [5, 2, 7, 0, 6, 1, 3, 4]),
    packs("3 bits, eleven codes", 3, [7, 1, 5, 4, 2, 6, 3, 7, 5, 0, 6]),
]


def pack(codes, bits, size=lambda bits: -(-bits // 8), width=None, carry=True, high_first=False):
    """The right answer, with what goes wrong as parameters."""
    packed, width = [0] * size(len(codes) * (width or bits)), width or bits
    for number, code in enumerate(codes.tolist()):
        for bit in range(bits):
            byte, place = divmod(number * width + bit, 8)
            lost = not carry and byte > number * width // 8
            if not lost and byte < len(packed):
                value = code >> (bits - 1 - bit) & 1 if high_first else code >> bit & 1
                packed[byte] |= value << (7 - place if high_first else place)
    return torch.tensor(packed, dtype=torch.uint8)


def unpack(packed, bits, count, carry=True, mask=True, every=False, high_first=False):
    """The right answer to the way back."""
    if not high_first:
        stream = [byte >> place & 1 for byte in packed.tolist() for place in range(8)]
    else:
        stream = [byte >> (7 - place) & 1 for byte in packed.tolist() for place in range(8)]
    codes = []
    for number in range(len(stream) // bits if every else count):
        start = number * bits
        end = start + bits if carry else min(start + bits, (start // 8 + 1) * 8)
        end = end if mask else (start // 8 + 1) * 8
        ones = stream[start:end][::-1] if high_first else stream[start:end]
        codes.append(sum(one << bit for bit, one in enumerate(ones)))
    return torch.tensor(codes, dtype=torch.uint8)


def packing_but(**lines):
    return (lambda codes, bits: pack(codes, bits, **lines)), unpack


def unpacking_but(**lines):
    return pack, lambda packed, bits, count: unpack(packed, bits, count, **lines)


def one_each(codes, bits):
    return codes.clone()


def overwrites(codes, bits):
    """Writes a byte anew for each code that begins in it, or ends in it."""
    packed = torch.zeros(-(-len(codes) * bits // 8), dtype=torch.uint8)
    for number, code in enumerate(codes.tolist()):
        byte, shift = divmod(number * bits, 8)
        packed[byte] = code << shift & 255
        if shift + bits > 8:
            packed[byte + 1] = code >> 8 - shift
    return packed


def whole_codes(codes, bits):
    """As many codes in each byte as fit whole."""
    room = 8 // bits
    packed = [0] * -(-len(codes) // room)
    for number, code in enumerate(codes.tolist()):
        packed[number // room] |= code << number % room * bits
    return torch.tensor(packed, dtype=torch.uint8)


def from_whole_codes(packed, bits, count):
    room, read = 8 // bits, packed.tolist() + [0] * count
    codes = [read[number // room] >> number % room * bits & 2**bits - 1 for number in range(count)]
    return torch.tensor(codes, dtype=torch.uint8)


def float_bytes(codes, bits):
    packed = torch.zeros(-(-len(codes) * bits // 8))
    packed[0] |= codes.tolist()[0]
    return packed


SWAPPED = "the halves are swapped: the first code belongs into the low bits of byte 0, on the right as it is written"
MISTAKES = [
    Mistake(SWAPPED, packing_but(high_first=True)),
    Mistake(
        "these are the right halves in swapped order: the first code is read from the low bits of byte 0",
        unpacking_but(high_first=True),
    ),
    Mistake(
        "the tail is lost: the codes that do not fill a byte need one too, so round the number of bytes up",
        packing_but(size=lambda bits: bits // 8),
    ),
    Mistake("nothing was packed: each code still has a byte of its own", (one_each, unpack)),
    Mistake(
        "a byte too many at the end; round up only where the bits do not fill a byte",
        packing_but(size=lambda bits: bits // 8 + 1),
    ),
    Mistake(
        "the upper bits of a code that lies across two bytes are lost: those pushed over the top of its first byte, "
        "code >> (8 - shift), belong into the low end of the next one",
        packing_but(carry=False),
    ),
    Mistake(
        "a byte forgot what stood in it: `|=` adds the bits of a code to a byte, `=` writes the byte anew",
        (overwrites, unpack),
    ),
    Mistake("these bytes are floats: torch.zeros(..., dtype=torch.uint8)", (float_bytes, unpack)),
    Mistake(
        "each code of 3 bits got the room of 4: let the next one begin at bit number * bits, across bytes",
        packing_but(width=4),
    ),
    Mistake(
        "two whole codes in each byte, and two of its bits unused: with 3 bits the third code begins in byte 0 and "
        "goes on in byte 1",
        (whole_codes, unpack),
    ),
    Mistake(
        "two whole codes were read from each byte: with 3 bits the third code begins in byte 0 and goes on in byte 1",
        (pack, from_whole_codes),
    ),
    Mistake(
        "a code across two bytes was read from the first one alone; the rest are the low bits of the next",
        unpacking_but(carry=False),
    ),
    Mistake(
        "the bits of the next code were read too: cut them off with & (2 ** bits - 1)",
        unpacking_but(carry=False, mask=False),
    ),
    Mistake("the padding was read as a code too: stop after `count` codes", unpacking_but(every=True)),
    Mistake("these are the bytes themselves; take the codes out of them", (pack, lambda packed, bits, count: packed)),
]


@task("11b", "pack_codes and unpack_codes, first with 4 bits, then with 3, for several counts of codes")
def task_11b(pack_codes, unpack_codes):
    """`pack_codes(codes, bits)` -> bytes, and `unpack_codes(packed, bits, count)` -> codes; all of them uint8."""
    compare((pack_codes, unpack_codes), (pack, unpack), CASES, MISTAKES)
    return {
        "4 bits": "5 codes in 3 bytes, bit for bit as expected, and back",
        "3 bits": "8 codes in 3 bytes and 11 codes in 5; no bit lies unused between two codes",
    }
