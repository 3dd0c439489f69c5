"""Task 08c: how large a room may be, if no more than a share of the scores is to be computed for nothing."""

import functools
import math

from ..containers import StaticCache
from ..inputs import watch_inputs
from .masks_08 import model_once
from .plain import number
from .playing import some_ids
from .runner import run
from .task import Case, Mistake, compare, task


@functools.cache
def filled(prompt, new):
    """What each step after the prompt may look at, counted in its mask."""
    model = model_once()
    with watch_inputs(model) as steps:
        options = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False}
        model.generate(some_ids(model, 1, prompt), cache=StaticCache(model.config, prompt + new), **options)
    return [int(step.forward["attention_mask"].sum()) for step in steps[1:]]


def hidden(prompt, new, slots):
    """The share of the scores that are hidden in so many slots."""
    counts = filled(prompt, new)
    return 1 - sum(counts) / (slots * len(counts))


def counted(prompt, new, share):
    """The right answer: slots are added as long as no more than the share is hidden."""
    slots = prompt + new
    while hidden(prompt, new, slots + 1) <= share:
        slots += 1
    return slots


TEXTS = [(20, 4, 0.25), (20, 6, 0.25), (2, 15, 0.75), (5, 20, 0.5)]


def room(prompt, new, share):
    """A case: the room for these three numbers."""

    def play(answer, seen):
        seen["the most slots"] = number(run(answer, answer, prompt, new, share))

    return Case(f"a prompt of {prompt} tokens, {new} new ones, at most {share:.0%} hidden", play)


def by_mean(mean):
    """An answer by the number of slots that are filled on average."""
    return lambda prompt, new, share: math.floor(mean(prompt, new) / (1 - share))


def with_prompt(prompt, new, share):
    seen = prompt * (prompt + 1) / 2 + (new - 1) * (prompt + new / 2)
    return math.floor(seen / (prompt + new - 1) / (1 - share))


LAST = "that is the last step, when the most slots are filled; take the mean of all steps"
FILLED = "so many slots are filled on average; they are the part `1 - share` of the room"
WHOLE = "the share is one of the whole room, not of the filled slots: filled = (1 - share) x room"
ROOM_MISTAKES = [
    Mistake(LAST, by_mean(lambda prompt, new: prompt + new)),
    Mistake(LAST, by_mean(lambda prompt, new: prompt + new - 1)),
    Mistake("that is the first step alone; the slots fill, so take the mean", by_mean(lambda prompt, new: prompt + 1)),
    Mistake("the new tokens fill slots too, half of them on average", by_mean(lambda prompt, new: prompt)),
    Mistake("the prompt fills slots from the beginning, before the first step", by_mean(lambda prompt, new: new / 2)),
    Mistake("the prompt fills slots from the beginning, before the first step", by_mean(lambda prompt, new: new)),
    Mistake(
        "`share` is the hidden part; the filled one is 1 minus it",
        lambda prompt, new, share: math.floor((prompt + new / 2) / share),
    ),
    Mistake("a part of a slot is no slot: round down", lambda prompt, new, share: (prompt + new / 2) / (1 - share)),
    Mistake(
        "rounded up, and more than the share is hidden: round down",
        lambda prompt, new, share: math.ceil((prompt + new / 2) / (1 - share)),
    ),
    Mistake(
        "`round` goes up where the part of a slot is more than half, and then too much is hidden: round down",
        lambda prompt, new, share: round((prompt + new / 2) / (1 - share)),
    ),
    Mistake("`//` has rounded the mean down; it may end in .5", by_mean(lambda prompt, new: prompt + new // 2)),
    Mistake("the prompt's own scores are in it; only the steps of one token were asked for", with_prompt),
    Mistake(
        "the prompt was counted as a step: the first new token comes out of it, so n new tokens need n - 1 steps, and "
        "the first of them sees prompt + 1 slots",
        by_mean(lambda prompt, new: prompt + (new - 1) / 2),
    ),
    Mistake(
        "one step too many: the last token is never fed, so n new tokens need n - 1 steps",
        by_mean(lambda prompt, new: prompt + (new + 1) / 2),
    ),
    Mistake(
        "each token sees itself, too: the first step looks at prompt + 1 slots",
        by_mean(lambda prompt, new: prompt + new / 2 - 1),
    ),
    Mistake(FILLED, lambda prompt, new, share: prompt + new / 2),
    Mistake(FILLED, lambda prompt, new, share: prompt + new // 2),
    Mistake(WHOLE, lambda prompt, new, share: (prompt + new / 2) * (1 + share)),
    Mistake(WHOLE, lambda prompt, new, share: math.floor((prompt + new / 2) * (1 + share))),
    Mistake(
        "just the room that fits: it hides less than the share, so there may be more slots",
        lambda prompt, new, share: prompt + new,
    ),
    Mistake(
        "just the room that fits: it hides less than the share, so there may be more slots",
        lambda prompt, new, share: prompt + new - 1,
    ),
]


@task("08c", "largest_room against the masks of four texts, counted")
def task_08c(function):
    """`function(prompt, new, share)` -> the most slots in which at most `share` of the scores are hidden."""
    compare(function, counted, [room(*given) for given in TEXTS], ROOM_MISTAKES, tolerance=1e-9)
    found = {given: int(counted(*given)) for given in TEXTS}
    lines = [
        f"{slots} slots hide {hidden(*given[:2], slots):.1%}, {slots + 1} hide {hidden(*given[:2], slots + 1):.1%}"
        for given, slots in found.items()
    ]
    return {"counted": "; ".join(lines)}
