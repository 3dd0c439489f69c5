"""Lesson 08: a layer in fixed slots, the mask for it, the share of masked scores."""

import math
from fractions import Fraction

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


def write_with_names_of_its_own(self, keys, values):
    """Right."""
    n = keys.size(-2)
    slots = torch.arange(n).add(self.seen)
    self.keys[..., slots, :] = keys
    self.values[..., slots, :] = values
    self.seen.copy_(self.seen + n)
    return [self.keys, self.values]


def write_by_scatter(self, keys, values):
    """Right."""
    slots = (self.seen + torch.arange(keys.shape[2]))[:, None].expand_as(keys)
    self.keys.scatter_(2, slots, keys)
    self.values.scatter_(2, slots, values)
    self.seen += keys.shape[2]
    return self.keys, self.values


def zero_everything(self):
    """Right."""
    self.keys.zero_(), self.values.zero_(), self.seen.fill_(0)


def write_and_rebind(self, keys, values):
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


def takes_the_item(self, keys, values):
    start, n = self.seen.item(), keys.shape[2]
    self.keys[:, :, start : start + n] = keys
    self.values[:, :, start : start + n] = values
    self.seen += n
    return self.keys, self.values


def slices_with_the_tensor(self, keys, values):
    n = keys.shape[2]
    self.keys[:, :, self.seen : self.seen + n] = keys
    self.values[:, :, self.seen : self.seen + n] = values
    self.seen += n
    return self.keys, self.values


def arange_from_the_tensor(self, keys, values):
    slots = torch.arange(self.seen, self.seen + keys.shape[2])
    self.keys[:, :, slots], self.values[:, :, slots] = keys, values
    self.seen += keys.shape[2]
    return self.keys, self.values


def prints(self, keys, values):
    print(end="")
    return write(self, keys, values)


def counts_the_heads(self, keys, values):
    slots = self.seen + torch.arange(keys.shape[1])
    self.keys[:, :, slots], self.values[:, :, slots] = keys, values
    self.seen += keys.shape[1]
    return self.keys, self.values


def counts_the_channels(self, keys, values):
    slots = self.seen + torch.arange(keys.shape[-1])
    self.keys[:, :, slots], self.values[:, :, slots] = keys, values
    self.seen += keys.shape[-1]
    return self.keys, self.values


def new_count(self):
    self.seen = torch.tensor(0)


def new_count_of_zeros(self):
    self.seen = self.seen * 0


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


def with_batch_and_heads(q_len, seen, slots):
    return mask(q_len, seen, slots)[None, None]


def filled_columns_alone(q_len, seen, slots):
    return mask(q_len, seen, slots)[:, : seen + q_len]


def as_lists(q_len, seen, slots):
    return mask(q_len, seen, slots).tolist()


def to_be_added(q_len, seen, slots):
    return torch.zeros(q_len, slots).masked_fill(~mask(q_len, seen, slots), float("-inf"))


def as_columns(q_len, seen, slots):
    return mask(q_len, seen, slots).T


# 08c


def room(prompt, new, share):
    """Right."""
    return int((prompt + new / 2) / (1 - share))


def room_by_trying(prompt, new, share):
    """Right: one slot more as long as it is allowed."""
    steps = [prompt + step for step in range(1, new)]
    slots = prompt + new - 1
    while sum(slots + 1 - n for n in steps) <= share * (slots + 1) * len(steps):
        slots += 1
    return slots


def room_in_whole_numbers(prompt, new, share):
    """Right."""
    return (2 * prompt + new) // (2 - 2 * share)


def room_as_a_fraction(prompt, new, share):
    """Right."""
    return Fraction(math.floor((prompt + Fraction(new, 2)) / (1 - Fraction(share))))


def room_as_a_tensor(prompt, new, share):
    """Right."""
    return torch.tensor((prompt + new / 2) / (1 - share)).floor()


def rooms(mean):
    """By another mean of the filled slots."""
    return lambda prompt, new, share: int(mean(prompt, new) / (1 - share))


def from_the_filled(steps):
    """By the slots that are filled in each of some steps."""
    return rooms(lambda prompt, new: sum(steps(prompt, new)) / len(steps(prompt, new)))


def seen_for_hidden(prompt, new, share):
    return int((prompt + new / 2) / share)


def part_of_a_slot(prompt, new, share):
    return (prompt + new / 2) / (1 - share)


def rounded_up(prompt, new, share):
    return math.ceil((prompt + new / 2) / (1 - share))


def rounded_to_the_nearest(prompt, new, share):
    return round((prompt + new / 2) / (1 - share))


def the_filled_alone(prompt, new, share):
    return prompt + new / 2


def a_share_on_top(prompt, new, share):
    return int((prompt + new / 2) * (1 + share))


def what_fits(prompt, new, share):
    return prompt + new


def the_share(prompt, new, share):
    return f"{int(100 * share)}%"


def all_three(prompt, new, share):
    return prompt, new, share


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
        (layer(write_and_rebind), "the count is a new tensor after each update"),
        (layer(write_and_rebind, new_count), "the count is a new tensor after each update"),
        (layer(write, new_count), "reset() made a new tensor for the count"),
        (layer(write, new_count_of_zeros), "reset() made a new tensor for the count"),
        (layer(takes_the_item), "a Python number was needed out of a tensor"),
        (layer(slices_with_the_tensor), "a Python number was needed out of a tensor"),
        (layer(arange_from_the_tensor), "a Python number was needed out of a tensor"),
        (layer(prints), "take it out of update"),
        (layer(write_and_rebind, count=lambda: torch.zeros(())), "the count is a float"),
        (layer(write_and_rebind, count=lambda: torch.zeros(1)), "the count is a float"),
        (layer(counts_the_heads), "axis 2"),
        (layer(counts_the_channels), "axis 2"),
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
        (one_row, "a single row"),
        (as_columns, "the axes are swapped"),
        (with_batch_and_heads, "come later"),
        (filled_columns_alone, "a column for each slot, filled or not"),
        (as_lists, "a tensor was asked for"),
        (to_be_added, "a comparison such as"),
        (lambda *_: None, "`return` missing"),
    ],
    "08c": [
        (rooms(lambda p, n: p + n), "that is the last step"),
        (rooms(lambda p, n: p + n - 1), "that is the last step"),
        (rooms(lambda p, n: p + 1), "that is the first step alone"),
        (rooms(lambda p, n: p), "half of them on average"),
        (rooms(lambda p, n: n / 2), "fills slots from the beginning"),
        (rooms(lambda p, n: p + n // 2), "`//` has rounded the mean down"),
        (from_the_filled(lambda p, n: range(p + 1, p + n + 1)), "one step too many"),
        (from_the_filled(lambda p, n: range(p, p + n)), "the prompt was counted as a step"),
        (from_the_filled(lambda p, n: [*range(1, p + 1), *range(p + 1, p + n)]), "the prompt's own scores are in it"),
        (seen_for_hidden, "the filled one is 1 minus it"),
        (part_of_a_slot, "round down"),
        (rounded_up, "more than the share is hidden"),
        (rounded_to_the_nearest, "`round` goes up"),
        (the_filled_alone, "so many slots are filled on average"),
        (a_share_on_top, "of the whole room"),
        (what_fits, "just the room that fits"),
        (the_share, "'25%'"),
        (all_three, "not a number"),
        (lambda *_: None, "`return` missing"),
        (lambda *_: 30, "every case gets the same answer"),
    ],
}
RIGHT = {
    "08a": [
        layer(write),
        layer(write_with_names_of_its_own),
        layer(write_by_scatter, zero_everything),
        layer(write, count=lambda: torch.zeros(1, dtype=torch.int64)),
    ],
    "08b": [mask, mask_by_tril],
    "08c": [room, room_by_trying, room_in_whole_numbers, room_as_a_fraction, room_as_a_tensor],
}
