"""Tasks 08b and 08c: hide the slots that hold nothing, and count what that costs."""

import functools

import torch

from ..containers import StaticCache
from ..generate import greedy
from ..inputs import watch_inputs
from .playing import some_ids, tiny
from .positions import rows_of
from .runner import run
from .task import Case, Mistake, Wrong, compare, task

model_once = functools.cache(tiny)


def hiding(what, q_len, seen_before, slots):
    """A case: the slots that each new token may look at."""

    def play(answer, seen):
        rows = rows_of(run(answer, answer, q_len, seen_before, slots), q_len, slots)
        if isinstance(rows, str):
            seen["a mask of True and False"] = rows
            return
        for number, row in enumerate(rows):
            seen[f"slots that token {seen_before + number} may look at"] = row

    return Case(what, play)


HIDING = [
    hiding("one token after 5 others, in 8 slots", 1, 5, 8),
    hiding("a prompt of 3 tokens, in 6 empty slots", 3, 0, 6),
    hiding("3 tokens after 2 others, in 7 slots", 3, 2, 7),
    hiding("the last token that fits into 4 slots", 1, 3, 4),
]


def slot_mask(q_len, seen, slots, over=0):
    """The right answer: the token in slot p may look at the slots up to p (and at `over` more)."""
    return torch.arange(slots) <= torch.arange(seen, seen + q_len)[:, None] + over


HIDING_MISTAKES = [
    Mistake(
        "nothing is hidden; a slot of zeros gets a score of 0, and softmax gives that a share. Zeros do harm",
        lambda q_len, seen, slots: torch.ones(q_len, slots, dtype=torch.bool),
    ),
    Mistake(
        "the token may not look at itself; its own slot is filled when attention begins: `<=`, not `<`",
        functools.partial(slot_mask, over=-1),
    ),
    Mistake("one slot too many: the one after the token's own is still empty", functools.partial(slot_mask, over=1)),
    Mistake("True and False are swapped: True means that a slot may be looked at", lambda *a: ~slot_mask(*a, over=0)),
    Mistake("True and False are swapped, and the token's own slot is hidden too", lambda *a: ~slot_mask(*a, over=-1)),
    Mistake(
        "the tokens before are forgotten: the first new token stands in slot `seen`, not in slot 0",
        lambda q_len, seen, slots: slot_mask(q_len, 0, slots),
    ),
    Mistake(
        "all new tokens see the same slots, so the first ones look ahead to the last: each sees up to its own slot",
        lambda q_len, seen, slots: (torch.arange(slots) < seen + q_len).expand(q_len, slots),
    ),
    Mistake(
        "the old tokens are hidden; they are what the cache is for",
        lambda q_len, seen, slots: slot_mask(q_len, seen, slots) & (torch.arange(slots) >= seen),
    ),
    Mistake(
        "only the token itself is seen; it may look back", lambda q_len, seen, slots: _own_slot(q_len, seen, slots)
    ),
    Mistake(
        "the new tokens see what was there before and not each other",
        lambda q_len, seen, slots: (torch.arange(slots) < seen).expand(q_len, slots),
    ),
]


def _own_slot(q_len, seen, slots):
    return torch.arange(slots) == torch.arange(seen, seen + q_len)[:, None]


PROMPT, NEW = 6, 8


@torch.no_grad()
def written(answer, slots):
    """The text that the tiny model writes in so many slots with the learner's masks."""
    model, cache = model_once(), StaticCache(model_once().config, slots)
    text = fed = some_ids(model, 1, PROMPT)
    for _ in range(NEW):
        mask = run(answer, answer, fed.shape[1], text.shape[1] - fed.shape[1], slots)
        fed = model(fed, cache=cache, attention_mask=mask[None, None]).logits[:, -1:].argmax(-1)
        text = torch.cat([text, fed], dim=1)
    return text


@task("08b", "slot_mask on four small cases, then the text of a model in 64 and in 256 slots")
def task_08b(function):
    """`function(q_len, seen, slots)` -> bool (q_len, slots), True where a new token may look."""
    compare(function, slot_mask, HIDING, HIDING_MISTAKES)
    plain = greedy(model_once(), some_ids(model_once(), 1, PROMPT), NEW)
    for slots in (64, 256):
        if not torch.equal(written(function, slots), plain):
            raise Wrong(
                tested=f"the text of the tiny model in {slots} slots",
                expected="the text that it writes without a cache",
                came="another text",
                likely="the small cases are right: look at what happens for larger numbers",
            )
    return {
        "small": "four cases, each slot as expected",
        "model": "the same text in 64 and 256 slots as without a cache",
    }


# 08c


@functools.cache
def counted(prompt, new, slots):
    """The right answer, counted: the share of False in the masks of the steps after the prompt."""
    model = model_once()
    with watch_inputs(model) as steps:
        options = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False}
        model.generate(some_ids(model, 1, prompt), cache=StaticCache(model.config, slots), **options)
    masks = [step.forward["attention_mask"] for step in steps[1:]]
    return sum(int((~mask).sum()) for mask in masks) / sum(mask.numel() for mask in masks)


def sharing(prompt, new, slots):
    """A case: the share for these three numbers."""

    def play(answer, seen):
        seen["share of the scores that are hidden"] = run(answer, answer, prompt, new, slots)

    return Case(f"a prompt of {prompt} tokens, {new} new ones, {slots} slots", play)


SHARING = [sharing(5, 20, 64), sharing(20, 4, 40), sharing(2, 15, 17)]


def by_mean(mean):
    return lambda prompt, new, slots: 1 - mean(prompt, new) / slots


def with_prompt(prompt, new, slots):
    seen = prompt * (prompt + 1) / 2 + (new - 1) * (prompt + new / 2)
    return 1 - seen / (slots * (prompt + new - 1))


def with_prompt_as_a_step(prompt, new, slots):
    return 1 - (prompt + (new - 1) / 2) / slots


SHARING_MISTAKES = [
    Mistake(
        "that is the last step, when the most slots are filled; take the mean of all steps",
        by_mean(lambda prompt, new: prompt + new),
    ),
    Mistake(
        "that is the last step, when the most slots are filled; take the mean of all steps",
        by_mean(lambda prompt, new: prompt + new - 1),
    ),
    Mistake("that is the first step alone; the slots fill, so take the mean", by_mean(lambda prompt, new: prompt + 1)),
    Mistake("the new tokens fill slots too, half of them on average", by_mean(lambda prompt, new: prompt)),
    Mistake("that is the share that is seen; the hidden one is 1 minus it", lambda p, n, s: (p + n / 2) / s),
    Mistake("that is the share that is seen, at the last step", lambda p, n, s: (p + n) / s),
    Mistake("the prompt's own scores are in it; only the steps of one token were asked for", with_prompt),
    Mistake(
        "the prompt was counted as a step: the first new token comes out of it, so n new tokens need n - 1 steps, and "
        "the first of them sees prompt + 1 slots",
        with_prompt_as_a_step,
    ),
    Mistake(
        "one step too many: the last token is never fed, so n new tokens need n - 1 steps",
        by_mean(lambda prompt, new: prompt + (new + 1) / 2),
    ),
    Mistake(
        "each token sees itself, too: the first step looks at prompt + 1 slots",
        by_mean(lambda prompt, new: prompt + new / 2 - 1),
    ),
    Mistake("the prompt fills slots from the beginning, before the first step", by_mean(lambda prompt, new: new / 2)),
    Mistake("per cent; a share between 0 and 1 was asked for", lambda p, n, s: 100 - 100 * (p + n / 2) / s),
    Mistake("a number of slots; divide by all slots", lambda p, n, s: s - p - n / 2),
]


@task("08c", "hidden_share against the masks of three texts, counted")
def task_08c(function):
    """`function(prompt, new, slots)` -> the share of scores, 0 to 1, that are hidden in the steps after the prompt."""
    compare(function, counted, SHARING, SHARING_MISTAKES, tolerance=1e-6)
    shares = ", ".join(f"{counted(*numbers):.1%}" for numbers in ((5, 20, 64), (20, 4, 40), (2, 15, 17)))
    return {"counted": f"{shares}: as in the masks"}
