"""Task 09b: how long a step takes, and where waiting begins, against the timeline of the emulated device."""

import functools
import math

import torch

from ..containers import DynamicCache
from ..measure import bytes_per_token, fill
from ..models.tiny import tiny_config
from ..offload import emulated_device, stalls
from .plain import number
from .runner import Stopped, run
from .task import Case, Mistake, Unfinished, compare, task

TOLERANCE = 0.01  # relative; the device is simulated and exact, so this is for rounding alone
DTYPE = torch.float32


def model_of(layers):
    """The config of the tiny model with so many layers."""
    config = tiny_config()
    config.num_hidden_layers = layers
    return config


def a_token(layers=1):
    """Bytes of one token in one layer of it."""
    return bytes_per_token(model_of(layers), DTYPE) // layers


@functools.cache
def timeline(layers, tokens, compute_ms, bandwidth):
    """What happens in the first step after a text of so many tokens, with no layer on the device yet."""
    config = model_of(layers)
    cache = fill(DynamicCache(config=config, offloading=True), config, tokens, dtype=DTYPE)
    with emulated_device(10**9, bandwidth, latency=0, compute=compute_ms / 1_000) as device:
        fill(cache, config, 1, dtype=DTYPE)
    return device.timeline


def measured_step(layers, compute_ms, nbytes, bandwidth):
    """The right answer: milliseconds until the last layer has computed."""
    events = timeline(layers, nbytes // a_token(), compute_ms, bandwidth)
    return round(1_000 * max(event.end for event in events if event.kind == "compute"), 6)


def measured_knee(compute_ms, bytes_of_a_token, bandwidth):
    """The right answer: the most tokens with which no layer after the first one waits. With one more they do."""
    least, most = 1, 1
    while not stalls(timeline(3, most, compute_ms, bandwidth)):
        least, most = most, 2 * most
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if stalls(timeline(3, middle, compute_ms, bandwidth)) else (middle, most)
    return least


def pacing(layers, compute_ms, fetch_ms, bandwidth):
    """A case: one step."""
    nbytes = int(fetch_ms / 1_000 * bandwidth / a_token()) * a_token()

    def play(answer, seen):
        seen["milliseconds"] = number(run(answer, answer, layers, compute_ms, nbytes, bandwidth))

    what = f"{layers} layers of {nbytes:,} bytes, {compute_ms} ms of computing each, {bandwidth:,} bytes a second"
    return Case(what, play)


PACING = [
    pacing(12, 2.0, 6.0, 16_000_000),
    pacing(12, 6.0, 2.0, 32_000_000),
    pacing(3, 4.0, 4.0, 64_000_000),
    pacing(2, 1.0, 9.0, 32_000_000),
    pacing(2, 9.0, 1.0, 32_000_000),
    pacing(1, 3.0, 5.0, 32_000_000),
]


def paced(step):
    """An answer in milliseconds by a formula of (layers, compute, fetch)."""

    def answer(layers, compute_ms, nbytes, bandwidth):
        return step(layers, compute_ms, 1_000 * nbytes / bandwidth)

    return answer


FIRST = "the first fetch is forgotten: nothing computes while layer 0 comes over, so nothing hides it"
LAST = "the last computation is forgotten: no fetch hides it, and it still takes its time"
TOO_MANY = (
    "too many turns: each of them is the computation of one layer beside the fetch of the next, and the last layer has "
    "no next one. So there are layers - 1 of them, between the first fetch and the last computation"
)
UNITS = (
    "that is not more than the computing alone. nbytes / bandwidth are seconds and compute_ms milliseconds: make them "
    "the same before you take the slower one"
)
MINIMUM = "the minimum: the slower of the two sets the pace"
PACING_MISTAKES = [
    Mistake(
        "the sum: that is without prefetch. While a layer computes, the next one is on its way",
        paced(lambda n, c, f: n * (c + f)),
    ),
    Mistake(MINIMUM, paced(lambda n, c, f: f + (n - 1) * min(c, f) + c)),
    Mistake(MINIMUM, paced(lambda n, c, f: n * min(c, f))),
    Mistake(
        f"{FIRST}. (In the lesson layer 0 came during the step before. This step begins with nothing on the device)",
        paced(lambda n, c, f: n * max(c, f)),
    ),
    Mistake(FIRST, paced(lambda n, c, f: (n - 1) * max(c, f) + c)),
    Mistake(LAST, paced(lambda n, c, f: f + (n - 1) * max(c, f))),
    Mistake(LAST, paced(lambda n, c, f: max(n * c + f, n * f))),
    Mistake(
        "the first fetch and the last computation are forgotten: neither has anything beside it",
        paced(lambda n, c, f: (n - 1) * max(c, f)),
    ),
    Mistake(TOO_MANY, paced(lambda n, c, f: f + n * max(c, f) + c)),
    Mistake(TOO_MANY, paced(lambda n, c, f: f + n * max(c, f))),
    Mistake(TOO_MANY, paced(lambda n, c, f: n * max(c, f) + c)),
    Mistake(TOO_MANY, paced(lambda n, c, f: (n + 1) * max(c, f))),
    Mistake(
        "one turn too few: between the first fetch and the last computation there are layers - 1 of them",
        paced(lambda n, c, f: f + (n - 2) * max(c, f) + c),
    ),
    Mistake(UNITS, paced(lambda n, c, f: f / 1_000 + (n - 1) * max(c, f / 1_000) + c)),
    Mistake(UNITS, paced(lambda n, c, f: n * c)),
    Mistake(
        "only the computing and the first fetch; a slow cable is waited for at each layer",
        paced(lambda n, c, f: f + n * c),
    ),
    Mistake("only the cable; where it is fast, computing takes longer", paced(lambda n, c, f: n * f)),
    Mistake(
        "only the cable and the last computation; computing may be the slower one", paced(lambda n, c, f: n * f + c)
    ),
    Mistake("one layer; the step goes through all of them", paced(lambda n, c, f: max(c, f))),
    Mistake("one layer; the step goes through all of them", paced(lambda n, c, f: c + f)),
    Mistake("seconds; milliseconds were asked for", paced(lambda n, c, f: (f + (n - 1) * max(c, f) + c) / 1_000)),
]


def kneeing(compute_ms, bandwidth):
    """A case: where waiting begins. A fraction of a token is no token."""

    def play(answer, seen):
        asked = knee_once if answer is measured_knee else answer
        seen["tokens (with one more the device waits)"] = number(run(answer, asked, compute_ms, a_token(), bandwidth))

    return Case(f"{compute_ms} ms of computing, {a_token()} bytes a token, {bandwidth:,} bytes a second", play)


@functools.cache
def knee_once(compute_ms, bytes_of_a_token, bandwidth):
    return measured_knee(compute_ms, bytes_of_a_token, bandwidth)


# Two whole knees, 128 and 256, with numbers that no formula in floats makes a little less; then 78.125 and 46.875.
KNEEING = [kneeing(2.0, 16_384_000), kneeing(1.0, 65_536_000), kneeing(5.0, 4_000_000), kneeing(3.0, 4_000_000)]


def kneed(likely, tokens):
    """Mistakes by a formula of (compute in ms, bytes of a token, bandwidth): as it is, and rounded down."""
    return [Mistake(likely, tokens), Mistake(likely, lambda *numbers: math.floor(tokens(*numbers)))]


LESS = "one token too few: where fetching takes just as long as computing, nothing waits yet"
KNEEING_MISTAKES = [
    *kneed("compute_ms are milliseconds, bandwidth is per second: divide by 1,000", lambda c, t, b: c * b / t),
    *kneed("bytes, not tokens: divide by the bytes of a token", lambda c, t, b: c / 1_000 * b),
    *kneed("upside down: more bandwidth moves the knee to longer texts", lambda c, t, b: t * 1_000 / (c * b)),
    *kneed(
        "the computing time is missing: the longer a layer computes, the more can come over meanwhile",
        lambda c, t, b: b / t,
    ),
    *kneed(
        "a fetch is hidden behind one computation, that of the layer before; two were taken",
        lambda c, t, b: 2 * c / 1_000 * b / t,
    ),
    *kneed(
        "bytes_of_a_token has the key and the value already; it was doubled",
        lambda c, t, b: c / 1_000 * b / t / 2,
    ),
    *kneed(
        "one token too many, and the device waits already: a part of a token is no token, so round down",
        lambda c, t, b: c / 1_000 * b / t + 1,
    ),
    Mistake(
        "rounded up, and with that token the device waits already: round down",
        lambda c, t, b: math.ceil(c / 1_000 * b / t),
    ),
    Mistake(
        "`round` goes up where the part of a token is more than half, and then the device waits: round down",
        lambda c, t, b: round(c / 1_000 * b / t),
    ),
    Mistake("a part of a token is no token: round down", lambda c, t, b: c / 1_000 * b / t),
    *kneed(LESS, lambda c, t, b: c / 1_000 * b / t - 1),
    Mistake(LESS, lambda c, t, b: math.ceil(c / 1_000 * b / t) - 1),
    *kneed(
        "a second has 1,000 milliseconds, not 1,024, and bandwidth is in bytes a second",
        lambda c, t, b: c / 1_024 * b / t,
    ),
]


@task("09b", "step_ms and knee_tokens against timelines of the emulated device")
def task_09b(step_ms, knee_tokens=None):
    """`step_ms(layers, compute_ms, nbytes, bandwidth)`, `knee_tokens(compute_ms, bytes_of_a_token, bandwidth)`."""
    compare(step_ms, measured_step, PACING, PACING_MISTAKES, TOLERANCE)
    if knee_tokens is None or knee_tokens is ...:
        raise Unfinished("hand over both functions: step_ms, knee_tokens")
    try:
        compare(knee_tokens, measured_knee, KNEEING, KNEEING_MISTAKES, 1e-6)
    except Stopped as stop:
        if stop.kind != "unfinished":
            raise
        raise Unfinished("step_ms is right. Now write knee_tokens, in place of its NotImplementedError") from None
    return {
        "step": "right with a slow cable, a fast one, and on the knee",
        "knee": "right for four links: up to there nothing waits but the first layer",
    }
