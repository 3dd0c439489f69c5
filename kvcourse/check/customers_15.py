"""Task 15b: six customers, a cache for each, and a reason with a number in it."""

from dataclasses import dataclass, field

from .digits_15 import numbers_in, with_units
from .task import Unfinished, Wrong, task
from .words import words

KINDS = ["dynamic", "static", "quantized", "offloaded", "blocks"]
OTHER_WORDS = {"fp8": "quantized", "hqq": "quantized", "4 bits": "quantized", "offloading": "offloaded"}
OTHER_WORDS |= {"paged": "blocks", "block": "blocks", "quantised": "quantized", "offload": "offloaded"}


@dataclass(frozen=True)
class Customer:
    """What somebody needs and asks, and what may be said to them."""

    says: str
    asks: str
    kinds: tuple = field(repr=False)
    numbers: tuple = field(repr=False)  # any of these answers the question
    exact: bool = field(repr=False)  # it is a count; a size may be rounded
    how: str = field(repr=False)  # where the number comes from
    against: dict = field(repr=False)  # a kind -> what speaks against it here
    beside: dict = field(repr=False)  # a number that answers something else -> what it is

    def __str__(self):
        return f"{self.says}\n   {self.asks}"


GIB = 2**30
TOO_LARGE = "full precision does not fit: 12.2 GiB of cache and 15 GiB of weights are more than 24"
WITH_WEIGHTS = "that is with the weights; they ask for the cache alone"
LEFT = "that is what is left for a cache; they ask what it needs"
BLOCKS = "that is what a request wastes in blocks; they ask about the static cache"
IN_GB = "that is in GB, 10**9 bytes each; a GiB has 2**30"
FEWER = "that is what it takes in fewer bits; they ask for full precision"
CUSTOMERS = {
    "a": Customer(
        "Chats on a phone, about 100 tokens each, one at a time. A colleague says: quantize to 4 bits (hqq, default"
        " options), that is a quarter of the bytes.",
        "How many of the 100 tokens would be kept in 4 bits?",
        ("dynamic",),
        (0, 128),
        True,
        "lesson 15, its line on lesson 12: how many of the newest tokens stay exact?",
        {
            "quantized": "a short chat gains nothing: the last 128 tokens stay in full precision, and there are 100",
            "static": "a chat of unknown length would reserve slots that it never fills; 100 tokens grow cheaply",
            "offloaded": "a phone's memory is one memory, and a cache of 100 tokens is small: nothing to move",
            "blocks": "blocks pay where many requests share a memory; here is one at a time",
        },
        {},
    ),
    "b": Customer(
        "A GPU of 80 GiB with Llama-3.1-8B (15 GiB of weights, 131,072 bytes of cache a token), 6 conversations of "
        "16,384 tokens at once. They heard that offloading is what experts use, and want it for speed.",
        "How many GiB does their cache need?",
        ("dynamic",),
        (12, 12 * GIB, 12 * 1024),
        False,
        "bytes a token times tokens times conversations; compare with what is left beside the weights",
        {
            "offloaded": "offloading is for space, not for speed: it moves every layer over the link at each step. "
            "Their cache fits beside the weights",
            "quantized": "it fits in full precision; fewer bits would cost digits and time for nothing",
            "static": "nothing was said of a compiled step, and conversations rarely have all the same length",
            "blocks": "six conversations fit as they are, with room to spare; start simple",
        },
        {2: "that is one conversation; there are 6", 27: WITH_WEIGHTS, 65: LEFT, 53: LEFT},
    ),
    "c": Customer(
        "A law firm: Llama-3.1-8B on a GPU of 24 GiB (15 GiB of weights, 131,072 bytes of cache a token), one file "
        "of 131,072 tokens, overnight. It has to be exact to the last digit.",
        "How many GiB is the cache?",
        ("offloaded",),
        (16, 16 * GIB, 16 * 1024),
        False,
        "bytes a token times tokens; compare with what is left of the GPU",
        {
            "dynamic": "it does not fit: 16 GiB of cache and 15 GiB of weights are more than 24",
            "static": "made at once or grown, 16 GiB of cache and 15 GiB of weights are more than 24",
            "quantized": "it would fit, but it has to be exact, and quantized tokens lose digits",
            "blocks": "blocks waste less, but 16 GiB of keys and values stay 16 GiB",
        },
        {31: WITH_WEIGHTS, 9: LEFT, 1: "that is what lies on the device once it is offloaded; they ask for all of it"},
    ),
    "d": Customer(
        "A robot: one request after the other, each with 1,000 tokens read and 1,000 written, never more. The step "
        "of one token is compiled, and a pause for compiling in the middle is not allowed.",
        "How many graphs must the compiler make for that step?",
        ("static",),
        (1,),
        True,
        "a graph for each shape that the step meets; how many shapes are there if all slots are made at the start?",
        {
            "dynamic": "a growing cache compiles the step a second time when its shape has changed; that is the pause",
            "quantized": "its parts grow as well, so the compiled step meets new shapes",
            "offloaded": "nothing was said of too little memory, and moving layers takes time",
            "blocks": "all requests are equally long and come one by one: one piece of memory fits all of them",
        },
        {
            2_000: "those are the slots; they ask for graphs",
            2: "a second graph is for a second shape; does the step of one token meet one?",
        },
    ),
    "e": Customer(
        "A server for everybody: many requests at once, some of 20 tokens, some of 4,000, nobody knows before. The "
        "plan is a static cache of 4,096 slots for each.",
        "How many slots does a request of 256 tokens leave empty?",
        ("blocks",),
        (3_840, 93.75, 93.8, 94, 0.9375, 0.94),
        True,
        "slots minus tokens",
        {
            "dynamic": "it reserves no slots, but its rows go in step: short requests are padded to the longest, and "
            "none can come or go before the others. A server for many hands out blocks",
            "static": "mixed lengths: each request reserves 4,096 slots and most of them stay empty",
            "quantized": "fewer bits do not fill empty slots; the trouble is what is reserved, not its size",
            "offloaded": "empty slots on the host are still empty, and each step would move them",
        },
        {15: BLOCKS, 16: BLOCKS},
    ),
    "f": Customer(
        "A reader for novels: Llama-3.1-8B on a GPU of 24 GiB (15 GiB of weights, 131,072 bytes of cache a token), "
        "100,000 tokens, answers while a human waits. Another word now and then is fine.",
        "How many GiB would the cache take in full precision?",
        ("quantized",),
        (12.2, 131_072 * 100_000, 12_500),
        False,
        "bytes a token times tokens, against what is left",
        {
            "dynamic": TOO_LARGE,
            "static": TOO_LARGE,
            "blocks": TOO_LARGE + "; blocks do not change that",
            "offloaded": "it would fit, but a human waits: each step would move gigabytes over the link, and exactness "
            "is not asked for",
        },
        {27.2: WITH_WEIGHTS, 9: LEFT, 6.1: FEWER, 3.4: FEWER, 4.5: FEWER},
    ),
}


def known(number, customer, unit=""):
    """Whether a number answers the customer's question; a size within 2 percent, a count exactly."""
    right = [*customer.numbers, *([billions(customer)] if unit == "gb" else [])]
    return any(near(number, one, 0 if customer.exact else 0.02) for one in right)


def near(number, right, share=0.02):
    return right is not None and abs(number - right) <= share * right


def billions(customer):
    """A size in GB, 10**9 bytes; None where the answer is a count."""
    return next((number / 1e9 for number in customer.numbers if number >= GIB), None)


def own_numbers(reason, customer):
    """Numbers of a reason that the customer has not said: (all that it may mean, "gb" or "") of each."""
    said = numbers_in(f"{customer.says} {customer.asks}")
    return [found for found in with_units(reason) if not set(found[0]) & set(said)]


def beside(found, customer):
    """What the numbers of a reason are, if they answer another question; None where that is not known."""
    for meanings, _ in found:
        for number in meanings:
            if number in customer.beside:
                return customer.beside[number]
            if near(number, billions(customer)):
                return IN_GB
    return None


def kind_of(word):
    """A word of KINDS for what somebody calls a cache; None where it is none of them."""
    first = word.lower().partition("(")[0]  # "quantized (fp8)"
    plain = " ".join(first.split()).removesuffix("cache").strip()
    plain = OTHER_WORDS.get(plain, plain)
    return plain if plain in KINDS else None


def pair(letter, said):
    """(kind, reason) of an answer; Unfinished or Wrong where it isn't one."""
    caches = f"caches: {', '.join(KINDS)}"
    expected = f'a cache and a reason, as in ("{KINDS[0]}", "7 GiB are needed, 65 are free"); {caches}'
    problem = {"tested": f"customer {letter}", "expected": expected, "came": words(said)}
    if not isinstance(said, (tuple, list)) or len(said) != 2:
        raise Wrong(**problem, likely="two things belong in the brackets, with a comma between them")
    if ... in said:
        raise Unfinished(f"a cache and a reason for {letter}; {caches}")
    if not isinstance(said[0], str) or not isinstance(said[1], str):
        raise Wrong(**problem, likely="both are texts in quotes; the number stands inside the sentence")
    kind = kind_of(said[0])
    if kind is None:
        turned = "the cache comes first, the reason second" if kind_of(said[1]) else f"choose one of the {caches}"
        raise Wrong(**problem, likely=turned)
    return kind, said[1]


@task("15b", "the cache that you advise each of six customers, and the number in your reason")
def task_15b(advice):
    """`advice`: {"a": (a word of KINDS, a sentence with a number), ...} for each of CUSTOMERS."""
    if not isinstance(advice, dict):
        example = f'{{"a": ("{KINDS[0]}", "7 GiB are needed, 65 are free"), ...}}'
        raise Wrong(expected=f"a dict such as {example}", came=words(advice))
    missing = [letter for letter in CUSTOMERS if advice.get(letter, ...) is ...]
    if missing:
        raise Unfinished(f"a cache and a reason for {', '.join(missing)}; caches: {', '.join(KINDS)}")
    for letter, customer in CUSTOMERS.items():
        kind, reason = pair(letter, advice[letter])
        if kind not in customer.kinds:
            raise Wrong(tested=f"customer {letter}, {kind!r}", came=reason, likely=customer.against[kind])
        found = own_numbers(reason, customer)
        if any(known(number, customer, unit) for meanings, unit in found for number in meanings):
            continue
        how = beside(found, customer) or customer.how
        mine = f"your numbers: {', '.join(f'{meanings[0]:,g}' for meanings, _ in found)}" if found else ""
        raise Wrong(
            tested=f"customer {letter}, {kind!r}",
            expected=f"a number in digits that answers the question: {customer.asks}",
            came=f"{reason!r}; {mine or 'with no number of your own in it'}",
            likely=f"the cache is a good choice, the reason does not show it yet: {how}",
        )
    return {"advised": "a cache that fits each of the six, and a number that says why"}
