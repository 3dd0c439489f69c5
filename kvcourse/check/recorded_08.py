"""For task 08a: what a compiler records of an update, and whether a device could replay that without asking."""

import torch

from ..graphs import recorder
from .playing import states
from .positions import where
from .runner import run
from .slots_mistakes import Right, variant
from .task import Case, Mistake
from .words import Phrase

STEPS = 30


def watched(step, given):
    """`step` compiled, the list of its graphs, and for each run of one {name: tensor} of what it read, but `given`."""
    torch._dynamo.reset()
    (backend, graphs), read = recorder(), []
    handed_over = {tensor.untyped_storage().data_ptr() for tensor in given}

    def watching(graph, example_inputs):
        forward = backend(graph, example_inputs)
        names = [node.target.removeprefix("L_") for node in graph.graph.nodes if node.op == "placeholder"]

        def replay(*inputs):
            pairs = [pair for pair in zip(names, inputs, strict=True) if isinstance(pair[1], torch.Tensor)]
            own = [(name, it) for name, it in pairs if it.untyped_storage().data_ptr() not in handed_over]
            read.append({name.strip("_").replace("self_", "self."): it for name, it in own})
            return forward(*inputs)

        return replay

    return torch.compile(step, fullgraph=True, backend=watching), graphs, read


def recording(made):
    """A case: two texts of a prompt and STEPS compiled tokens. `made(answer, *sizes)` gives an object of the class."""

    def play(answer, seen):
        layer, (keys, values) = made(answer, 1, 1, STEPS + 8, 2), states(1, 1, STEPS + 5, 2)
        step, graphs, read = watched(layer.update, (keys, values))
        for text in ("", ", a reset and 30 more"):
            if text:
                run(answer, layer.reset)
            run(answer, layer.update, keys[:, :, :5], values[:, :, :5])
            for token in range(5, STEPS + 5):
                try:
                    returned = step(keys[:, :, token : token + 1], values[:, :, token : token + 1])
                except Exception as error:
                    seen[f"graphs after {STEPS} steps{text}"] = Phrase(f"no graph: torch.compile says {_said(error)}")
                    return
            seen[f"graphs after {STEPS} steps{text}"] = len(graphs)
            calls = [node for graph in graphs for node in graph.graph.nodes if node.target == "item"]
            seen["numbers that the graph has to fetch out of a tensor"] = len(calls)
            first, later = read[0], read[1:]
            moved = {name for other in later for name in first if name in other and not _at_home(first, other, name)}
            seen[f"tensors that moved in {STEPS} steps{text}"] = sorted(moved)
            seen[f"tokens in the slots after {STEPS} steps{text}"] = where(returned[0], keys)[: STEPS + 5]

    what = f"a prompt of 5 tokens, then {STEPS} compiled steps of one token, twice"
    return Case(what, play, explain_graphs)


def _at_home(first, other, name):
    return first[name].data_ptr() == other[name].data_ptr()


def _said(error):
    """The first line of an error of the compiler, and the name of the function that it stopped at, if that is print."""
    line = (str(error).strip() or "nothing more").splitlines()[0]
    return f"{type(error).__name__}: {line[:120]}{' `print`' if '`print`' in str(error) else ''}"


ITEM = (
    "a Python number was needed out of a tensor (`item()`, or a slice with it), and a device that replays a recording "
    "has nobody to hand it to: index with a tensor of slot numbers, `torch.arange(...) + self.seen`"
)


def explain_graphs(label, expected, came):
    """Where the step could not be recorded, or only with a question in the middle."""
    if label.startswith("numbers") or (isinstance(came, str) and ("data-dependent" in came or "nbacked" in came)):
        return ITEM
    if isinstance(came, str) and "`print`" in came:
        return "a `print` cannot be recorded: take it out of update"
    return None


class PythonCount(Right):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.seen = 0

    def reset(self):
        self.seen = 0


def new_count(self, keys, values):
    slots = torch.arange(keys.shape[-2]) + self.seen
    self.keys[:, :, slots], self.values[:, :, slots] = keys, values
    self.seen = self.seen + keys.shape[-2]
    return self.keys, self.values


def new_count_at_reset(self):
    self.seen = torch.tensor(0)


RECORDED_MISTAKES = [
    Mistake(
        "the count is a Python number: it was recorded as it was, and when it changed the step was recorded anew. "
        "A tensor that is changed in place is read at each step",
        PythonCount,
    ),
    Mistake(
        "the count is a new tensor after each update, and a recording holds the address of the old one: change it in "
        "place, with `+=`, and with `zero_()` in reset",
        variant(new_count),
    ),
    Mistake(
        "reset() made a new tensor for the count, and a recording holds the address of the old one: "
        "`self.seen.zero_()`",
        variant(reset=new_count_at_reset),
    ),
]
