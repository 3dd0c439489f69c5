"""Task 14b: one step of a recurrent state, against the sum over all tokens."""

import torch

from .attention_01 import numbers
from .cost import held
from .objects import object_of
from .runner import Stopped, run
from .task import Case, Mistake, Wrong, compare, task
from .words import difference, same

LAYOUT = {"batch": "sequence", "heads": "head", "head_dim": "channel"}


def steps(batch, heads, head_dim, state, tokens):
    """For each of `tokens` steps (decay, what, where, ask), every number another one; decays between 0.3 and 1."""
    shapes = ((batch, heads), (batch, heads, head_dim), (batch, heads, state), (batch, heads, state))
    start = 0
    for _ in range(tokens):
        made = []
        for shape in shapes:
            made.append(numbers(*shape, start=start))
            start += made[-1].numel()
        yield [0.65 + made[0] / 6, *made[1:]]


def takes(tokens, batch=1, heads=1, head_dim=2, state=3, objects=1):
    """A case: so many steps, and what each of them answers."""

    def play(answer, seen):
        made = [object_of(answer, "step") for _ in range(objects)]
        for number, given in enumerate(steps(batch, heads, head_dim, state, tokens * objects)):
            turn, one = number // objects + 1, number % objects
            name = f"output of step {turn}" + (f", object {one}" if objects > 1 else "")
            output = run(answer, made[one].step, *[tensor.clone() for tensor in given])
            seen[name] = output.clone() if isinstance(output, torch.Tensor) else output

    size = f"{many(batch, 'sequence')}, {many(heads, 'head')}, a state of {head_dim} x {state}"
    return Case(f"{many(tokens, 'step')}; {size}" + (f", {objects} objects" if objects > 1 else ""), play)


def many(count, thing):
    return f"{count} {thing}{'s' * (count > 1)}"


STEPPING = [takes(1), takes(3), takes(6, batch=3, heads=2), takes(4, heads=4, head_dim=3, state=2), takes(3, objects=2)]


class Scan:
    """The right answer, without any state: all tokens are kept, and each step sums over them, as a scan does."""

    def __init__(self):
        self.brought, self.decays = [], []

    def step(self, decay, what, where, ask):
        self.brought.append((what, where))
        self.decays.append(decay)
        total, weight = 0, torch.ones_like(decay)
        for (what, where), decay in zip(reversed(self.brought), reversed(self.decays), strict=True):
            total = total + (weight * (where * ask).sum(-1)).unsqueeze(-1) * what
            weight = weight * decay
        return total


class Step:
    """The rule, with its lines as methods that a mistake changes."""

    state = 0

    def step(self, decay, what, where, ask):
        old, new = self.state, what.unsqueeze(-1) * where.unsqueeze(-2)
        self.state = self.rule(decay[..., None, None], old, new)
        return self.read(old, self.state, ask)

    def rule(self, decay, old, new):
        return decay * old + new

    def read(self, before, after, ask):
        return (after @ ask.unsqueeze(-1)).squeeze(-1)


def but(**methods):
    return type("State", (Step,), methods)


def read_before(self, before, after, ask):
    return Step.read(self, before, before if isinstance(before, torch.Tensor) else after * 0, ask)


def sums(self, before, after, ask):
    return after.sum(-1)


def without_axes(swap, zeros, one=False):
    """The decay (batch, heads) meets a state with two axes more, from the left or from the right; `zeros`: from the
    first step on, as the state begins with zeros. `one`: the decay got one of the two axes."""

    def rule(self, decay, old, new):
        if old is Step.state and not zeros:
            return new
        decay, old = decay[..., 0] if one else decay[..., 0, 0], old + torch.zeros_like(new)
        return (old * decay if swap else decay * old) + new

    return rule


def by_outer(self, decay, what, where, ask):
    return torch.outer(what, where)


def table_turned(self, decay, what, where, ask):
    old, new = self.state, what.unsqueeze(-2) * where.unsqueeze(-1)
    self.state = decay[..., None, None] * old + new
    return self.read(old, self.state, ask)


EITHER = (False, True)
ALONG = "ask is (batch, heads, state): ask[..., None, :] lays it along the last axis of the state"
LINE_UP = (  # both end with the same error, in another line
    "the axes don't line up. If that line is about decay, it lacks two axes: decay[..., None, None]; if it is about "
    "ask, it lacks one before its last: ask[..., None, :]"
)
AXES = "decay is (batch, heads) and the state has two axes more: decay[..., None, None]"
STEPPING_MISTAKES = [
    Mistake(
        "decayed after adding: what a token brings is not forgotten in the step that brings it",
        but(rule=lambda self, decay, old, new: decay * (old + new)),
    ),
    Mistake(
        "it starts again at each step: the state of the step before has to be kept in self.state",
        but(rule=lambda self, decay, old, new: new),
    ),
    Mistake(
        "nothing is forgotten: the old state is multiplied by decay", but(rule=lambda self, d, old, new: old + new)
    ),
    Mistake(
        "decay is the share that stays, not the share that goes",
        but(rule=lambda self, decay, old, new: (1 - decay) * old + new),
    ),
    Mistake(
        "an average: what is new comes in whole, only the old is made smaller",
        but(rule=lambda self, decay, old, new: decay * old + (1 - decay) * new),
    ),
    Mistake("read before it was written: a token sees what it brings itself", but(read=read_before)),
    Mistake("ask was not used: state @ ask reads what is asked for", but(read=sums)),
    Mistake(
        "torch.outer takes one list each, and no batch and no heads: what[..., :, None] * where[..., None, :] makes "
        "the table for all of them",
        but(step=by_outer),
    ),
    *[
        Mistake(LINE_UP if one else AXES, but(rule=without_axes(swap, zeros, one)))
        for swap in EITHER
        for zeros in EITHER
        for one in EITHER
    ],
    Mistake(
        "the sum went over head_dim; it goes over the axis of the state, the last one: sum(-1)",
        but(read=lambda self, before, after, ask: (after * ask.unsqueeze(-2)).sum(-2)),
    ),
    Mistake(ALONG, but(read=lambda self, before, after, ask: (after * ask.unsqueeze(-1)).sum(-1))),
    Mistake(LINE_UP, but(read=lambda self, before, after, ask: (after * ask).sum(-1))),
    Mistake(LINE_UP, but(read=lambda self, before, after, ask: (ask * after).sum(-1))),
    Mistake(
        "the table is turned: entry (d, s) is what[d] * where[s], so what[..., :, None] * where[..., None, :]",
        but(step=table_turned),
    ),
    Mistake(
        "a matrix product wants a column: state @ ask[..., None], and squeeze(-1) takes the last axis out again",
        but(read=lambda self, before, after, ask: after @ ask),
    ),
    Mistake(
        "squeeze() takes out every axis of size 1, a batch of one as well: squeeze(-1)",
        but(read=lambda self, before, after, ask: (after @ ask.unsqueeze(-1)).squeeze()),
    ),
    Mistake(
        "the state itself came back; read it with ask: one number for each of head_dim",
        but(read=lambda self, before, after, ask: after),
    ),
    Mistake(
        "one axis too many: squeeze the last one, which the matrix product left",
        but(read=lambda self, before, after, ask: after @ ask.unsqueeze(-1)),
    ),
]


def check_own(answer):
    """Wrong if a second object of the class begins with what the first one has left."""
    given, outputs = next(steps(1, 1, 2, 3, 1)), []
    try:
        for _ in range(2):
            outputs.append(run(answer, object_of(answer, "step").step, *[tensor.clone() for tensor in given]))
    except Stopped:  # compare says it better
        return
    if same(*outputs, 1e-4):
        return
    expected, came = difference(*outputs, 1e-4, LAYOUT)
    raise Wrong(
        tested="the first step of two objects, one after the other, with the same numbers",
        expected=f"the same output twice: {expected}",
        came=came,
        likely="the state belongs to the class, so all objects share it: write self.state, and begin in __init__",
    )


def check_constant(answer, tokens=40):
    """Wrong if an object of the class grows with the text."""
    layer, sizes = object_of(answer, "step"), []
    for given in steps(1, 1, 2, 3, tokens):
        run(answer, layer.step, *given)
        sizes.append(held(layer))
    if sizes[-1] > sizes[0]:
        raise Wrong(
            tested=f"the numbers that one object holds, after 1 step and after {tokens}",
            expected=f"{sizes[0]} and {sizes[0]}: a state is as large after one token as after a million",
            came=f"{sizes[0]} and {sizes[-1]}",
            likely="it grows: tokens are kept beside the state or in its place. Fold each into the state and let it go",
        )
    return f"{sizes[0]} numbers after 1 step, {sizes[-1]} after {tokens}"


@task("14b", "State.step against the sum over all tokens so far, and what it holds")
def task_14b(answer):
    """`answer`: a class with `step(decay, what, where, ask)` -> output (batch, heads, head_dim)."""
    check_own(answer)
    compare(answer, Scan, STEPPING, STEPPING_MISTAKES, 1e-4, LAYOUT)
    return {"outputs": "those of the sum over all tokens, in five cases", "memory": check_constant(answer)}
