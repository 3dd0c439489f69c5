"""Lesson 02: layers that grow, bytes a token, tokens that fit."""

import torch


def layer(update, **attributes):
    """A class as in the notebook, with this `update`."""
    return type("GrowingLayer", (), {"keys": None, "values": None, **attributes, "update": update})


def append(self, keys, values, dim=2):
    if self.keys is None:
        self.keys, self.values = keys.clone(), values.clone()
        return self.keys, self.values
    self.keys = torch.cat((self.keys, keys), dim)
    self.values = torch.cat((self.values, values), dim)
    return self.keys, self.values


# 02a


def along_heads(self, keys, values):
    return append(self, keys, values, dim=1)


def along_batch(self, keys, values):
    return append(self, keys, values, dim=0)


def along_channels(self, keys, values):
    return append(self, keys, values, dim=-1)


def returns_the_new_part(self, keys, values):
    append(self, keys, values)
    return keys, values


def keeps_the_callers_tensor(self, keys, values):
    if self.keys is None:
        self.keys, self.values = keys, values
    else:
        self.keys = torch.cat([self.keys, keys], dim=2)
        self.values = torch.cat([self.values, values], dim=2)
    return self.keys, self.values


def keeps_a_list_of_views(self, keys, values):
    self.parts = [*getattr(self, "parts", []), (keys[:, :, :], values[:, :, :])]
    return tuple(torch.cat(part, dim=2) for part in zip(*self.parts, strict=True))


def newest_first(self, keys, values):
    if self.keys is not None:
        keys, values = torch.cat([keys, self.keys], dim=-2), torch.cat([values, self.values], dim=-2)
    self.keys, self.values = keys.clone(), values.clone()
    return self.keys, self.values


def forgets_to_return(self, keys, values):
    append(self, keys, values)


def forgets_the_values(self, keys, values):
    append(self, keys, values)
    self.values = values.clone()
    return self.keys, self.values


def copies_keys_into_values(self, keys, values):
    append(self, keys, values)
    return self.keys, self.keys


def one_memory_for_all(self, keys, values):
    return append(type(self), keys, values)


def misspelt(self, keys, values):
    return self.kyes, self.values


def never_ends(self, keys, values):
    while True:
        try:
            keys = keys + 1
        except Exception:
            break


def asks_itself(self, keys, values):
    return self.update(keys, values)


def forgets_the_else(self, keys, values):
    if self.keys is None:
        self.keys, self.values = keys.clone(), values.clone()
    self.keys = torch.cat([self.keys, keys], dim=2)
    self.values = torch.cat([self.values, values], dim=2)
    return self.keys, self.values


def forgets_the_first_call(self, keys, values):
    self.keys = torch.cat([self.keys, keys], dim=2)
    self.values = torch.cat([self.values, values], dim=2)
    return self.keys, self.values


def asks_the_tensor(self, keys, values):
    if not self.keys:
        self.keys, self.values = keys.clone(), values.clone()
        return self.keys, self.values
    return append(self, keys, values)


def cat_thrown_away(self, keys, values):
    if self.keys is None:
        return append(self, keys, values)
    torch.cat([self.keys, keys], dim=2)
    torch.cat([self.values, values], dim=2)
    return self.keys, self.values


def copies_the_keys_alone(self, keys, values):
    if self.keys is not None:
        return append(self, keys, values)
    self.keys, self.values = keys.clone(), values
    return self.keys, self.values


def keys_behind_old_values(self, keys, values):
    return append(self, keys, values if self.keys is None else keys)


def swapped(self, keys, values):
    keys, values = append(self, keys, values)
    return values, keys


def keys_returned_alone(self, keys, values):
    return append(self, keys, values)[0]


def last_one_alone(self, keys, values):
    if self.keys is None:
        return append(self, keys, values)
    return append(self, keys[:, :, -1:], values[:, :, -1:])


class BlocksInLists:
    """Right: a list of copies, joined when they are asked for."""

    def __init__(self):
        self.blocks = []

    def update(self, keys, values):
        self.blocks.append((keys.clone(), values.clone()))
        return [torch.cat(part, dim=2) for part in zip(*self.blocks, strict=True)]


# 02b


def room(states, slots):
    return states.new_zeros(*states.shape[:2], slots, states.shape[-1])


def own_type(states, slots):
    """Room of torch's default type, whatever the tokens have."""
    return torch.zeros(*states.shape[:2], slots, states.shape[-1])


def double(
    self, keys, values, full=lambda end, slots: end > slots, size=lambda end, slots: max(end, 2 * slots), room=room
):
    """Right, with the lines that people get wrong as parameters."""
    start = self.length
    self.length = end = start + keys.shape[2]
    slots = 0 if self.keys is None else self.keys.shape[2]
    if full(end, slots):
        old = self.keys, self.values
        self.keys, self.values = room(keys, size(end, slots)), room(values, size(end, slots))
        if start:
            self.keys[:, :, :start], self.values[:, :, :start] = old[0][:, :, :start], old[1][:, :, :start]
    self.keys[:, :, start:end] = keys
    self.values[:, :, start:end] = values
    return self.keys[:, :, :end], self.values[:, :, :end]


def returns_the_spare_room(self, keys, values):
    double(self, keys, values)
    return self.keys, self.values


def length_from_the_shape(self, keys, values):
    if self.keys is None:
        self.keys, self.values = keys.clone(), values.clone()
        return self.keys, self.values
    self.length = self.keys.shape[2]
    return double(self, keys, values)


def doubles_at_every_call(self, keys, values):
    return double(self, keys, values, full=lambda end, slots: True)


def grows_by_one(self, keys, values):
    return double(self, keys, values, size=lambda end, slots: end)


def grows_by_a_tenth(self, keys, values):
    return double(self, keys, values, size=lambda end, slots: max(end, slots + slots // 10))


def copies_on_return(self, keys, values):
    keys, values = double(self, keys, values)
    return keys.clone(), values.clone()


def doubles_but_once(self, keys, values):
    return double(self, keys, values, size=lambda end, slots: 2 * slots if slots else end)


def a_thousand_slots(self, keys, values):
    return double(self, keys, values, size=lambda end, slots: 1_000)


def quadruples(self, keys, values):
    return double(self, keys, values, size=lambda end, slots: max(end, 4 * slots))


def triples(self, keys, values):
    return double(self, keys, values, size=lambda end, slots: max(end, 2 * slots) + slots)


def twice_the_end(self, keys, values):
    """Right too."""
    return double(self, keys, values, size=lambda end, slots: 2 * end)


def in_float32(self, keys, values):
    return double(self, keys, values, room=own_type)


def joins_float32(self, keys, values):
    start, end = self.length, self.length + keys.shape[2]
    if self.keys is None:
        self.keys, self.values = keys[:, :, :0], values[:, :, :0]
    slots = self.keys.shape[2]
    if end > slots:
        self.keys = torch.cat([self.keys, own_type(keys, max(end, 2 * slots) - slots)], dim=2)
        self.values = torch.cat([self.values, own_type(values, max(end, 2 * slots) - slots)], dim=2)
    self.keys[:, :, start:end], self.values[:, :, start:end], self.length = keys, values, end
    return self.keys[:, :, :end], self.values[:, :, :end]


def loses_the_old_ones(self, keys, values):
    end = self.length + keys.shape[2]
    if self.keys is None or end > self.keys.shape[2]:
        self.keys, self.values = room(keys, 2 * end), room(values, 2 * end)
    self.keys[:, :, self.length : end], self.values[:, :, self.length : end] = keys, values
    self.length = end
    return self.keys[:, :, :end], self.values[:, :, :end]


def adds_the_end(self, keys, values):
    start, result = self.length, double(self, keys, values)
    self.length = start + self.length
    return result


def forgets_the_first_length(self, keys, values):
    if self.keys is None:
        self.keys, self.values = keys.clone(), values.clone()
        return self.keys, self.values
    return double(self, keys, values)


def by_filling(self, keys, values, three_axes=False, keys_alone=False):
    """As hint 3 of the card says, with lines that go wrong."""
    start, end = self.length, self.length + keys.shape[-2]
    if self.keys is None:
        self.keys, self.values = keys[:, :, :0], values[:, :, :0]
    slots = self.keys.shape[-2]
    if end > slots:
        shape = (*keys.shape[: 1 if three_axes else 2], max(end, 2 * slots) - slots, keys.shape[-1])
        self.keys = torch.cat([self.keys, keys.new_empty(shape)], dim=-2)
        if not keys_alone:
            self.values = torch.cat([self.values, values.new_empty(shape)], dim=-2)
    self.keys[:, :, start:end] = keys
    self.values[:, :, start:end] = values[:, :, : 0 if keys_alone else None]
    self.length = end
    return self.keys[:, :, :end], self.values[:, :, :end]


def three_axes(self, keys, values):
    return by_filling(self, keys, values, three_axes=True)


def room_for_the_keys_alone(self, keys, values):
    return by_filling(self, keys, values, keys_alone=True)


def never_counts(self, keys, values):
    result = double(self, keys, values)
    self.length = 0
    return result


def a_list_then_cat(self, keys, values):
    self.parts = [*self.parts, (keys.clone(), values.clone())]
    return tuple(torch.cat(part, dim=2) for part in zip(*self.parts, strict=True))


def doubles_in_a_loop(self, keys, values, least=0):
    start, end = self.length, self.length + keys.shape[2]
    if self.keys is None:
        self.keys, self.values = keys[:, :, :0], values[:, :, :0]
    slots = max(self.keys.shape[2], least)
    while slots < end:
        slots = slots * 2
    more = slots - self.keys.shape[2]
    if more:
        self.keys = torch.cat([self.keys, room(keys, more)], dim=2)
        self.values = torch.cat([self.values, room(values, more)], dim=2)
    self.keys[:, :, start:end], self.values[:, :, start:end], self.length = keys, values, end
    return self.keys[:, :, :end], self.values[:, :, :end]


def doubles_from_one(self, keys, values):
    """Right."""
    return doubles_in_a_loop(self, keys, values, least=1)


class StartsWithSixteen:
    """Right: sixteen slots from the start, its own names, lists in place of two attributes."""

    def __init__(self):
        self.buffers, self.count = None, 0

    def update(self, keys, values):
        if self.buffers is None:
            self.buffers = [torch.empty(*new.shape[:2], 16, new.shape[3], dtype=new.dtype) for new in (keys, values)]
        need = self.count + keys.shape[2]
        while need > self.buffers[0].shape[2]:
            self.buffers = [torch.nn.functional.pad(old, (0, 0, 0, old.shape[2])) for old in self.buffers]
        for buffer, new in zip(self.buffers, (keys, values), strict=True):
            buffer[:, :, self.count : need].copy_(new)
        self.count = need
        return [buffer[:, :, :need] for buffer in self.buffers]


# 02c

TRUTH = {"A": "bits for bytes", "B": "query heads", "C": "head_dim guessed"}
TRUTH |= {"D": "keys alone", "E": "right", "F": "hidden size"}


# 02d


def fits(config, parameters, memory_gib, batch, dtype, gib=1024**3, part=2, heads=None, size=None):
    heads, size = heads or config.num_key_value_heads, size or getattr(config, "head_dim", config.hidden_size)
    a_token = part * config.num_hidden_layers * heads * size * dtype.itemsize
    return int(max(memory_gib * gib - parameters * dtype.itemsize, 0) // (a_token * batch))


def forgets_the_batch(config, parameters, memory_gib, batch, dtype):
    return fits(config, parameters, memory_gib, 1, dtype)


def gigabytes(config, parameters, memory_gib, batch, dtype):
    return fits(config, parameters, memory_gib, batch, dtype, gib=1e9)


def forgets_the_weights(config, parameters, memory_gib, batch, dtype):
    return fits(config, 0, memory_gib, batch, dtype)


def a_byte_for_a_weight(config, parameters, memory_gib, batch, dtype):
    return fits(config, parameters / dtype.itemsize, memory_gib, batch, dtype)


def keys_alone(config, parameters, memory_gib, batch, dtype):
    return fits(config, parameters, memory_gib, batch, dtype, part=1)


def two_bytes_always(config, parameters, memory_gib, batch, dtype):
    return fits(config, parameters, memory_gib, batch, dtype, part=4 / dtype.itemsize)


def two_bytes_for_all(config, parameters, memory_gib, batch, dtype):
    return fits(config, parameters, memory_gib, batch, torch.bfloat16)


def four_bytes_for_all(config, parameters, memory_gib, batch, dtype):
    return fits(config, parameters, memory_gib, batch, torch.float32)


def head_dim_guessed(config, parameters, memory_gib, batch, dtype):
    size = config.hidden_size // config.num_attention_heads
    return fits(config, parameters, memory_gib, batch, dtype, size=size)


def all_query_heads(config, parameters, memory_gib, batch, dtype):
    return fits(config, parameters, memory_gib, batch, dtype, heads=config.num_attention_heads)


def hidden_size(config, parameters, memory_gib, batch, dtype):
    return fits(config, parameters, memory_gib, batch, dtype, heads=1, size=config.hidden_size)


def weights_for_each(config, parameters, memory_gib, batch, dtype):
    return fits(config, batch * parameters, memory_gib, batch, dtype)


def all_together(config, parameters, memory_gib, batch, dtype):
    return batch * fits(config, parameters, memory_gib, 1, dtype)


def mebibytes(config, parameters, memory_gib, batch, dtype):
    return fits(config, parameters, memory_gib, batch, dtype, gib=2**20)


def xor_for_power(config, parameters, memory_gib, batch, dtype):
    a_token = batch * 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * dtype.itemsize
    room = memory_gib * 2 ^ 30 - parameters * dtype.itemsize
    return max(0, room // a_token)


def one_too_few(config, parameters, memory_gib, batch, dtype):
    return max(0, fits(config, parameters, memory_gib, batch, dtype) - 1)


def in_text(config, parameters, memory_gib, batch, dtype):
    return str(fits(config, parameters, memory_gib, batch, dtype))


def as_a_tensor(config, parameters, memory_gib, batch, dtype):
    return torch.tensor(fits(config, parameters, memory_gib, batch, dtype))


def as_a_float(config, parameters, memory_gib, batch, dtype):
    return float(fits(config, parameters, memory_gib, batch, dtype))


def below_zero(config, parameters, memory_gib, batch, dtype):
    tokens = fits(config, parameters, memory_gib, batch, dtype)
    return tokens or -(parameters * 2 - memory_gib * 2**30) // (2 * 32 * 32 * 128 * 2)


def rounds_up(config, parameters, memory_gib, batch, dtype):
    return fits(config, parameters, memory_gib, batch, dtype) + 1


def a_fraction(config, parameters, memory_gib, batch, dtype):
    return fits(config, parameters, memory_gib, batch, dtype) + 0.5


WRONG = {
    "02a": [
        (layer(along_heads), "axis of the heads"),
        (layer(along_batch), "axis of the sequences"),
        (layer(along_channels), "axis of the channels"),
        (layer(returns_the_new_part), "only the new tokens were returned"),
        (layer(keeps_the_callers_tensor), "kept the caller's own tensor"),
        (layer(keeps_a_list_of_views), "kept the caller's own tensor"),
        (layer(newest_first), "old then new"),
        (layer(forgets_to_return), "`return` missing"),
        (layer(forgets_the_values), "the values do not"),
        (layer(copies_keys_into_values), "the values were put among the keys"),
        (layer(one_memory_for_all), "already holds the tokens of another one"),
        (layer(forgets_the_else), "stand there twice"),
        (layer(forgets_the_first_call), "there is nothing to join"),
        (layer(asks_the_tensor), "ask `if self.keys is None`"),
        (layer(cat_thrown_away), "torch.cat returns a new tensor"),
        (layer(copies_the_keys_alone), "of the values the caller's own tensor"),
        (layer(keys_behind_old_values), "joined to the old values"),
        (layer(swapped), "swapped"),
        (layer(keys_returned_alone), "returned: two tensors, the keys and the values"),
        (layer(keys_returned_alone), "return two tensors"),
        (layer(last_one_alone), "only the last of the new tokens"),
        (layer(misspelt), "`return self.kyes, self.values`: AttributeError"),
        (layer(never_ends), "does the loop ever end?"),
        (layer(asks_itself), "calls itself without end"),
    ],
    "02b": [
        (layer(returns_the_spare_room, length=0), "spare room was returned"),
        (layer(length_from_the_shape, length=0), "the buffer's shape counts slots"),
        (layer(doubles_at_every_call, length=0), "grew again although"),
        (layer(append), "as concatenation does"),
        (layer(grows_by_one, length=0), "as concatenation does"),
        (layer(copies_on_return, length=0), "as concatenation does"),
        (layer(a_list_then_cat, parts=[]), "as concatenation does"),
        (layer(grows_by_a_tenth, length=0), "grows too often"),
        (layer(doubles_but_once, length=0), "doubling once is not enough"),
        (layer(a_thousand_slots, length=0), "slots from the start"),
        (layer(quadruples, length=0), "from 16 to 64 slots"),
        (layer(triples, length=0), "the buffer tripled"),
        (layer(in_float32, length=0), "whatever the tokens have"),
        (layer(joins_float32, length=0), "whatever the tokens have"),
        (layer(loses_the_old_ones, length=0), "the old ones are lost"),
        (layer(adds_the_end, length=0), "self.length is 3 after 2 tokens"),
        (layer(forgets_the_first_length, length=0), "self.length is still 0"),
        (layer(three_axes, length=0), "four axes"),
        (layer(doubles_in_a_loop, length=0), "twice 0 is 0"),
        (layer(room_for_the_keys_alone, length=0), "the keys got room and the values did not"),
        (layer(returns_the_new_part), "only the new tokens were returned"),
        (layer(never_counts, length=0), "self.length is still 0"),
        (layer(along_heads), "axis of the heads"),
        (layer(one_memory_for_all), "already holds the tokens of another one"),
    ],
    "02c": [
        (TRUTH | {"A": "right"}, "16 bits is 2 bytes"),
        (TRUTH | {"B": "right", "E": "query heads"}, "heads whose keys are stored"),
        (TRUTH | {"C": "right"}, "agrees with four of five models"),
        (TRUTH | {"D": "right"}, "a token leaves a key and a value"),
        (TRUTH | {"F": "right"}, "look at a model with grouped heads"),
        (TRUTH | {"B": "hidden size", "F": "query heads"}, "the same number in four of five models"),
        (TRUTH | {"F": "query heads"}, "the same number in four of five models"),
        (TRUTH | {"B": "head_dim guessed"}, "heads whose keys are stored"),
        (TRUTH | {"C": "right", "E": "head_dim guessed"}, "agrees with four of five models"),
        (TRUTH | {"E": "keys alone"}, "nothing is wrong with it"),
        (TRUTH | {"A": "wrong"}, "choose one of: bits for bytes"),
    ],
    "02d": [
        (forgets_the_batch, "each sequence has a cache of its own"),
        (gigabytes, "GB for GiB"),
        (forgets_the_weights, "subtract them first"),
        (a_byte_for_a_weight, "parameters are numbers, not bytes"),
        (keys_alone, "the factor 2"),
        (two_bytes_always, "dtype.itemsize, not always 2"),
        (two_bytes_for_all, "the type decides"),
        (four_bytes_for_all, "the type decides"),
        (head_dim_guessed, "head_dim was guessed"),
        (all_query_heads, "query heads were counted"),
        (hidden_size, "the hidden size was counted"),
        (weights_for_each, "the weights are there once"),
        (all_together, "fewer tokens each"),
        (mebibytes, "MiB for GiB"),
        (xor_for_power, "`^` is no power"),
        (one_too_few, "one token more would still fit"),
        (in_text, "text came"),
        (below_zero, "not a negative number"),
        (rounds_up, "round down"),
        (a_fraction, "round down"),
        (lambda *_: 18_518, "every case gets the same answer"),
    ],
}
SHOUTED = {letter.lower(): f" {word.upper()} " for letter, word in TRUTH.items()}
RIGHT = {
    "02a": [layer(append), layer(double, length=0), StartsWithSixteen, BlocksInLists],
    "02b": [layer(double, length=0), layer(twice_the_end, length=0), layer(by_filling, length=0), StartsWithSixteen]
    + [layer(doubles_from_one, length=0)],
    "02c": [TRUTH, SHOUTED],
    "02d": [fits, as_a_tensor, as_a_float],
}
