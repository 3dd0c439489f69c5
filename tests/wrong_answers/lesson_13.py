"""Lesson 13: a source that is read once, beams that are put in order."""

import torch

# 13a


def source(get, reset=None):
    """A class as in the notebook, with this `get`."""

    def start(self):
        self.states = {}

    return type("SourceCache", (), {"__init__": start, "get": get, "reset": reset or start})


def keep(self, layer_idx, source, project):
    if layer_idx in self.states:
        return self.states[layer_idx]
    keys, values = project(source)
    self.states[layer_idx] = keys, values
    return keys, values


def computes_each_step(self, layer_idx, source, project):
    self.states[layer_idx] = project(source)
    return self.states[layer_idx]


def asks_with_a_default(self, layer_idx, source, project):
    return self.states.get(layer_idx, project(source))


def sets_a_default(self, layer_idx, source, project):
    return self.states.setdefault(layer_idx, project(source))


def appends_each_step(self, layer_idx, source, project):
    keys, values = project(source)
    if layer_idx in self.states:
        old_keys, old_values = self.states[layer_idx]
        keys, values = torch.cat([old_keys, keys], 2), torch.cat([old_values, values], 2)
    self.states[layer_idx] = keys, values
    return keys, values


def one_flag_for_all(self, layer_idx, source, project):
    if not getattr(self, "updated", False):
        self.pair, self.updated = project(source), True
    return self.pair


def one_flag_and_a_dict(self, layer_idx, source, project):
    if not self.states:
        self.states[layer_idx] = project(source)
    return self.states[layer_idx]


def remembers_the_last_layer(self, layer_idx, source, project):
    if getattr(self, "last", None) != layer_idx:
        self.last, self.pair = layer_idx, project(source)
    return self.pair


def looks_at_the_length(self, layer_idx, source, project):
    key = layer_idx, source.shape[2]
    if key not in self.states:
        self.states[key] = project(source)
    return self.states[key]


def twice_the_keys(self, layer_idx, source, project):
    keys, _ = keep(self, layer_idx, source, project)
    return keys, keys


def says_nothing(self, layer_idx, source, project):
    keep(self, layer_idx, source, project)


def looks_at_the_tensor(self, layer_idx, source, project):
    if getattr(self, "source", None) is not source:
        self.source, self.states = source, {}
    return keep(self, layer_idx, source, project)


def returns_when_new(self, layer_idx, source, project):
    if layer_idx not in self.states:
        self.states[layer_idx] = project(source)
        return self.states[layer_idx]


def returns_when_old(self, layer_idx, source, project):
    if layer_idx in self.states:
        return self.states[layer_idx]
    self.states[layer_idx] = project(source)


def returns_all(self, layer_idx, source, project):
    keep(self, layer_idx, source, project)
    return self.states


def values_first(self, layer_idx, source, project):
    keys, values = keep(self, layer_idx, source, project)
    return values, keys


def asks_with_get(self, layer_idx, source, project):
    pair = self.states.get(layer_idx)
    if pair is None:
        pair = self.states[layer_idx] = project(source)
    return pair


def resets_to_none(self):
    self.states = None


def resets_layer_0(self):
    self.states.pop(0, None)


def compares_numbers(self, layer_idx, source, project):
    """Right: it looks at every number of the source."""
    if layer_idx in self.states and not torch.equal(self.states[layer_idx][0], source):
        self.states = {}
    if layer_idx not in self.states:
        self.states[layer_idx] = source.clone(), project(source)
    return self.states[layer_idx][1]


class Shared:
    states = {}
    get = keep

    def reset(self):
        self.states.clear()


class WithLists:
    """Right: two dicts and a set of flags, its own names."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.k, self.v, self.read = {}, {}, set()

    def get(self, i, source, project):
        if i not in self.read:
            self.k[i], self.v[i] = project(source)
            self.read.add(i)
        return [self.k[i], self.v[i]]


# 13b


def every(cache):
    return [layer for side in (cache.self_attention_cache, cache.cross_attention_cache) for layer in side.layers]


def reorder(cache, beam_idx, layers=every):
    for layer in layers(cache):
        layer.keys, layer.values = layer.keys[beam_idx], layer.values[beam_idx]


def values_for_keys(cache, beam_idx):
    for layer in every(cache):
        layer.keys = layer.values[beam_idx]
        layer.values = layer.values[beam_idx]


def keys_for_values(cache, beam_idx):
    for layer in every(cache):
        layer.keys, layer.values = layer.keys[beam_idx], layer.keys[beam_idx]


def text_only(cache, beam_idx):
    reorder(cache, beam_idx, lambda cache: cache.self_attention_cache.layers)


def source_only(cache, beam_idx):
    reorder(cache, beam_idx, lambda cache: cache.cross_attention_cache.layers)


def first_layers(cache, beam_idx):
    sides = cache.self_attention_cache, cache.cross_attention_cache
    reorder(cache, beam_idx, lambda cache: [side.layers[0] for side in sides])


def row_after_row(cache, beam_idx):
    for layer in every(cache):
        for row, wanted in enumerate(beam_idx):
            layer.keys[row] = layer.keys[wanted]
            layer.values[row] = layer.values[wanted]


def as_shown(cache, beam_idx):
    layer = cache.self_attention_cache.layers[0]
    for row, wanted in enumerate(beam_idx.tolist()):
        layer.keys[row] = layer.keys[wanted]
        layer.values[row] = layer.values[wanted]


def keys_only(cache, beam_idx):
    for layer in every(cache):
        layer.keys = layer.keys.index_select(0, beam_idx)


def the_other_way_round(cache, beam_idx):
    for layer in every(cache):
        for part in ("keys", "values"):
            old = getattr(layer, part)
            new = old.clone()
            for row, target in enumerate(beam_idx.tolist()):
                new[target] = old[row]
            setattr(layer, part, new)


def picks_and_drops(cache, beam_idx):
    for layer in every(cache):
        layer.keys[beam_idx], layer.values[beam_idx]


def only_different_ones(cache, beam_idx):
    reorder(cache, torch.tensor(sorted(set(beam_idx.tolist()))))


def along_the_heads(cache, beam_idx):
    for layer in every(cache):
        layer.keys = layer.keys[:, beam_idx]


def keys_twice(cache, beam_idx):
    for layer in every(cache):
        layer.keys = layer.values = layer.keys[beam_idx]


def stacked(cache, beam_idx):
    """Right: row after row into a new tensor, and it returns the cache."""
    for layer in every(cache):
        layer.keys[:] = torch.stack([layer.keys[row] for row in beam_idx])
        layer.values = torch.stack([layer.values[row] for row in beam_idx])
    return cache


def written_in_place(cache, beam_idx):
    for layer in every(cache):
        for tensor in (layer.keys, layer.values):
            tensor.copy_(tensor[beam_idx])


WRONG = {
    "13a": [
        (source(computes_each_step), "computed again at each step"),
        (source(asks_with_a_default), "is computed before the call"),
        (source(sets_a_default), "is computed before the call"),
        (source(appends_each_step), "appended at each step"),
        (source(one_flag_for_all), "one flag, or one place, for all layers"),
        (source(one_flag_and_a_dict), "one flag, or one place, for all layers"),
        (source(remembers_the_last_layer), "only one layer is kept"),
        (source(keep, reset=lambda self: None), "left the old source behind"),
        (source(looks_at_the_length, reset=lambda self: None), "can't be seen from its shape"),
        (source(twice_the_keys), "the keys were returned twice"),
        (source(says_nothing), "is the `return` missing"),
        (Shared, "all objects share them"),
        (type("SourceCache", (), {"get": keep}), "without `reset`"),
        (source(looks_at_the_tensor), "can't be seen from the tensor"),
        (source(returns_when_new), "belongs behind the `if`"),
        (source(returns_when_old), "in one branch only"),
        (source(returns_all), "return the entry of this layer"),
        (source(values_first), "keys and values are swapped"),
        (source(keep, reset=resets_to_none), "begin again with an empty one"),
        (source(asks_with_get, reset=resets_to_none), "begin again with an empty one"),
        (source(keep, reset=resets_layer_0), "of some layers behind"),
        (source(keep)(), "hand the class itself"),
    ],
    "13b": [
        (text_only, "the text side only"),
        (source_only, "the source side only"),
        (first_layers, "the first layer only"),
        (row_after_row, "overwritten while they were still to be read"),
        (as_shown, "overwritten while they were still to be read"),
        (keys_only, "the keys only"),
        (the_other_way_round, "the wrong direction"),
        (picks_and_drops, "nothing has moved"),
        (only_different_ones, "each row once"),
        (along_the_heads, "the first axis is the batch"),
        (values_for_keys, "values were put in the place of keys"),
        (keys_for_values, "the keys came back as values"),
        (keys_twice, "the keys came back as values"),
        ([], "hand the function itself"),
    ],
}
RIGHT = {
    "13a": [source(keep), source(asks_with_get), source(compares_numbers), WithLists],
    "13b": [reorder, written_in_place, stacked],
}
