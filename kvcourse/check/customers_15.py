"""Task 15b: six customers, a cache for each, and a reason with a number in it."""

import re
from dataclasses import dataclass, field

from .task import Unfinished, Wrong, task
from .words import words

KINDS = ["dynamic", "static", "quantized", "offloaded", "blocks"]


@dataclass(frozen=True)
class Customer:
    """What somebody needs, and what may be said to them."""

    says: str
    kinds: tuple = field(repr=False)
    numbers: tuple = field(repr=False)  # any of these shows that it was worked out
    how: str = field(repr=False)  # where such a number comes from
    against: dict = field(repr=False)  # a kind -> what speaks against it here

    def __str__(self):
        return self.says


GIB = 2**30
TOO_LARGE = "full precision does not fit: 12.2 GiB of cache and 15 GiB of weights are more than 24"
CUSTOMERS = {
    "a": Customer(
        "Chats on a phone, about 100 tokens each, one at a time. A colleague says: quantize to 4 bits (hqq, default "
        "options), that is a quarter of the bytes. How many of the 100 tokens would be kept in 4 bits?",
        ("dynamic",),
        (0, 128),
        "lesson 12: how many tokens stay in full precision before the first one is quantized?",
        {
            "quantized": "a short chat gains nothing: the last 128 tokens stay in full precision, and there are 100",
            "static": "a chat of unknown length would reserve slots that it never fills; 100 tokens grow cheaply",
            "offloaded": "a phone's memory is one memory, and a cache of 100 tokens is small: nothing to move",
            "blocks": "blocks pay where many requests share a memory; here is one at a time",
        },
    ),
    "b": Customer(
        "A GPU of 80 GiB with Llama-3.1-8B (15 GiB of weights, 131,072 bytes of cache a token), 6 conversations of "
        "16,384 tokens at once. They heard that offloading is what experts use, and want it for speed. How many GiB "
        "does their cache need?",
        ("dynamic",),
        (12, 12.9, 12 * GIB, 2, 27, 53, 12 * 1024, 98_304),
        "bytes a token times tokens times conversations; compare with what is left beside the weights",
        {
            "offloaded": "offloading is for space, not for speed: it moves every layer over the link at each step. "
            "Their cache fits beside the weights",
            "quantized": "it fits in full precision; fewer bits would cost digits and time for nothing",
            "static": "nothing was said of a compiled step, and conversations rarely have all the same length",
            "blocks": "six conversations fit as they are, with room to spare; start simple",
        },
    ),
    "c": Customer(
        "A law firm: Llama-3.1-8B on a GPU of 24 GiB (15 GiB of weights, 131,072 bytes of cache a token), one file of "
        "131,072 tokens, overnight. It has to be exact to the last digit. How many GiB is the cache?",
        ("offloaded",),
        (16, 17.2, 16 * GIB, 31, 1, 9, 16 * 1024),
        "bytes a token times tokens; compare with what is left of the GPU",
        {
            "dynamic": "it does not fit: 16 GiB of cache and 15 GiB of weights are more than 24",
            "static": "made at once or grown, 16 GiB of cache and 15 GiB of weights are more than 24",
            "quantized": "it would fit, but it has to be exact, and quantized tokens lose digits",
            "blocks": "blocks waste less, but 16 GiB of keys and values stay 16 GiB",
        },
    ),
    "d": Customer(
        "A robot: one request after the other, each with 1,000 tokens read and 1,000 written, never more. The step of "
        "one token is compiled, and a pause for compiling in the middle is not allowed. How many graphs must the "
        "compiler make for that step?",
        ("static",),
        (1, 2_000),
        "lesson 08: graphs counted while a fixed-size cache fills",
        {
            "dynamic": "a growing cache compiles the step a second time when its shape has changed; that is the pause",
            "quantized": "its parts grow as well, so the compiled step meets new shapes",
            "offloaded": "nothing was said of too little memory, and moving layers takes time",
            "blocks": "all requests are equally long and come one by one: one piece of memory fits all of them",
        },
    ),
    "e": Customer(
        "A server for everybody: many requests at once, some of 20 tokens, some of 4,000, nobody knows before. The "
        "plan is a static cache of 4,096 slots for each. How many slots does a request of 256 tokens leave empty?",
        ("blocks", "dynamic"),
        (3_840, 15, 16, 0.9375, 93.75, 6.25, 94),
        "slots minus tokens; and lesson 15: what a request wastes at most in its last block",
        {
            "static": "mixed lengths: each request reserves 4,096 slots and most of them stay empty",
            "quantized": "fewer bits do not fill empty slots; the trouble is what is reserved, not its size",
            "offloaded": "empty slots on the host are still empty, and each step would move them",
        },
    ),
    "f": Customer(
        "A reader for novels: Llama-3.1-8B on a GPU of 24 GiB (15 GiB of weights, 131,072 bytes of cache a token), "
        "100,000 tokens, answers while a human waits. Another word now and then is fine. How many GiB would the cache "
        "take in full precision?",
        ("quantized",),
        (12.2, 13.1, 131_072 * 100_000, 27.2, 6.1, 3.4, 3.5, 4.5, 0.28),
        "bytes a token times tokens, against what is left; or the bits that a number takes with its scales",
        {
            "dynamic": TOO_LARGE,
            "static": TOO_LARGE,
            "blocks": TOO_LARGE + "; blocks do not change that",
            "offloaded": "it would fit, but a human waits: each step would move gigabytes over the link, and exactness "
            "is not asked for",
        },
    ),
}


def numbers_in(sentence):
    """Numbers written in digits, "1,000" as one; not those inside a word such as bf16."""
    return [float(found.replace(",", "")) for found in re.findall(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?", sentence)]


def known(number, customer):
    """Whether a number is one that shows the point, within 2 percent."""
    return any(abs(number - right) <= 0.02 * right for right in customer.numbers)


@task("15b", "the cache that you advise each of six customers, and the number in your reason")
def task_15b(advice):
    """`advice`: {"a": (a word of KINDS, a sentence with a number), ...} for each of CUSTOMERS."""
    example = f'("{KINDS[0]}", "7 GiB are needed, 65 are free")'
    if not isinstance(advice, dict):
        raise Wrong(expected=f'a dict such as {{"a": {example}, ...}}', came=words(advice))
    missing = [letter for letter in CUSTOMERS if advice.get(letter, ...) is ...]
    if missing:
        raise Unfinished(f"a cache and a reason for {', '.join(missing)}; caches: {', '.join(KINDS)}")
    for letter, customer in CUSTOMERS.items():
        said = advice[letter]
        if not (isinstance(said, (tuple, list)) and len(said) == 2 and said[0] in KINDS and isinstance(said[1], str)):
            expected = f"a cache and a reason, as in {example}; caches: {', '.join(KINDS)}"
            raise Wrong(tested=f"customer {letter}", expected=expected, came=words(said))
        kind, reason = said
        if kind not in customer.kinds:
            raise Wrong(tested=f"customer {letter}, {kind!r}", came=reason, likely=customer.against[kind])
        given = numbers_in(customer.says)
        found = [number for number in numbers_in(reason) if number not in given]
        if not any(known(number, customer) for number in found):
            came = f"{reason!r}" + ("" if found else ", with no number of your own in it")
            expected = "a number in digits that answers the customer's question"
            likely = f"the cache is a good choice, the reason does not show it yet: {customer.how}"
            raise Wrong(tested=f"customer {letter}, {kind!r}", expected=expected, came=came, likely=likely)
    return {"advised": "a cache that fits each of the six, and a number that says why"}
