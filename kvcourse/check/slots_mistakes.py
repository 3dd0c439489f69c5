"""For task 08a: the right layer, and wrong answers that people give."""

import torch

from .task import Mistake


class Right:
    """The right answer, with the lines that go wrong as methods."""

    def __init__(self, batch, kv_heads, slots, head_dim):
        self.keys = torch.zeros(batch, kv_heads, slots, head_dim)
        self.values = torch.zeros_like(self.keys)
        self.seen = torch.tensor(0)

    def update(self, keys, values):
        slots = torch.arange(keys.shape[-2]) + self.seen
        self.keys[:, :, slots], self.values[:, :, slots] = keys, values
        self.seen += keys.shape[-2]
        return self.keys, self.values

    def reset(self):
        self.seen.zero_()


def variant(update=Right.update, reset=Right.reset):
    """The right answer with another `update` or `reset`."""
    return type("Layer", (Right,), {"update": update, "reset": reset})


def concatenates(self, keys, values):
    self.keys, self.values = torch.cat([self.keys, keys], 2), torch.cat([self.values, values], 2)
    return self.keys, self.values


def concatenates_what_is_filled(self, keys, values):
    n = int(self.seen)
    self.keys, self.values = torch.cat([self.keys[:, :, :n], keys], 2), torch.cat([self.values[:, :, :n], values], 2)
    self.seen += keys.shape[2]
    return self.keys, self.values


def pads_anew(self, keys, values):
    room = self.keys.shape[2]
    keys, values = concatenates_what_is_filled(self, keys, values)
    spare = (0, 0, 0, room - keys.shape[2])
    self.keys, self.values = (torch.nn.functional.pad(part, spare) for part in (keys, values))
    return self.keys, self.values


def copies(self, keys, values):
    keys, values = Right.update(self, keys, values)
    return keys.clone(), values.clone()


def filled_alone(self, keys, values):
    keys, values = Right.update(self, keys, values)
    return keys[:, :, : int(self.seen)], values[:, :, : int(self.seen)]


def new_alone(self, keys, values):
    Right.update(self, keys, values)
    return keys, values


def never_counts(self, keys, values):
    returned = Right.update(self, keys, values)
    self.seen.zero_()
    return returned


def counts_updates(self, keys, values):
    returned = Right.update(self, keys, values)
    self.seen += 1 - keys.shape[2]
    return returned


def counts_first(self, keys, values):
    self.seen += keys.shape[2]
    slots = (torch.arange(keys.shape[2]) + self.seen) % self.keys.shape[2]
    self.keys[:, :, slots], self.values[:, :, slots] = keys, values
    return self.keys, self.values


def one_slot(self, keys, values):
    self.keys[:, :, self.seen], self.values[:, :, self.seen] = keys[:, :, -1], values[:, :, -1]
    self.seen += keys.shape[2]
    return self.keys, self.values


def counts_along(axis):
    """Takes another axis for that of the tokens."""

    def update(self, keys, values):
        slots = torch.arange(keys.shape[axis]) + self.seen
        self.keys[:, :, slots], self.values[:, :, slots] = keys, values
        self.seen += keys.shape[axis]
        return self.keys, self.values

    return update


class FloatCount(Right):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.seen = torch.zeros(())


def keys_alone(self, keys, values):
    Right.update(self, keys, torch.zeros_like(values))
    return self.keys, self.values


def new_buffers(self):
    self.keys, self.values = torch.zeros_like(self.keys), torch.zeros_like(self.values)
    self.seen.zero_()


AXES = "keys is (batch, kv_heads, q_len, head_dim): the new tokens are axis 2, so their number is keys.shape[2]"
MOVED = "new buffers, or copies of them, came back at each update: write into the old ones and return those themselves"
FILLING_MISTAKES = [
    Mistake(
        "the new tokens were joined behind the empty slots: write them into the slots that are there",
        variant(concatenates),
    ),
    Mistake(
        "concatenation, as in a cache that grows: another length and another place at each step. Write into the slots",
        variant(concatenates_what_is_filled),
    ),
    Mistake(
        "only the filled slots were returned, another shape at each step; return all of them, the mask hides the rest",
        variant(filled_alone),
    ),
    Mistake("only the new tokens were returned; return all slots", variant(new_alone)),
    Mistake(MOVED, variant(pads_anew)),
    Mistake(MOVED, variant(copies)),
    Mistake("the tokens are not counted, so each update writes over the one before", variant(never_counts)),
    Mistake("updates were counted, not tokens: a prompt has many", variant(counts_updates)),
    Mistake("the count was raised before the tokens were written, so slots stay free in front", variant(counts_first)),
    Mistake("only one slot was written for an update of several tokens: they need one each", variant(one_slot)),
    Mistake("the keys were written and the values not; both have to be", variant(keys_alone)),
    Mistake(AXES, variant(counts_along(0))),
    Mistake(AXES, variant(counts_along(1))),
    Mistake(AXES, variant(counts_along(3))),
    Mistake("the count is a float, and slot numbers are whole: `torch.tensor(0)`, or `dtype=torch.long`", FloatCount),
    Mistake(
        "after reset() the count goes on where it was, so the next text begins behind the old one; count from 0",
        variant(reset=lambda self: self.keys.zero_()),
    ),
    Mistake("reset() made new buffers; it has to forget the count and move nothing", variant(reset=new_buffers)),
]
