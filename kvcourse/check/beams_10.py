"""Task 10b: the memory that many beams need."""

import functools

import torch

from ..containers import DynamicCache
from ..measure import bytes_per_token
from ..offload import emulated_device
from .playing import some_ids, tiny
from .runner import run
from .task import Case, Mistake, compare, task

model_once = functools.cache(tiny)


def searched(prompt, new, beams, returned, memory):
    """A beam search of the tiny model on an emulated device; the device afterwards."""
    model = model_once()
    ids, options = some_ids(model, 1, prompt), {"num_beams": beams, "num_return_sequences": returned}
    options |= {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False}
    with emulated_device(memory, 1e9, latency=0) as device:
        model.generate(ids, cache=DynamicCache(config=model.config), **options)
    return device


def fits(prompt, new, beams, returned, memory):
    """Whether the search ends on a device with so much memory."""
    try:
        searched(prompt, new, beams, returned, memory)
    except torch.OutOfMemoryError:
        return False
    return True


@functools.cache
def measured(bytes_of_a_token, prompt, new, beams, returned):
    """The right answer: the most that the search holds on a device with plenty of memory."""
    return searched(prompt, new, beams, returned, 10**9).peak


def budgeting(prompt, new, beams, returned):
    """A case: the smallest device. In the chosen ones the buffers have no spare room when they are largest."""

    def play(answer, seen):
        a_token = bytes_per_token(model_once().config, torch.float32)
        seen["bytes"] = run(answer, answer, a_token, prompt, new, beams, returned)

    def explain(label, expected, came):
        number = isinstance(came, (int, float)) and not isinstance(came, bool)
        if number and 1.2 * expected <= came <= 1.3 * expected:
            return "with a quarter of spare room: often right, but in these cases the buffers have none at the end"
        return None

    return Case(f"a prompt of {prompt} tokens, {new} new ones, {beams} beams, {returned} returned", play, explain)


NUMBERS = [(5, 8, 40, 20), (8, 8, 10, 1), (4, 5, 3, 3)]
BUDGETING = [budgeting(*numbers) for numbers in NUMBERS]


def by_tokens(tokens):
    """An answer by a formula for the tokens of all beams together."""
    return lambda a_token, *numbers: a_token * tokens(*numbers)


BUDGETING_MISTAKES = [
    Mistake(
        "the beams are forgotten: each is a row of the batch, with a cache of its own",
        by_tokens(lambda p, n, b, r: p + n - 1),
    ),
    Mistake("the beams are forgotten: each is a row of the batch", by_tokens(lambda p, n, b, r: p + n)),
    Mistake(
        "the returned sequences were counted; memory is for those that are searched",
        by_tokens(lambda p, n, b, r: r * (p + n - 1)),
    ),
    Mistake(
        "the returned sequences were counted; memory is for those that are searched",
        by_tokens(lambda p, n, b, r: r * (p + n)),
    ),
    Mistake(
        "beams and returned sequences were multiplied; the returned ones are some of the beams",
        by_tokens(lambda p, n, b, r: b * r * (p + n - 1)),
    ),
    Mistake(
        "the prompt was counted once: it could be shared, but here each beam is a row with the whole text in it",
        by_tokens(lambda p, n, b, r: p + b * (n - 1)),
    ),
    Mistake(
        "the prompt was counted once: it could be shared, but here each beam is a row with the whole text in it",
        by_tokens(lambda p, n, b, r: p + b * n),
    ),
    Mistake("the prompt is forgotten: each beam holds it", by_tokens(lambda p, n, b, r: b * (n - 1))),
    Mistake("the prompt is forgotten: each beam holds it", by_tokens(lambda p, n, b, r: b * n)),
    Mistake(
        "a token too many: the last one is never fed, so its keys and values are never computed",
        by_tokens(lambda p, n, b, r: b * (p + n)),
    ),
    Mistake("the new tokens are forgotten; the caches grow", by_tokens(lambda p, n, b, r: b * p)),
    Mistake("tokens; multiply by the bytes of a token", lambda a_token, p, n, b, r: b * (p + n - 1)),
    Mistake(
        "a_token has keys, values and all layers in it already; it was doubled",
        by_tokens(lambda p, n, b, r: 2 * b * (p + n - 1)),
    ),
]


@task("10b", "smallest_budget for three beam searches: on that device each ends, with one byte less it does not")
def task_10b(function):
    """`function(a_token, prompt, new, beams, returned)` -> bytes of cache on the device."""
    compare(function, measured, BUDGETING, BUDGETING_MISTAKES)
    a_token = bytes_per_token(model_once().config, torch.float32)
    sizes = [measured(a_token, *numbers) for numbers in NUMBERS]
    assert fits(*NUMBERS[-1], sizes[-1]) and not fits(*NUMBERS[-1], sizes[-1] - 1)
    return {"measured": ", ".join(f"{size:,}" for size in sizes) + " bytes, the most that each search held"}
