"""Task 10a: once more, offloaded, when memory runs out."""

import torch

from ..offload import emulated_device
from .noted_10 import INSIDE, VOCABULARY, SmallModel
from .reserved import reserved
from .retries_mistakes import MISTAKES, anyhow
from .runner import Stopped, run
from .task import Case, compare, task
from .words import Phrase, words

OURS = {anyhow, *(mistake.answer for mistake in MISTAKES)}
ENDED = ("OutOfMemoryError", "ValueError", "RuntimeError", "MemoryError")


def asking(what, memory, fault=None, tokens=6, new=6):
    """A case: one answer on a device with so much memory; what each attempt was given, and what came out."""
    played = {}  # what our own answers do, the reference and the mistakes: they are played often

    def play(answer, seen):
        if answer not in OURS:
            return look(answer, seen)
        if answer not in played:
            played[answer] = [{}, None]
            try:
                look(answer, played[answer][0])
            except Stopped as stop:
                played[answer][1] = stop
        notes, stop = played[answer]
        seen.update(notes)
        if stop:
            raise stop
        return None

    def look(answer, seen):
        model, ids = SmallModel(fault), (torch.arange(tokens)[None] * 7 + tokens) % VOCABULARY
        stopped = None
        with emulated_device(memory, 1e9, latency=0):
            try:
                text = run(answer, answer, model, ids, max_new_tokens=new)
            except Stopped as stop:
                stopped = stop
        seen["attempts"] = len(model.calls) if stopped is None or stopped.kind == "error" else 0
        for number, (cache, used) in enumerate(model.calls, 1):
            seen[f"cache of attempt {number}"] = cache
            seen[f"bytes in use on the device when attempt {number} begins"] = used
        if stopped is None:
            seen["what comes out"] = Phrase(f"{_said(text)}, and no error") if model.failed else _said(text)
            return
        name = stopped.what.split(":")[0]
        if stopped.kind != "error" or not model.calls or name not in ENDED:
            seen.pop("attempts")
            raise stopped
        seen["what comes out"] = Phrase(f"{name}, as it was raised")

    def explain(label, expected, came):
        if label == "attempts" and came == 0:
            return "`generate` of the model that is handed over was never called"
        if label.startswith("bytes in use"):
            return ALIVE if came.endswith(INSIDE) else NAMED
        if label == "what comes out" and str(came).endswith("and no error"):
            return SECOND if fault is None else FIRST
        return None

    return Case(what, play, explain)


ALIVE = (
    "the first cache still lies on the device when the second attempt begins. Inside `except` the error is alive, and "
    "holds every tensor of the first attempt. Retry after the block"
)
NAMED = (
    "the first cache still lies on the device when the second attempt begins, though the block is over: a variable "
    "still names that cache, or the error. Make the cache inside the call of `generate`, or `del` the name first"
)
SECOND = "the second lack of memory was swallowed, and nobody learns of it: let its error pass"
FIRST = "an error of another kind was swallowed, and nobody learns of it: let it pass"


def _said(text):
    """The tokens of a text, (1, tokens), as a list; anything else as it is."""
    if isinstance(text, torch.Tensor):
        return text[0].tolist() if text.ndim == 2 and len(text) == 1 else Phrase(words(text))
    return text


ASKING = [
    asking("a device with room for everything", 10**6),
    asking("a device with 3,000 bytes, too few for all layers at once", 3_000),
    asking("a device with 5,000 bytes, a longer text", 5_000, tokens=12, new=8),
    asking('generate raises ValueError("a bad setting")', 10**6, (ValueError, "a bad setting")),
    asking('generate raises RuntimeError("the device is lost")', 10**6, (RuntimeError, "the device is lost")),
    asking('generate raises MemoryError("the host is full")', 10**6, (MemoryError, "the host is full")),
    asking("a device with 300 bytes, too few for any cache", 300),
]


@task(
    "10a", "generate_anyhow: attempts, their caches, bytes in use, and the text, with much memory, little, too little"
)
def task_10a(function):
    """`function(model, ids, **options)`: what `model.generate` returns, with an offloaded cache if need be."""
    with reserved(resilient_generate="resilient"):
        compare(function, anyhow, ASKING, MISTAKES)
    return {
        "memory": "enough: one attempt; little: a second one, offloaded, from an empty device, and the same text",
        "errors": "all others pass at once, and so does a second lack of memory",
    }
