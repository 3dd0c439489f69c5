"""Lesson 14: the window of a convolution, one step of a state, what a state allows."""

import torch

# 14a


class Convolution:
    """As in the notebook; subclasses change one thing."""

    def __init__(self, kernel_size):
        self.kernel_size, self.window = kernel_size, None

    def start(self, new):
        return new.new_zeros(new.shape[0], new.shape[1], self.kernel_size - 1)

    def update(self, new):
        if self.window is None:
            self.window = self.start(new)
        joined = torch.cat([self.window, new], dim=-1)
        self.window = joined[..., -(self.kernel_size - 1) :]
        return joined


class NoPadding(Convolution):
    def start(self, new):
        return new[..., :0]


class TooFew(Convolution):
    def start(self, new):
        return new.new_zeros(*new.shape[:2], self.kernel_size - 2)

    def update(self, new):
        if self.window is None:
            self.window = self.start(new)
        joined = torch.cat([self.window, new], dim=-1)
        self.window = joined[..., joined.shape[-1] - (self.kernel_size - 2) :]
        return joined


class TooMany(Convolution):
    def update(self, new):
        self.kernel_size += 1
        joined = super().update(new)
        self.kernel_size -= 1
        return joined


class RollsTheWrongWay(Convolution):
    def update(self, new):
        joined = super().update(new)
        self.window = joined[..., : self.kernel_size - 1]
        return joined


class RollsByOne(Convolution):
    """A roll to the right, with the new input in the first place."""

    def update(self, new):
        if self.window is None:
            return super().update(new)
        joined = torch.cat([self.window, new], dim=2)
        self.window = self.window.roll(1, dims=2)
        self.window[..., 0] = new[..., 0]
        return joined


class OneAtATime(Convolution):
    def update(self, new):
        if self.window is None:
            return super().update(new)
        joined = torch.cat([self.window, new], dim=2)
        self.window = torch.cat([self.window[..., 1:], new[..., -1:]], dim=2)
        return joined


class NewestFirst(Convolution):
    def update(self, new):
        if self.window is None:
            self.window = self.start(new)
        joined = torch.cat([new, self.window], dim=-1)
        self.window = joined[..., -(self.kernel_size - 1) :]
        return joined


class PadsAtTheRight(Convolution):
    def update(self, new):
        if self.window is None:
            joined = torch.cat([new, self.start(new)], dim=-1)
            self.window = joined[..., -(self.kernel_size - 1) :]
            return joined
        return super().update(new)


class KeepsAll(Convolution):
    def update(self, new):
        self.window = torch.cat([self.start(new) if self.window is None else self.window, new], dim=-1)
        return self.window


class NeverStores(Convolution):
    def update(self, new):
        return torch.cat([self.start(new), new], dim=-1)


class ReturnsTheNew(Convolution):
    def update(self, new):
        super().update(new)
        return new.clone()


class KeepsAHistory(Convolution):
    """Right numbers, but nothing is ever let go."""

    def update(self, new):
        old = self.start(new) if self.window is None else self.window
        self.window = torch.cat([old, new], dim=-1)
        return self.window[..., -(self.kernel_size - 1 + new.shape[-1]) :]


class WithoutBrackets(Convolution):
    def update(self, new):
        if self.window is None:
            self.window = self.start(new)
        joined = torch.cat([self.window, new], dim=-1)
        self.window = joined[..., -self.kernel_size - 1 :]
        return joined


class KeepsTheKernel(Convolution):
    def update(self, new):
        joined = super().update(new)
        self.window = joined[..., -self.kernel_size :]
        return joined


class LeavesOutTheLast(Convolution):
    def update(self, new):
        joined = super().update(new)
        self.window = joined[..., -(self.kernel_size - 1) : -1]
        return joined


class LooksAtTheNewAlone(Convolution):
    def update(self, new):
        joined = super().update(new)
        self.window = new[..., -(self.kernel_size - 1) :]
        return joined


class ReturnsTheWindow(Convolution):
    def update(self, new):
        super().update(new)
        return self.window


class Three(Convolution):
    def __init__(self, kernel_size):
        super().__init__(4)


class ForOneSequence(Convolution):
    def start(self, new):
        return torch.zeros(1, new.shape[1], self.kernel_size - 1)


class WithoutAxes(Convolution):
    def start(self, new):
        return torch.zeros(self.kernel_size - 1)


class AlongTheBatch(Convolution):
    def update(self, new):
        if self.window is None:
            self.window = self.start(new)
        joined = torch.cat([self.window, new])
        self.window = joined[..., -(self.kernel_size - 1) :]
        return joined


class Nothing(Convolution):
    def update(self, new):
        super().update(new)


class KeepsWhatItReturned(Convolution):
    """Right, though the last joined inputs are still held."""

    def update(self, new):
        self.joined = super().update(new)
        return self.joined


class AViewOfTheNew(Convolution):
    """Right: a long prompt fills the window by itself."""

    def update(self, new):
        reach = self.kernel_size - 1
        joined = super().update(new)
        if new.shape[-1] >= reach:
            self.window = new[..., -reach:]
        return joined


class Padded:
    """Right: `pad` in place of zeros."""

    def __init__(self, kernel_size):
        self.reach, self.window = kernel_size - 1, None

    def update(self, new):
        first = self.window is None
        joined = torch.nn.functional.pad(new, (self.reach, 0)) if first else torch.cat((self.window, new), 2)
        self.window = joined[..., -self.reach :].clone()
        return joined


class InColumns:
    """Right: a list of columns, and a pad in place of zeros at the start."""

    def __init__(self, kernel_size):
        self.reach, self.last = kernel_size - 1, []

    def update(self, new):
        columns = [*self.last, *new.clone().unbind(-1)]
        missing = self.reach - len(self.last)
        self.last = columns[len(columns) - self.reach :] if len(columns) > self.reach else columns
        if missing:
            columns = [torch.zeros_like(columns[0])] * missing + columns
        return torch.stack(columns, dim=-1)


# 14b


class State:
    def __init__(self):
        self.state = None

    def brings(self, what, where):
        return what[..., :, None] * where[..., None, :]

    def step(self, decay, what, where, ask):
        new = self.brings(what, where)
        if self.state is None:
            self.state = torch.zeros_like(new)
        self.state = decay[..., None, None] * self.state + new
        return torch.einsum("bhds,bhs->bhd", self.state, ask)


class DecaysAfterAdding(State):
    def step(self, decay, what, where, ask):
        if self.state is None:
            self.state = torch.zeros_like(self.brings(what, where))
        self.state = (self.state + self.brings(what, where)) * decay[..., None, None]
        return torch.einsum("bhds,bhs->bhd", self.state, ask)


class Restarts(State):
    def step(self, *given):
        self.state = None
        return super().step(*given)


class NeverForgets(State):
    def step(self, decay, *given):
        return super().step(torch.ones_like(decay), *given)


class ForgetsTheRest(State):
    def step(self, decay, *given):
        return super().step(1 - decay, *given)


class Averages(State):
    def step(self, decay, what, where, ask):
        return super().step(decay, what * (1 - decay[..., None]), where, ask)


class ReadsFirst(State):
    def step(self, decay, what, where, ask):
        before = torch.zeros_like(self.brings(what, where)) if self.state is None else self.state
        super().step(decay, what, where, ask)
        return torch.einsum("bhds,bhs->bhd", before, ask)


class ReturnsTheState(State):
    def step(self, *given):
        super().step(*given)
        return self.state


class Grows(State):
    """A list in place of a state: the right outputs, for more and more bytes."""

    def step(self, decay, what, where, ask):
        self.parts = [part * decay[..., None, None] for part in getattr(self, "parts", [])]
        self.parts.append(self.brings(what, where))
        return (sum(self.parts) @ ask[..., None])[..., 0]


class GrowsAnAxis(State):
    def step(self, decay, what, where, ask):
        new = self.brings(what, where).unsqueeze(0)
        if self.state is not None:
            new = torch.cat([self.state * decay[..., None, None], new])
        self.state = new
        return torch.einsum("tbhds,bhs->bhd", self.state, ask)


class ByOuter(State):
    def brings(self, what, where):
        return torch.outer(what, where)


class DecayWithoutAxes(State):
    def step(self, decay, what, where, ask):
        new = self.brings(what, where)
        self.state = new if self.state is None else decay * self.state + new
        return torch.einsum("bhds,bhs->bhd", self.state, ask)


class DecayFromTheRight(State):
    def step(self, decay, what, where, ask):
        new = self.brings(what, where)
        old = torch.zeros_like(new) if self.state is None else self.state
        self.state = old * decay + new
        return torch.einsum("bhds,bhs->bhd", self.state, ask)


class DecayWithOneAxis(State):
    def step(self, decay, what, where, ask):
        new = self.brings(what, where)
        self.state = new if self.state is None else decay[..., None] * self.state + new
        return torch.einsum("bhds,bhs->bhd", self.state, ask)


class DecayWithOneAxisFromTheStart(State):
    def step(self, decay, what, where, ask):
        new = self.brings(what, where)
        old = torch.zeros_like(new) if self.state is None else self.state
        self.state = decay[:, :, None] * old + new
        return torch.einsum("bhds,bhs->bhd", self.state, ask)


class SumsOverTheWrongAxis(State):
    def step(self, decay, what, where, ask):
        super().step(decay, what, where, ask)
        return (self.state * ask[..., None, :]).sum(-2)


class AsksAlongTheWrongAxis(State):
    def step(self, decay, what, where, ask):
        super().step(decay, what, where, ask)
        return (self.state * ask[..., None]).sum(-1)


class AsksWithoutAnAxis(State):
    def step(self, decay, what, where, ask):
        super().step(decay, what, where, ask)
        return (self.state * ask).sum(dim=-1)


class TurnsTheTable(State):
    def step(self, decay, what, where, ask):
        new = where[..., :, None] * what[..., None, :]
        old = torch.zeros_like(new) if self.state is None else self.state
        self.state = decay[..., None, None] * old + new
        return (self.state @ ask[..., None]).squeeze(-1)


class AsksWithARow(State):
    def step(self, decay, what, where, ask):
        super().step(decay, what, where, ask)
        return self.state @ ask


class SqueezesAll(State):
    def step(self, decay, what, where, ask):
        super().step(decay, what, where, ask)
        return (self.state @ ask[..., None]).squeeze()


class SqueezesNone(State):
    def step(self, decay, what, where, ask):
        super().step(decay, what, where, ask)
        return self.state @ ask[..., None]


class SaysNothing(State):
    def step(self, *given):
        super().step(*given)


class OfTheClass:
    state = None

    def step(self, decay, what, where, ask):
        new = what[..., :, None] * where[..., None, :]
        old = torch.zeros_like(new) if OfTheClass.state is None else OfTheClass.state
        OfTheClass.state = decay[..., None, None] * old + new
        return (OfTheClass.state @ ask[..., None]).squeeze(-1)


class HeadByHead(State):
    """Right: two loops, and torch.outer inside."""

    def brings(self, what, where):
        rows = zip(what, where, strict=True)
        return torch.stack([torch.stack([torch.outer(*pair) for pair in zip(*row, strict=True)]) for row in rows])


class Turned:
    """Right: the state lies the other way round."""

    def __init__(self):
        self.table = None

    def step(self, decay, what, where, ask):
        new = where[..., :, None] * what[..., None, :]
        self.table = new if self.table is None else self.table * decay[..., None, None] + new
        return (ask[..., None, :] @ self.table)[..., 0, :]


class ByMatrixProduct:
    """Right: a product of a column and a row, and a state that starts as the number 0."""

    state = 0

    def step(self, decay, what, where, ask):
        self.state = self.state * decay.unsqueeze(-1).unsqueeze(-1) + what.unsqueeze(-1) @ where.unsqueeze(-2)
        return (self.state * ask.unsqueeze(-2)).sum(dim=-1)


# 14c

WORKS, NO_WAY_BACK, NO_LIST = "works", "refused: no way back", "refused: no list of tokens"
TRUTH = dict.fromkeys("abcg", NO_WAY_BACK) | dict.fromkeys("deh", WORKS) | {"f": NO_LIST}

WRONG = {
    "14a": [
        (RollsTheWrongWay, "rolls the wrong way"),
        (RollsByOne, "rolls the wrong way"),
        (OneAtATime, "moves the window by as many"),
        (NoPadding, "no zeros at the left"),
        (TooFew, "one input too few is kept"),
        (TooMany, "one input too many comes back"),
        (NewestFirst, "go to the right of the old ones"),
        (PadsAtTheRight, "the zeros stand at the right"),
        (KeepsAll, "no more"),
        (KeepsAHistory, "still held somewhere"),
        (NeverStores, "was not kept"),
        (ReturnsTheNew, "only the new inputs came back"),
        (WithoutBrackets, "with brackets"),
        (KeepsTheKernel, "one input too many is kept"),
        (LeavesOutTheLast, "the newest input was left out"),
        (LooksAtTheNewAlone, "the window lost its old ones"),
        (ReturnsTheWindow, "the window came back"),
        (Three, "for a kernel of 4 only"),
        (ForOneSequence, "zeros for one sequence"),
        (WithoutAxes, "all three axes"),
        (AlongTheBatch, "unless dim=-1 is given"),
        (Nothing, "is the `return` missing"),
        (Convolution(4), "hand the class itself"),
    ],
    "14b": [
        (DecaysAfterAdding, "decayed after adding"),
        (Restarts, "it starts again at each step"),
        (Grows, "it grows"),
        (GrowsAnAxis, "it grows"),
        (NeverForgets, "nothing is forgotten"),
        (ForgetsTheRest, "the share that stays"),
        (Averages, "an average"),
        (ReadsFirst, "read before it was written"),
        (ReturnsTheState, "the state itself came back"),
        (ByOuter, "torch.outer takes one list each"),
        (DecayWithoutAxes, "decay[..., None, None]"),
        (DecayFromTheRight, "decay[..., None, None]"),
        (DecayWithOneAxis, "decay[..., None, None]"),
        (DecayWithOneAxisFromTheStart, "decay[..., None, None]"),
        (SumsOverTheWrongAxis, "the last one: sum(-1)"),
        (AsksAlongTheWrongAxis, "ask[..., None, :]"),
        (AsksWithoutAnAxis, "ask[..., None, :]"),
        (TurnsTheTable, "the table is turned"),
        (AsksWithARow, "wants a column"),
        (SqueezesAll, "a batch of one as well"),
        (SqueezesNone, "one axis too many"),
        (SaysNothing, "is the `return` missing"),
        (OfTheClass, "all objects share it"),
        (State(), "hand the class itself"),
    ],
    "14c": [
        (TRUTH | {"a": WORKS}, "out of the sum"),
        (TRUTH | {"b": WORKS}, "a short text does not help"),
        (TRUTH | {"c": WORKS}, "recording helps a window"),
        (TRUTH | {"d": NO_WAY_BACK}, "copying is possible"),
        (TRUTH | {"e": NO_LIST}, "treated as one thing"),
        (TRUTH | {"f": WORKS}, "there is nothing to count"),
        (TRUTH | {"f": NO_WAY_BACK}, "there is nothing to count"),
        (TRUTH | {"g": WORKS}, "the moment when it was made"),
        (TRUTH | {"g": NO_LIST}, "can't be taken out again"),
        (TRUTH | {"h": NO_LIST}, "treated as one thing"),
        (TRUTH | {"a": NO_LIST}, "can't be taken out again"),
        (TRUTH | {"a": "refused"}, "choose one of: works"),
        (dict.fromkeys("abcdefgh", WORKS), "out of the sum"),
        (dict.fromkeys("abcdefgh", NO_WAY_BACK), "copying is possible"),
        (TRUTH | {"h": False}, "choose one of: works"),
        (list(TRUTH.values()), "a dict such as"),
    ],
}
RIGHT = {
    "14a": [Convolution, InColumns, AViewOfTheNew, KeepsWhatItReturned, Padded],
    "14b": [State, ByMatrixProduct, HeadByHead, Turned],
    "14c": [
        TRUTH,
        {letter.upper(): f" {said.removeprefix('refused: ').title()}" for letter, said in TRUTH.items()},
    ],
}
