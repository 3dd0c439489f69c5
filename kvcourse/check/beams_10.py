"""Task 10b: the memory that many beams need."""

import functools

import torch

from ..containers import DynamicCache
from ..measure import bytes_per_token
from ..offload import emulated_device
from .plain import number
from .playing import some_ids, tiny
from .runner import run
from .task import Case, Mistake, compare, task
from .words import Phrase

model_once = functools.cache(tiny)


def searched(prompts, new, beams, returned, memory):
    """A beam search of the tiny model on an emulated device; the device afterwards. Shorter prompts are padded."""
    model, longest = model_once(), max(prompts)
    ids = some_ids(model, len(prompts), longest)
    real = torch.stack([torch.arange(longest) >= longest - prompt for prompt in prompts]).long()
    options = {"num_beams": beams, "num_return_sequences": returned, "attention_mask": real}
    options |= {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False}
    with emulated_device(memory, 1e9, latency=0) as device:
        model.generate(ids, cache=DynamicCache(config=model.config), **options)
    return device


def fits(prompts, new, beams, returned, memory):
    """Whether the search ends on a device with so much memory."""
    try:
        searched(prompts, new, beams, returned, memory)
    except torch.OutOfMemoryError:
        return False
    return True


@functools.cache
def held(prompts, new, beams, returned):
    return searched(prompts, new, beams, returned, 10**9).peak


def measured(bytes_of_a_token, prompts, new, beams, returned):
    """The right answer: the most that the search holds on a device with plenty of memory."""
    return held(tuple(prompts), new, beams, returned)


def budgeting(prompts, new, beams, returned):
    """A case: the smallest device. In the chosen ones the buffers have no spare room when they are largest."""

    def play(answer, seen):
        a_token = bytes_per_token(model_once().config, torch.float32)
        said = run(answer, answer, a_token, list(prompts), new, beams, returned)
        seen["bytes"] = Phrase(f"{said!r}, a text and not a number") if isinstance(said, str) else number(said)

    def explain(label, expected, came):
        if isinstance(came, (int, float)) and 1.2 * expected <= came <= 1.3 * expected:
            return "with a quarter of spare room: often right, but in these cases the buffers have none at the end"
        return None

    lengths = " and ".join(map(str, prompts))
    kind = f"prompts of {lengths} tokens" if len(prompts) > 1 else f"a prompt of {lengths} tokens"
    return Case(f"{kind}, {new} new ones, {beams} beams, {returned} returned", play, explain)


NUMBERS = [((5,), 8, 40, 20), ((8,), 8, 10, 1), ((3, 8), 8, 4, 2), ((4, 2, 3), 5, 3, 3)]
BUDGETING = [budgeting(*numbers) for numbers in NUMBERS]


def by_rows(rows):
    """An answer by a formula for the tokens of all rows together: `rows(prompts, new, beams, returned)`."""
    return lambda a_token, *numbers: a_token * rows(*numbers)


FORGOTTEN = "the beams are forgotten: each is a row of the batch, with a cache of its own"
SEARCHED = "the returned sequences were counted; memory is for those that are searched"
SHARED = "the prompt was counted once: it could be shared, but here each beam is a row with the whole text in it"
NO_PROMPT = "the prompt is forgotten: each beam holds it"
PADDED = (
    "in a batch all rows are as long as the longest: shorter prompts are padded, and padding has keys and values, too"
)
BUDGETING_MISTAKES = [
    Mistake(FORGOTTEN, by_rows(lambda p, n, b, r: len(p) * (max(p) + n - 1))),
    Mistake(FORGOTTEN, by_rows(lambda p, n, b, r: len(p) * (max(p) + n))),
    Mistake(SEARCHED, by_rows(lambda p, n, b, r: len(p) * r * (max(p) + n - 1))),
    Mistake(SEARCHED, by_rows(lambda p, n, b, r: len(p) * r * (max(p) + n))),
    Mistake(
        "beams and returned sequences were multiplied; the returned ones are some of the beams",
        by_rows(lambda p, n, b, r: len(p) * b * r * (max(p) + n - 1)),
    ),
    Mistake(
        "beams and returned sequences were added; the returned ones are some of the beams",
        by_rows(lambda p, n, b, r: len(p) * (b + r) * (max(p) + n - 1)),
    ),
    Mistake(SHARED, by_rows(lambda p, n, b, r: len(p) * (max(p) + b * (n - 1)))),
    Mistake(SHARED, by_rows(lambda p, n, b, r: len(p) * (max(p) + b * n))),
    Mistake(NO_PROMPT, by_rows(lambda p, n, b, r: len(p) * b * (n - 1))),
    Mistake(NO_PROMPT, by_rows(lambda p, n, b, r: len(p) * b * n)),
    Mistake(
        "a token too many: the last one is never fed, so its keys and values are never computed",
        by_rows(lambda p, n, b, r: len(p) * b * (max(p) + n)),
    ),
    Mistake(
        "a token too few: of the new ones only the last is never fed",
        by_rows(lambda p, n, b, r: len(p) * b * (max(p) + n - 2)),
    ),
    Mistake("the new tokens are forgotten; the caches grow", by_rows(lambda p, n, b, r: len(p) * b * max(p))),
    Mistake("tokens; multiply by the bytes of a token", lambda a_token, p, n, b, r: len(p) * b * (max(p) + n - 1)),
    Mistake(
        "a_token has keys, values and all layers in it already; it was doubled",
        by_rows(lambda p, n, b, r: 2 * len(p) * b * (max(p) + n - 1)),
    ),
    Mistake("one prompt was counted; each of them has `beams` rows", by_rows(lambda p, n, b, r: b * (max(p) + n - 1))),
    Mistake("one prompt was counted; each of them has `beams` rows", by_rows(lambda p, n, b, r: b * (p[0] + n - 1))),
    Mistake(PADDED, by_rows(lambda p, n, b, r: b * sum(one + n - 1 for one in p))),
    Mistake(PADDED, by_rows(lambda p, n, b, r: b * len(p) * (p[0] + n - 1))),
    Mistake(PADDED, by_rows(lambda p, n, b, r: b * len(p) * (min(p) + n - 1))),
    Mistake(
        "the prompts were laid end to end; each is a row of its own, as long as the longest, with all new tokens",
        by_rows(lambda p, n, b, r: b * (sum(p) + n - 1)),
    ),
    Mistake(
        "40 beams are one example: compute with `beams`",
        by_rows(lambda p, n, b, r: 40 * len(p) * (max(p) + n - 1)),
    ),
]


@task("10b", "smallest_budget for four beam searches: on that device each ends, with one byte less it does not")
def task_10b(function):
    """`function(a_token, prompts, new, beams, returned)` -> bytes of cache on the device."""
    compare(function, measured, BUDGETING, BUDGETING_MISTAKES)
    sizes = [held(*numbers) for numbers in NUMBERS]
    assert fits(*NUMBERS[-1], sizes[-1]) and not fits(*NUMBERS[-1], sizes[-1] - 1)
    return {"measured": ", ".join(f"{size:,}" for size in sizes) + " bytes, the most that each search held"}
