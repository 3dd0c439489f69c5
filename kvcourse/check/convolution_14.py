"""Task 14a: what a short convolution keeps between two forwards."""

from types import MethodType

import torch

from ..containers import DynamicCache
from .convolution_mistakes import FEEDING_MISTAKES, Window
from .cost import held
from .objects import object_of, toy
from .playing import first_difference, some_ids
from .runner import run
from .task import Case, Wrong, compare, task
from .words import Phrase, words


def columns(tensor, given):
    """The position of each input of `tensor` among those given so far, both (batch, channels, time); "zero", "?"."""
    if not isinstance(tensor, torch.Tensor) or tensor.ndim != 3 or tensor.shape[:2] != given.shape[:2]:
        return tensor if tensor is None else Phrase(words(tensor))
    places = []
    for column in tensor.unbind(2):
        matches = (given == column.unsqueeze(2)).all(dim=1).all(dim=0).nonzero()
        places.append("zero" if not column.any() else int(matches[0]) if len(matches) else "?")
    return places


def inputs(batch, channels, tokens, start):
    """Inputs (batch, channels, tokens), every number another one and none of them zero."""
    count = batch * channels * tokens
    return torch.arange(start + 1, start + 1 + count, dtype=torch.float32).view(batch, channels, tokens)


def feeds(what, kernel, chunks, batch=1, channels=2, objects=1):
    """A case: feed `chunks` inputs at a time, and write down the positions of those that come back."""

    def play(answer, seen):
        made = [object_of(answer, "update", arguments=(kernel,)) for _ in range(objects)]
        given, start = [torch.empty(batch, channels, 0) for _ in made], 0
        for turn, tokens in enumerate(chunks, 1):
            for number, window in enumerate(made):
                new = inputs(batch, channels, tokens, start)
                start += new.numel()
                given[number] = torch.cat([given[number], new], dim=2)
                name = f"update {turn}" + (f" of object {number}" if objects > 1 else "")
                seen[f"positions that {name} returned"] = columns(run(answer, window.update, new), given[number])

    return Case(f"kernel of {kernel}: {what}", play)


FEEDING = [
    feeds("a prompt of 6, then one at a time", 4, (6, 1, 1, 1)),
    feeds("a prompt of 1, shorter than the kernel, then one at a time", 4, (1, 1, 1, 1, 1)),
    feeds("a prompt of 2, then 3 at once, then one", 4, (2, 3, 1)),
    feeds("3 sequences, a prompt of 5, then 2 and 1", 2, (5, 2, 1), batch=3, channels=3),
    feeds("two objects side by side", 3, (4, 1, 1), objects=2),
]


def check_constant(answer, kernel=4, tokens=40):
    """Wrong if an object of the class holds more after many inputs than the window itself."""
    window = object_of(answer, "update", arguments=(kernel,))
    for start in range(tokens):
        run(answer, window.update, inputs(1, 1, 1, start))
    if held(window) > 2 * kernel:
        raise Wrong(
            tested=f"the memory held after {tokens} inputs, one at a time",
            expected=f"about {kernel - 1} inputs, whatever the length",
            came=f"{held(window)} inputs",
            likely="the right inputs come back, but old ones are still held somewhere",
        )


def kept_of_a_prompt(answer, kernel=4, tokens=10_000):
    """What an object holds after a long prompt, in words; a view of the prompt is allowed here, and told of."""
    window = object_of(answer, "update", arguments=(kernel,))
    run(answer, window.update, inputs(1, 1, tokens, 0))
    if held(window) <= 2 * kernel:
        return f"a prompt of {tokens:,} inputs leaves {kernel - 1} of them behind"
    return (
        f"after a prompt of {tokens:,} inputs {held(window):,} are still held, though {kernel - 1} are enough: a slice "
        "is a view and keeps alive all that it was cut from. `.clone()` of the slice lets the rest go"
    )


@torch.no_grad()
def in_mamba(answer, parts=(2, 1, 1, 3, 1, 1)):
    """Run the learner's class in each layer of the toy Mamba; the sentence to say when all is right."""
    model = toy("toy-mamba")[0]
    cache, ids = DynamicCache(config=model.config), some_ids(model, 2, sum(parts))
    for layer in cache.layers:
        window = object_of(answer, "update", arguments=(model.config.conv_kernel,))

        def update(self, conv_states, *args, window=window, **kwargs):
            return run(answer, window.update, conv_states)

        layer.update_conv_state = MethodType(update, layer)
    plain = model(ids, use_cache=False).logits
    start = first_difference(plain, torch.cat([model(p, cache=cache).logits for p in ids.split(parts, dim=1)], dim=1))
    if start is not None:
        raise Wrong(
            tested="the toy Mamba with a window of yours in each layer",
            expected="the scores that the model gives without a cache",
            came=f"other scores from position {start} on",
        )
    return f"{len(cache.layers)} windows of yours in the toy Mamba, a prompt of 2 first: the scores without a cache"


@task("14a", "the inputs that ConvWindow.update returns and keeps, for short prompts, single tokens and chunks")
def task_14a(answer):
    """`answer`: a class made with kernel_size; `update(new)` -> (batch, channels, kernel_size - 1 + new)."""
    compare(answer, Window, FEEDING, FEEDING_MISTAKES)
    check_constant(answer)
    memory = kept_of_a_prompt(answer)
    return {"small": "five cases, every input in its place", "memory": memory, "model": in_mamba(answer)}
