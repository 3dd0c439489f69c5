"""The right answer to task 14a, and the wrong ones that people give."""

import torch

from .task import Mistake


class Window:
    """The right answer; the lines that people get wrong are attributes and methods that a mistake changes."""

    fewer = 0  # inputs too few that are kept
    padded = True
    zeros_left = True
    new_right = True

    def __init__(self, kernel_size):
        self.keep, self.window = kernel_size - 1 - self.fewer, None

    def update(self, new):
        old = self.window
        if old is None:
            old = self.zeros(new) if self.padded else new[..., :0]
            if not self.zeros_left:
                return self.hold(torch.cat([new, old], dim=-1))
        return self.hold(torch.cat([old, new] if self.new_right else [new, old], dim=-1))

    def zeros(self, new):
        return torch.zeros(new.shape[0], new.shape[1], self.keep)

    def hold(self, joined):
        self.window = joined[..., max(joined.shape[-1] - self.keep, 0) :].clone()
        return joined


def but(**changes):
    return type("ConvWindow", (Window,), changes)


def first_ones(self, joined):
    self.window = joined[..., : self.keep].clone()
    return joined


def keeps_more(number):
    def hold(self, joined):
        self.window = joined[..., -(self.keep + number) :].clone()
        return joined

    return hold


def without_the_last(self, joined):
    self.window = joined[..., -self.keep : -1].clone()
    return joined


def always_three(self, kernel_size):
    self.keep, self.window = 3, None


def last_of_the_new(self, new):
    joined = Window.update(self, new)
    self.window = new[..., -self.keep :].clone()
    return joined


def window_back(self, new):
    Window.update(self, new)
    return self.window.clone()


def along_the_batch(self, new):
    return torch.cat([self.zeros(new), new])


def everything(self, joined):
    self.window = joined.clone()
    return joined


def rolls(self, new):
    """A window of kernel_size - 1 that is rolled by one, whatever comes."""
    if self.window is None:
        return Window.update(self, new)
    joined = torch.cat([self.window, new], dim=-1)
    self.window = self.window.roll(self.step, -1)
    self.window[..., -1 if self.step < 0 else 0] = new[..., -1 if self.step < 0 else 0]
    return joined


def pads_each_time(self, new):
    self.window = None
    return Window.update(self, new)


def new_only(self, new):
    Window.update(self, new)
    return new.clone()


FORGETS = (
    "the new inputs look at zeros in place of their neighbours: the window was not kept, or it rolls the wrong way and "
    "its left end was kept; the newest inputs stand at the right"
)
FEEDING_MISTAKES = [
    Mistake(FORGETS, but(hold=first_ones)),
    Mistake(
        "the window rolls the wrong way: roll(-1) moves to the left, the new one comes last", but(update=rolls, step=1)
    ),
    Mistake("a chunk of several inputs moves the window by as many, not by one", but(update=rolls, step=-1)),
    Mistake(
        "no zeros at the left: the first input of a text looks at kernel_size - 1 neighbours too, which are silence",
        but(padded=False),
    ),
    Mistake("the zeros stand at the right; silence comes before the text", but(zeros_left=False)),
    Mistake(
        "two inputs too many are kept: `-a - 1` is -(a + 1); write -(kernel_size - 1), with brackets",
        but(hold=keeps_more(2)),
    ),
    Mistake("one input too many is kept: the last kernel_size - 1 are enough", but(hold=keeps_more(1))),
    Mistake(
        "the newest input was left out: a slice to the end has nothing after its colon", but(hold=without_the_last)
    ),
    Mistake(
        "where few inputs are new, the window lost its old ones: take the last kernel_size - 1 of both together, "
        "old and new",
        but(update=last_of_the_new),
    ),
    Mistake("the window came back; return all that it was cut from, old inputs and new ones", but(update=window_back)),
    Mistake("the number 3 holds for a kernel of 4 only: write kernel_size - 1", but(__init__=always_three)),
    Mistake(
        "zeros for one sequence; `new` may have more: new.shape[0]",
        but(zeros=lambda self, new: torch.zeros(1, new.shape[1], self.keep)),
    ),
    Mistake(
        "zeros need all three axes: torch.zeros(new.shape[0], new.shape[1], ...)",
        but(zeros=lambda self, new: torch.zeros(self.keep)),
    ),
    Mistake("torch.cat joins along the first axis, the batch, unless dim=-1 is given", but(update=along_the_batch)),
    Mistake("one input too few is kept: a kernel of 4 reaches the new one and 3 before it", but(fewer=1)),
    Mistake(
        "one input too many comes back: with kernel_size - 1 old ones the convolution gives one output for each new "
        "input",
        but(fewer=-1),
    ),
    Mistake("new inputs go to the right of the old ones", but(new_right=False)),
    Mistake("all inputs are kept; the convolution reaches kernel_size - 1 old ones and no more", but(hold=everything)),
    Mistake(FORGETS, but(hold=lambda self, joined: joined)),
    Mistake(FORGETS, but(update=pads_each_time)),
    Mistake("only the new inputs came back; the old ones that they reach belong before them", but(update=new_only)),
]
