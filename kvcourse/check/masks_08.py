"""Task 08b: hide the slots that hold nothing."""

import functools

import torch

from ..containers import StaticCache
from ..generate import greedy
from .playing import some_ids, tiny
from .positions import rows_of
from .runner import run
from .task import Case, Mistake, Wrong, compare, task
from .words import Phrase, words

model_once = functools.cache(tiny)


class Form(Phrase):
    """What kind of thing came, in words; `likely`: what the mistake is, where the form gives it away."""

    likely = None


def form_of(mask, q_len, slots):
    """The form of a mask; None where nothing came."""
    if mask is None:
        return None
    wanted, likely = (q_len, slots), "a tensor was asked for: `torch.tensor(...)` makes one of lists of True and False"
    form = Form(words(mask))
    if isinstance(mask, torch.Tensor):
        form, likely = Form(f"a {'bool ' if mask.dtype == torch.bool else ''}tensor of shape {tuple(mask.shape)}"), None
        if mask.shape == (1, 1, *wanted):
            likely = "the axes for batch and heads come later; two were asked for, the new tokens and the slots"
        elif mask.ndim == 1:
            likely = "a single row; each new token needs its own: make a column of their slots with `[:, None]`"
        elif mask.shape == wanted[::-1] and mask.shape != wanted:
            likely = "the axes are swapped: a row for each new token, a column for each slot"
        elif mask.shape != wanted:
            likely = "a row for each new token, a column for each slot, filled or not"
        elif mask.dtype != torch.bool:
            form = Form(f"numbers of type {mask.dtype}, not True and False")
            likely = "True for a slot that may be looked at: a comparison such as `<=` gives True and False"
    form.likely = likely
    return form


def hiding(what, q_len, seen_before, slots):
    """A case: the slots that each new token may look at."""

    def play(answer, seen):
        mask = run(answer, answer, q_len, seen_before, slots)
        seen["the mask"] = form_of(mask, q_len, slots)
        rows = rows_of(mask, q_len, slots)
        for number, row in enumerate(rows if isinstance(rows, list) else ()):
            seen[f"slots that token {seen_before + number} may look at"] = row

    return Case(what, play, lambda label, expected, came: getattr(came, "likely", None))


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
