"""Task 15a: bytes of a cache before it is made. What is right is what zero-filled caches hold."""

from contextlib import contextmanager

from ..cache import Cache
from .plain import number
from .reserved import Reserved, reserved
from .runner import run
from .task import Case, Mistake, compare, task
from .zeros_15 import GROUP, RESIDUAL, Layer, measured

FULL, WIDE = Layer(2, 64), Layer(3, 128)
NARROW, BROAD, SHARED = Layer(2, 64, window=100), Layer(2, 64, window=200), Layer(2, 64, shared=True)
PLANS = [
    ("4 layers with 2 key heads of 64", (FULL,) * 4, 300, 1, "dynamic"),
    ("4 layers, every second one with a window of 100", (NARROW, FULL) * 2, 300, 1, "dynamic"),
    ("4 layers, the last two share keys with layers below", (FULL, FULL, SHARED, SHARED), 300, 2, "dynamic"),
    ("4 layers, slots for the whole text from the start", (FULL,) * 4, 500, 1, "static"),
    ("4 layers, every second one with a window of 100", (NARROW, FULL) * 2, 300, 1, "static"),
    ("4 layers, a short text", (FULL,) * 4, 100, 2, "4 bits"),
    ("4 layers, every second one with a window of 200", (BROAD, FULL) * 2, 300, 1, "4 bits"),
    ("2 layers with 3 key heads of 128", (WIDE,) * 2, 500, 1, "2 bits"),
    ("4 layers of one size", (FULL,) * 4, 300, 1, "offloaded"),
    ("4 layers of one size", (FULL,) * 4, 300, 2, "offloaded static"),
]


@contextmanager
def nothing_measured():
    """Inside, no cache says what it holds: the number is to be found before a cache is made."""
    original = Cache.nbytes

    def refuse(*args, **kwargs):
        raise Reserved("find the number by formula; this cache would have to be made and filled first")

    Cache.nbytes = refuse
    try:
        yield
    finally:
        Cache.nbytes = original


def asked(name, what, *given):
    """A case: what a function says of `given`, written down as `name`."""

    def play(answer, seen):
        with reserved(plan="planning"), nothing_measured():
            seen[name] = number(run(answer, answer, *given))

    return Case(what, play)


def kept(layer, context):
    """The right answer: tokens that a layer holds between two steps."""
    if layer.shared:
        return 0
    return context if layer.window is None else min(context, layer.window - 1)


def token_bytes(layer, bits, scales=4, part=2, per_byte=8):
    """The right answer: bytes of one token in one layer; the keywords make it wrong."""
    numbers = part * layer.kv_heads * layer.head_dim
    return numbers * bits / per_byte + (numbers / GROUP * scales if bits < 16 else 0)


def nbytes_with(kept, token_bytes):
    """`nbytes_of(layers, context, batch, kind)` as the solution shows it, made of these two functions."""

    def nbytes_of(layers, context, batch, kind):
        sizes, bits = [], {"4 bits": 4, "2 bits": 2}.get(kind, 16)
        for layer in layers:
            tokens = kept(layer, context)
            if "static" in kind and layer.window and 0 < tokens < context:
                tokens = 2 * layer.window
            old = max(tokens - RESIDUAL, 0) if bits < 16 and not layer.window else 0
            sizes.append((tokens - old) * token_bytes(layer, 16) + old * token_bytes(layer, bits))
        return batch * (2 * max(sizes) if "offloaded" in kind else sum(sizes))

    return nbytes_of


KEEPING = [
    asked("tokens", f"kept, a layer that looks at all: {FULL}, 300 tokens", FULL, 300),
    asked("tokens", f"kept, a layer with a window: {NARROW}, 300 tokens", NARROW, 300),
    asked("tokens", f"kept, a text shorter than the window: {NARROW}, 60 tokens", NARROW, 60),
    asked("tokens", f"kept, a text as long as the window: {NARROW}, 100 tokens", NARROW, 100),
    asked("tokens", f"kept, a shared layer: {SHARED}, 300 tokens", SHARED, 300),
]


def keeps(full=lambda context: context, window=lambda context, width: min(context, width - 1), shared=False):
    def wrong(layer, context):
        if layer.shared and not shared:
            return 0
        return full(context) if layer.window is None else window(context, layer.window)

    return wrong


KEEPING_MISTAKES = [
    Mistake(
        "a window of W counts the token that looks, so W - 1 are kept: min(context, W - 1)",
        keeps(window=lambda context, width: min(context, width)),
    ),
    Mistake(
        "the window was ignored: such a layer keeps min(context, W - 1) tokens",
        keeps(window=lambda context, _: context),
    ),
    Mistake(
        "a text shorter than the window fills it in part: min(context, W - 1)",
        keeps(window=lambda context, width: width - 1),
    ),
    Mistake(
        "a text shorter than the window fills it in part, and the token that looks is not kept: min(context, W - 1)",
        keeps(window=lambda context, width: width),
    ),
    Mistake(
        "a text shorter than the window is kept whole, and the token that looks is taken off the window alone: "
        "min(context, W - 1)",
        keeps(window=lambda context, width: min(context, width) - 1),
    ),
    Mistake("the larger of two was taken: min, not max", keeps(window=lambda context, width: max(context, width - 1))),
    Mistake(
        "the token that looks counts in a window only: without one all of the context stays", keeps(lambda n: n - 1)
    ),
    Mistake("a shared layer was counted: it reads another layer's keys and holds none", keeps(shared=True)),
]
WEIGHING = [
    asked("bytes", f"token_bytes, {bits} bits a number: {layer}", layer, bits)
    for layer in (FULL, WIDE)
    for bits in (16, 4, 2)
]


def weighs(**lines):
    return lambda layer, bits: token_bytes(layer, bits, **lines)


def divided_first(layer, bits):
    return token_bytes(layer, bits // 8 * 8) if bits >= 8 else token_bytes(layer, bits) - token_bytes(layer, bits, 0)


WEIGHING_MISTAKES = [
    Mistake("a token leaves a key and a value: the factor 2", weighs(part=1)),
    Mistake("a token leaves a key and a value: the factor 2", weighs(part=1, scales=8)),
    Mistake("bits were taken for bytes: a byte has 8 bits", weighs(per_byte=1)),
    Mistake("twice too much: a key and a value make one factor 2", weighs(part=4)),
    Mistake("bits // 8 is 0 for 4 bits: multiply by the numbers first, then divide", divided_first),
    Mistake("scales left out: each group of 64 numbers has a scale and an offset, 2 bytes each", weighs(scales=0)),
    Mistake("a group has two numbers beside its codes, a scale and an offset: 4 bytes", weighs(scales=2)),
    Mistake("a scale and an offset take 2 bytes each: 4 bytes a group", weighs(scales=8)),
    Mistake(
        "the 4 bytes of a scale and an offset come once for each group of 64 numbers, not once for each number",
        weighs(scales=4 * GROUP),
    ),
    Mistake(
        "the 4 bytes of a scale and an offset come once for each group of 64 numbers, not once for a token",
        lambda layer, bits: token_bytes(layer, bits, scales=0) + (4 if bits < 16 else 0),
    ),
    Mistake(
        "numbers of 16 bits have no scales: add them for 4 and 2 bits only",
        lambda layer, bits: (
            token_bytes(layer, bits, scales=0) + token_bytes(layer, 2) - token_bytes(layer, 2, scales=0)
        ),
    ),
    Mistake("every number was counted with 2 bytes; here it has `bits` bits", lambda layer, _: token_bytes(layer, 16)),
]


@task("15a", "kept and token_bytes, then ten caches of six kinds against what they hold when filled with zeros")
def task_15a(kept_tokens, bytes_of_a_token):
    """`kept_tokens(layer, context)` and `bytes_of_a_token(layer, bits)`."""
    compare(kept_tokens, kept, KEEPING, KEEPING_MISTAKES)
    compare(bytes_of_a_token, token_bytes, WEIGHING, WEIGHING_MISTAKES)
    for _, *plan in PLANS:  # before caches are forbidden to say what they hold
        measured(*plan)
    cases = [
        asked("bytes", f"{kind}: {what}; {context} tokens, batch {batch}", layers, context, batch, kind)
        for what, layers, context, batch, kind in PLANS
    ]
    whole = nbytes_with(
        lambda *given: run(kept_tokens, kept_tokens, *given),
        lambda *given: run(bytes_of_a_token, bytes_of_a_token, *given),
    )
    compare(whole, measured, cases)
    return {"bytes": "with your two functions those of ten real caches of six kinds, and no cache was made"}
