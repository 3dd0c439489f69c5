"""Lesson 08: a layer in fixed slots, the mask for it, the share of masked scores."""

import torch

from kvcourse.layers import StaticLayer

# 08a


def layer(update, reset=None, count=lambda: torch.tensor(0)):
    """A class as in the notebook."""

    def __init__(self, batch, kv_heads, slots, head_dim):
        self.keys = torch.zeros(batch, kv_heads, slots, head_dim)
        self.values = torch.zeros(batch, kv_heads, slots, head_dim)
        self.seen = count()

    def zero(self):
        self.seen.zero_()

    return type("FixedLayer", (), {"__init__": __init__, "update": update, "reset": reset or zero})


def write(self, keys, values):
    """Right."""
    slots = self.seen + torch.arange(keys.shape[2])
    self.keys.index_copy_(2, slots, keys)
    self.values.index_copy_(2, slots, values)
    self.seen.add_(keys.shape[2])
    return self.keys, self.values


def write_and_rebind(self, keys, values):
    """Right: a new tensor for the count each time."""
    slots = torch.arange(keys.shape[2]) + self.seen
    self.keys[:, :, slots], self.values[:, :, slots] = keys, values
    self.seen = self.seen + keys.shape[2]
    return self.keys, self.values


def slot_by_slot(self, keys, values):
    for i in range(keys.shape[2]):
        self.keys[:, :, self.seen + i] = keys[:, :, i]
        self.values[:, :, self.seen + i] = values[:, :, i]
    self.seen += keys.shape[2]
    return self.keys, self.values


def slice_and_add(self, keys, values):
    end = self.seen + keys.shape[2]
    self.keys[:, :, self.seen : end] = keys
    self.values[:, :, self.seen : end] = values
    self.seen = end
    return self.keys, self.values


def zero_number(self):
    self.seen = 0


def concatenates(self, keys, values):
    self.keys = torch.cat((self.keys, keys), dim=2)
    self.values = torch.cat((self.values, values), dim=2)
    return self.keys, self.values


def concatenates_the_filled(self, keys, values):
    self.keys = torch.cat((self.keys[:, :, : self.seen], keys), dim=2)
    self.values = torch.cat((self.values[:, :, : self.seen], values), dim=2)
    self.seen += keys.shape[2]
    return self.keys, self.values


def returns_the_filled(self, keys, values):
    write(self, keys, values)
    return self.keys[:, :, : self.seen], self.values[:, :, : self.seen]


def returns_the_new(self, keys, values):
    write(self, keys, values)
    return keys, values


def returns_copies(self, keys, values):
    return tuple(part.clone() for part in write(self, keys, values))


def always_slot_zero(self, keys, values):
    self.keys[:, :, : keys.shape[2]] = keys
    self.values[:, :, : keys.shape[2]] = values
    return self.keys, self.values


def counts_updates(self, keys, values):
    slots = self.seen + torch.arange(keys.shape[2])
    self.keys[:, :, slots], self.values[:, :, slots] = keys, values
    self.seen += 1
    return self.keys, self.values


def counts_before(self, keys, values):
    self.seen += keys.shape[2]
    self.keys[:, :, self.seen : self.seen + keys.shape[2]] = keys
    self.values[:, :, self.seen : self.seen + keys.shape[2]] = values
    return self.keys, self.values


def only_the_keys(self, keys, values):
    slots = self.seen + torch.arange(keys.shape[2])
    self.keys[:, :, slots] = keys
    self.seen += keys.shape[2]
    return self.keys, self.values


def forgets_to_return(self, keys, values):
    write(self, keys, values)


def clears_the_slots(self):
    self.keys.zero_()
    self.values.zero_()


def makes_new_slots(self):
    self.keys, self.values = torch.zeros_like(self.keys), torch.zeros_like(self.values)
    self.seen.zero_()


def nothing(self):
    pass


class TheirOwn:
    def __init__(self, batch, kv_heads, slots, head_dim):
        self.layer = StaticLayer(slots)

    def update(self, keys, values):
        return self.layer.update(keys, values)

    def reset(self):
        self.layer.reset()


# 08b


def mask(q_len, seen, slots):
    """Right."""
    allowed = torch.zeros(q_len, slots, dtype=torch.bool)
    for i in range(q_len):
        allowed[i, : seen + i + 1] = True
    return allowed


def mask_by_tril(q_len, seen, slots):
    """Right."""
    return torch.ones(q_len, slots).tril(seen).bool()


def no_mask(q_len, seen, slots):
    return torch.ones(q_len, slots).bool()


def hides_itself(q_len, seen, slots):
    return torch.ones(q_len, slots).tril(seen - 1).bool()


def inverted(q_len, seen, slots):
    return torch.ones(q_len, slots).triu(seen + 1).bool()


def from_slot_zero(q_len, seen, slots):
    return torch.ones(q_len, slots).tril().bool()


def same_for_all(q_len, seen, slots):
    allowed = torch.zeros(q_len, slots, dtype=torch.bool)
    allowed[:, : seen + q_len] = True
    return allowed


def one_too_many(q_len, seen, slots):
    return torch.ones(q_len, slots).tril(seen + 1).bool()


def hides_the_old(q_len, seen, slots):
    allowed = mask(q_len, seen, slots)
    allowed[:, :seen] = False
    return allowed


def old_alone(q_len, seen, slots):
    allowed = torch.zeros(q_len, slots, dtype=torch.bool)
    allowed[:, :seen] = True
    return allowed


def as_numbers(q_len, seen, slots):
    return torch.ones(q_len, slots).tril(seen)


def one_row(q_len, seen, slots):
    return torch.arange(slots) <= seen


def as_columns(q_len, seen, slots):
    return mask(q_len, seen, slots).T


# 08c


def share(prompt, new, slots):
    """Right."""
    return 1 - (prompt + new / 2) / slots


def share_by_steps(prompt, new, slots):
    """Right."""
    filled = [prompt + step for step in range(1, new)]
    return sum(slots - n for n in filled) / (slots * len(filled))


def at_the_end(prompt, new, slots):
    return (slots - prompt - new) / slots


def at_the_start(prompt, new, slots):
    return (slots - prompt) / slots


def seen_not_hidden(prompt, new, slots):
    return (prompt + new / 2) / slots


def with_the_prefill(prompt, new, slots):
    filled = [*range(1, prompt + 1), *(prompt + step for step in range(1, new))]
    return sum(slots - n for n in filled) / (slots * len(filled))


def a_step_too_many(prompt, new, slots):
    filled = [prompt + step for step in range(1, new + 1)]
    return sum(slots - n for n in filled) / (slots * len(filled))


def prompt_is_a_step(prompt, new, slots):
    filled = [prompt + step for step in range(new)]
    return sum(slots - n for n in filled) / (slots * len(filled))


def in_per_cent(prompt, new, slots):
    return 100 * share(prompt, new, slots)


def new_alone(prompt, new, slots):
    return 1 - new / 2 / slots


WRONG = {
    "08a": [
        (layer(concatenates), "behind the empty slots"),
        (layer(concatenates_the_filled), "another length and another place"),
        (layer(returns_the_filled), "only the filled slots were returned"),
        (layer(returns_the_new), "only the new tokens were returned"),
        (layer(returns_copies), "return those themselves"),
        (layer(slot_by_slot), "index with a tensor of slot numbers"),
        (layer(always_slot_zero), "each update writes over the one before"),
        (layer(counts_updates), "updates were counted, not tokens"),
        (layer(counts_before), "before the tokens were written"),
        (layer(only_the_keys), "the values not"),
        (layer(forgets_to_return), "`return` missing"),
        (layer(write, clears_the_slots), "the next text begins behind the old one"),
        (layer(write, nothing), "the next text begins behind the old one"),
        (layer(write, makes_new_slots), "reset() made new buffers"),
        (layer(slice_and_add, zero_number, count=int), "the count is a Python number"),
        (TheirOwn, "does what this task builds"),
    ],
    "08b": [
        (no_mask, "Zeros do harm"),
        (hides_itself, "may not look at itself"),
        (inverted, "True and False are swapped"),
        (from_slot_zero, "stands in slot `seen`"),
        (same_for_all, "look ahead to the last"),
        (one_too_many, "one slot too many"),
        (hides_the_old, "the old tokens are hidden"),
        (old_alone, "not each other"),
        (as_numbers, "not True and False"),
        (one_row, "not (1, 8)"),
        (as_columns, "not (1, 8)"),
    ],
    "08c": [
        (at_the_end, "that is the last step"),
        (at_the_start, "half of them on average"),
        (seen_not_hidden, "1 minus it"),
        (with_the_prefill, "the prompt's own scores are in it"),
        (a_step_too_many, "one step too many"),
        (prompt_is_a_step, "the prompt was counted as a step"),
        (in_per_cent, "per cent"),
        (new_alone, "fills slots from the beginning"),
        (lambda *_: 0.77, "every case gets the same answer"),
    ],
}
RIGHT = {
    "08a": [layer(write), layer(write_and_rebind)],
    "08b": [mask, mask_by_tril],
    "08c": [share, share_by_steps],
}
