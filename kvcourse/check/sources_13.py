"""Task 13a: keys and values of a source, computed once for each layer."""

from contextlib import contextmanager

import torch

from .objects import object_of, toy
from .playing import is_pair
from .runner import run
from .task import Case, Mistake, Wrong, compare, task
from .words import Phrase, words


class Projection:
    """What a decoder layer makes of a source: `projection(source)` -> (keys, values). `calls` counts how often."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, source):
        self.calls += 1
        return self.function(source)


def layer_of(number):
    """Keys and values of layer `number`: other numbers than those of any other layer."""
    return Projection(lambda source: (source * 10 + number / 8, -source * 10 - number / 8))


def reads(what, steps=3, layers=1, objects=1, sources=(3,), anew=True):
    """A case: each source in turn is read by all layers at each step; between two sources stands a `reset()`.

    `anew`: each step hands over the source in a tensor of its own, with the same numbers.
    """

    def play(answer, seen):
        made = [object_of(answer, "get", "reset") for _ in range(objects)]
        for turn, tokens in enumerate(sources):
            if turn:
                [run(answer, one.reset) for one in made]
            projections = {(one, layer): layer_of(layer) for one in range(objects) for layer in range(layers)}
            given = [text(tokens, start=100 * turn + 1_000 * one) for one in range(objects)]
            for step in range(1, steps + 1):
                for (one, layer), project in projections.items():
                    source = given[one].clone() if anew else given[one]
                    pair = run(answer, made[one].get, layer, source, project)
                    name = f"layer {layer}, step {step}"
                    name += f", source {turn + 1}" if len(sources) > 1 else f", object {one}" if objects > 1 else ""
                    if not is_pair(pair):
                        seen[f"keys of {name}"] = pair if pair is None else Phrase(words(pair))
                        return
                    for part, tensor in zip(("keys", "values"), pair, strict=True):
                        seen[f"{part} of {name}"] = tensor.clone()
            for (_, layer), project in projections.items():
                seen[f"projections of layer {layer}, source {turn + 1}"] = project.calls

    return Case(what, play, silent)


def silent(label, expected, came):
    """What it looks like when nothing came back: at the first step, or only later."""
    if came is not None:
        return None
    if "step 1" in label:
        return "nothing came back at the first step: is the `return` missing, or does it stand in one branch only?"
    return "step 1 returned something, this one nothing: the `return` belongs behind the `if`, not inside of it"


def text(tokens, start):
    """A source as a layer sees it, (batch, kv_heads, tokens, head_dim), every number another one."""
    return torch.arange(start, start + 4 * tokens, dtype=torch.float32).view(1, 2, tokens, 2)


READING = [
    reads("one layer, a source of 3 tokens, four steps", steps=4, anew=False),
    reads("one layer, four steps, each with the same numbers in another tensor", steps=4),
    reads("three layers in turns, three steps", layers=3),
    reads("two objects with a source each", objects=2),
    reads("a source of 3 tokens, reset(), then another one of 3 tokens", layers=2, sources=(3, 3)),
    reads("a source of 2 tokens, reset(), then one of 5", layers=2, sources=(2, 5)),
]


class Source:
    """The right answer; the mistakes below change one of its methods."""

    def __init__(self):
        self.states = {}

    def get(self, layer_idx, source, project):
        if layer_idx not in self.states:
            self.states[layer_idx] = project(source)
        return self.states[layer_idx]

    def reset(self):
        self.states = {}


def but(**methods):
    return type("SourceCache", (Source,), methods)


def appends(self, layer_idx, source, project):
    new = project(source)
    if layer_idx in self.states:
        new = tuple(torch.cat(pair, dim=2) for pair in zip(self.states[layer_idx], new, strict=True))
    self.states[layer_idx] = new
    return new


def appends_what_it_has(self, layer_idx, source, project):
    if layer_idx in self.states:
        old = self.states[layer_idx]
        self.states[layer_idx] = tuple(torch.cat(pair, dim=2) for pair in zip(old, project(source), strict=True))
        return old
    return Source.get(self, layer_idx, source, project)


def by_shape(self, layer_idx, source, project):
    return Source.get(self, (layer_idx, source.shape), source, project)


def one_flag(self, layer_idx, source, project):
    if not self.states:
        self.states[layer_idx] = project(source)
    return self.states[layer_idx]


def keeps_the_last(self, layer_idx, source, project):
    if layer_idx not in self.states:
        self.states = {layer_idx: project(source)}
    return self.states[layer_idx]


def by_identity(self, layer_idx, source, project):
    if layer_idx not in self.states or self.states[layer_idx][0] is not source:
        self.states[layer_idx] = source, project(source)
    return self.states[layer_idx][1]


def whole_dict(self, *given):
    Source.get(self, *given)
    return self.states


def swapped(self, *given):
    return Source.get(self, *given)[::-1]


def no_dict(self):
    self.states = None


def asks_softly(self, layer_idx, source, project):
    if self.states.get(layer_idx) is None:
        self.states[layer_idx] = project(source)
    return self.states[layer_idx]


FLAG = "one flag, or one place, for all layers: layer 1 never made its own keys. Each layer has states of its own"
STALE = "reset() left the old source behind, and the new one was not read"
NO_DICT = "reset() left None, and the next `get` needs a dict: begin again with an empty one"
READING_MISTAKES = [
    Mistake(
        "the source was computed again at each step: call project only `if layer_idx not in self.states`, and keep "
        "what it gives. What stands in the brackets of .get(...) or .setdefault(...) is computed before the call, so a "
        "project(source) there runs each time",
        but(get=lambda self, layer_idx, source, project: project(source)),
    ),
    Mistake("appended at each step: the source does not grow, it is read once and kept", but(get=appends)),
    Mistake("appended at each step: the source does not grow, it is read once and kept", but(get=appends_what_it_has)),
    Mistake(FLAG, but(get=lambda self, layer_idx, *rest: Source.get(self, 0, *rest))),
    Mistake(FLAG, but(get=one_flag)),
    Mistake("only one layer is kept: the next one throws it out, and it is computed again", but(get=keeps_the_last)),
    Mistake(STALE, but(reset=lambda self: None)),
    Mistake(
        "whether a source is new can't be seen from its shape: two sources may be equally long",
        but(get=by_shape, reset=lambda self: None),
    ),
    Mistake(
        "whether a source is new can't be seen from the tensor: the same numbers may come in another one. Only "
        "reset() says that a source is new",
        but(get=by_identity),
    ),
    Mistake("reset() left the source of some layers behind: forget all of them", but(reset=lambda s: s.states.pop(0))),
    Mistake(NO_DICT, but(reset=no_dict)),
    Mistake(NO_DICT, but(reset=no_dict, get=asks_softly)),
    Mistake(NO_DICT, but(reset=no_dict, get=one_flag)),
    Mistake("the dict of all layers came back; return the entry of this layer", but(get=whole_dict)),
    Mistake("keys and values are swapped: project(source) gives the keys first", but(get=swapped)),
    Mistake(
        "the states belong to the class, so all objects share them; make them in __init__",
        but(states={}, __init__=lambda self: None),
    ),
    Mistake(
        "the keys were returned twice; project(source) gives keys and values",
        but(get=lambda self, *rest: (Source.get(self, *rest)[0],) * 2),
    ),
]


@contextmanager
def put_in(answer, model):
    """Inside, the cross-attention of a T5 model gets its keys and values from one object of the learner's class."""
    made, projections, undo = object_of(answer, "get", "reset"), [], []
    for number, block in enumerate(model.get_decoder().block):
        attention = block.layer[1].EncDecAttention
        keys, values = attention.k.forward, attention.v.forward
        project = Projection(lambda source, keys=keys, values=values: (keys(source), values(source)))
        projections.append(project)
        for part, module in enumerate((attention.k, attention.v)):

            def forward(source, number=number, project=project, part=part):
                return run(answer, made.get, number, source, project)[part]

            module.forward = forward
            undo.append(module)
    try:
        yield projections
    finally:
        for module in undo:
            del module.forward


@torch.no_grad()
def in_t5(answer, number="70142"):
    """Let the toy T5 write a number with the learner's class; the sentence to say when all is right."""
    model, tokenizer = toy("toy-t5")
    source = tokenizer(number, return_tensors="pt")
    expected = model.generate(**source, use_cache=False)
    with put_in(answer, model) as projections:
        written = model.generate(**source, use_cache=False)
    steps, calls = expected.shape[1] - 1, sum(project.calls for project in projections)
    both = [tokenizer.decode(ids[0], skip_special_tokens=True) for ids in (expected, written)]
    if both[0] != both[1]:
        raise Wrong(tested=f"the toy T5 reads {number}", expected=both[0], came=both[1])
    return f"{both[1]!r} in {steps} steps; the source was projected {calls} times, once for each layer"


@task("13a", "how often SourceCache computes the source, and what each layer gets")
def task_13a(answer):
    """`answer`: a class with `get(layer_idx, source, project)` -> (keys, values), and `reset()`."""
    compare(answer, Source, READING, READING_MISTAKES)
    return {"small": "six cases: each layer once for each source", "model": in_t5(answer)}
