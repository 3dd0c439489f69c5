"""Task 09a: fetch one layer ahead, over a small link whose clock is computed."""

import torch

from .link_09 import SlowLink
from .runner import run
from .task import Case, Mistake, Wrong, compare, task


def stepping(layers, fetch_ms, compute_ms):
    """A case: one step through all layers."""

    def play(answer, seen):
        link = SlowLink(layers, fetch_ms, compute_ms)
        result = run(answer, answer, link, torch.ones(4, dtype=torch.float64))
        seen["layers fetched"] = link.fetched
        seen["the result"] = result
        seen["layers left on the device"] = link.on_device
        middle = min(1, layers - 1)
        seen[f"layers on the device while layer {middle} computes"] = link.beside.get(middle, [])
        seen["layers on the device at the fullest moment"] = link.most
        seen["milliseconds on the clock"] = link.clock

    number = "1 layer" if layers == 1 else f"{layers} layers"
    return Case(f"{number}, each fetched in {fetch_ms} ms and computed in {compute_ms} ms", play)


STEPPING = [stepping(4, 1, 3), stepping(4, 3, 1), stepping(6, 2, 2), stepping(1, 2, 1)]


def step_with(fetch_next="before", waits=True, evict="after", layers=lambda n: range(n), passes_on=True):
    """The right answer, with what goes wrong as parameters."""

    def one_step(link, x):
        coming, first = link.fetch(0), x
        for layer in layers(link.layers):
            if waits:
                link.wait(coming)
            more = layer + 1 < link.layers
            if fetch_next in ("before", "and wait") and more:
                coming = link.fetch(layer + 1)
                if fetch_next == "and wait":
                    link.wait(coming)
            if evict == "before":
                link.evict(layer)
            x = link.compute(layer, x if passes_on else first)
            if fetch_next == "after" and more:
                coming = link.fetch(layer + 1)
            if evict == "after":
                link.evict(layer)
            if fetch_next == "late" and more:
                coming = link.fetch(layer + 1)
            if evict == "next" and more:
                link.evict(layer + 1)
        return x

    return one_step


def keeps_the_last_one_longer(link, x):
    coming = link.fetch(0)
    for layer in range(link.layers):
        link.wait(coming)
        if layer + 1 < link.layers:
            coming = link.fetch(layer + 1)
        x = link.compute(layer, x)
        if layer:
            link.evict(layer - 1)
    link.evict(link.layers - 1)
    return x


def ahead(count):
    """Fetches `count` layers ahead."""

    def one_step(link, x):
        handles = {layer: link.fetch(layer) for layer in range(min(count, link.layers))}
        for layer in range(link.layers):
            if layer + count < link.layers:
                handles[layer + count] = link.fetch(layer + count)
            link.wait(handles[layer])
            x = link.compute(layer, x)
            link.evict(layer)
        return x

    return one_step


def past_the_end(link, x):
    coming = link.fetch(0)
    for layer in range(link.layers):
        link.wait(coming)
        coming = link.fetch(layer + 1)
        x = link.compute(layer, x)
        link.evict(layer)
    return x


def for_the_next_token(link, x):
    coming = link.fetch(0)
    for layer in range(link.layers):
        link.wait(coming)
        following = (layer + 1) % link.layers
        if following != layer:
            coming = link.fetch(following)
        x = link.compute(layer, x)
        link.evict(layer)
    return x


def never_assigns(link, x):
    step_with()(link, x)
    return x


def the_clock(link, x):
    step_with()(link, x)
    return link.clock


def waits_for_the_first_alone(link, x):
    link.wait(link.fetch(0))
    for layer in range(link.layers):
        if layer + 1 < link.layers:
            link.fetch(layer + 1)
        x = link.compute(layer, x)
        link.evict(layer)
    return x


APART = (
    "cable and device take turns, they never work at once: ask for the next layer before you compute, and wait for it "
    "only when its turn has come"
)
UNSET = (
    "a name was read that was never set. It is set only where there is a next layer, and a model of one layer has "
    "none: read it under the same `if`"
)
STEPPING_MISTAKES = [
    Mistake(APART, step_with(fetch_next="late")),
    Mistake(APART, step_with(fetch_next="after")),
    Mistake(
        "this turn waits for the copy that it has just asked for, so the device stands still meanwhile. Wait first, "
        "for the handle of the turn before; then ask for the next layer, and wait for it only when its turn has come",
        step_with(fetch_next="and wait"),
    ),
    Mistake(
        "nobody waits for the copy: a layer that has not arrived computes with zeros, and nothing is raised",
        step_with(waits=False),
    ),
    Mistake(
        "only the first layer is waited for. On a fast cable the others have arrived in time, on a slow one they have "
        "not: wait for each",
        waits_for_the_first_alone,
    ),
    Mistake(
        "the layer was evicted before it computed: it is in use until compute() has returned",
        step_with(evict="before"),
    ),
    Mistake(
        "the layer that was evicted is the next one, just fetched; evict the one that has computed",
        step_with(evict="next"),
    ),
    Mistake("nothing was evicted: at the end all layers are on the device", step_with(evict="never")),
    Mistake(
        "a layer stays one turn too long, so three are on the device: evict it as soon as it has computed",
        keeps_the_last_one_longer,
    ),
    Mistake(
        "two layers ahead is one too many: the cable serves one after the other, so it gains nothing and takes room",
        ahead(2),
    ),
    Mistake("everything was fetched at once: then nothing is saved on the device", ahead(1_000)),
    Mistake("the last layer has no next one: do not fetch beyond it", past_the_end),
    Mistake(
        "layer 0 was fetched for the next token, which is a good idea, but this task is one step: leave nothing behind",
        for_the_next_token,
    ),
    Mistake(
        "each layer gets what the one before gave: `x = link.compute(layer, x)`, with the same x on both sides",
        step_with(passes_on=False),
    ),
    Mistake("what the layers gave was thrown away: x = link.compute(layer, x), then return x", never_assigns),
    Mistake("the clock came back; return what the last layer gave, x", the_clock),
    Mistake("the last layer was left out", step_with(layers=lambda n: range(n - 1))),
]


@task("09a", "one_step over four links: the result, the layers on the device, and the simulated clock")
def task_09a(function):
    """`function(link, x)`: sends `x` through all layers of a `SlowLink` and returns what the last one gives."""
    try:
        compare(function, step_with(), STEPPING, STEPPING_MISTAKES, tolerance=1e-9)
    except Wrong as wrong:
        if "UnboundLocalError" in wrong.lines.get("came", "") and "likely" not in wrong.lines:
            raise Wrong(**wrong.lines, likely=UNSET) from None
        raise
    slow, fast = SlowLink(4, 3, 1), SlowLink(4, 1, 3)
    for link in (slow, fast):
        run(function, function, link, torch.ones(4, dtype=torch.float64))
    return {
        "result": "right over four links, with at most 2 layers on the device",
        "clock": f"fast cable {fast.clock} ms instead of 16, slow cable {slow.clock} ms instead of 16",
    }
