"""Lesson 04: the mask of a window, a layer that keeps one, sinks, chunks."""

import torch

# 04a


def mask(queries, kv_len, offset, window):
    keys = offset + torch.arange(kv_len)
    return (keys[None] <= queries[:, None]) & (keys[None] > queries[:, None] - window)


def mask_by_loops(queries, kv_len, offset, window):
    """Right too."""
    result = torch.zeros(len(queries), kv_len, dtype=torch.bool)
    for row, query in enumerate(queries.tolist()):
        for column in range(kv_len):
            result[row, column] = query - window < offset + column <= query
    return result


def one_too_many(queries, kv_len, offset, window):
    keys = offset + torch.arange(kv_len)
    return (keys <= queries[:, None]) & (keys >= queries[:, None] - window)


def not_itself(queries, kv_len, offset, window):
    keys = offset + torch.arange(kv_len)
    return (keys < queries[:, None]) & (keys > queries[:, None] - window)


def window_before_itself(queries, kv_len, offset, window):
    keys = offset + torch.arange(kv_len)
    return (keys < queries[:, None]) & (keys >= queries[:, None] - window)


def one_too_few(queries, kv_len, offset, window):
    return mask(queries, kv_len, offset, window - 1)


def offset_ignored(queries, kv_len, offset, window):
    return mask(queries, kv_len, 0, window)


def queries_from_zero(queries, kv_len, offset, window):
    return mask(torch.arange(len(queries)), kv_len, offset, window)


def queries_from_offset(queries, kv_len, offset, window):
    return mask(torch.arange(offset, offset + len(queries)), kv_len, offset, window)


def sees_the_future(queries, kv_len, offset, window):
    return offset + torch.arange(kv_len) > queries[:, None] - window


def looks_both_ways(queries, kv_len, offset, window):
    return (offset + torch.arange(kv_len) - queries[:, None]).abs() < window


def causal_alone(queries, kv_len, offset, window):
    return offset + torch.arange(kv_len) <= queries[:, None]


def inverted(queries, kv_len, offset, window):
    return ~mask(queries, kv_len, offset, window)


def turned(queries, kv_len, offset, window):
    return mask(queries, kv_len, offset, window).T


def for_adding(queries, kv_len, offset, window):
    return torch.zeros(len(queries), kv_len).masked_fill(~mask(queries, kv_len, offset, window), float("-inf"))


def element_by_element(queries, kv_len, offset, window):
    d = queries - torch.arange(offset, offset + kv_len)
    return (d < window) & (d >= 0)


def with_and(queries, kv_len, offset, window):
    d = queries.unsqueeze(1) - torch.arange(offset, offset + kv_len)
    return d < window and d >= 0


def with_a_chain(queries, kv_len, offset, window):
    d = queries.unsqueeze(1) - torch.arange(offset, offset + kv_len)
    return 0 <= d < window


def distance_from(queries, kv_len, offset):
    return queries.unsqueeze(-1) - (torch.arange(kv_len) + offset)


def without_brackets_left(queries, kv_len, offset, window):
    d = distance_from(queries, kv_len, offset)
    return d >= 0 & (d < window)


def without_brackets_right(queries, kv_len, offset, window):
    d = distance_from(queries, kv_len, offset)
    return (d >= 0) & d < window


def other_sign(queries, kv_len, offset, window):
    d = torch.arange(offset, offset + kv_len) - queries[:, None]
    return (d >= 0) & (d < window)


def ends_at_kv_len(queries, kv_len, offset, window):
    d = queries[:, None] - torch.arange(offset, kv_len)
    return (d >= 0) & (d < window)


def a_key_missing(queries, kv_len, offset, window):
    d = queries[:, None] - torch.arange(offset, offset + kv_len - 1)
    return (d >= 0) & (d < window)


def four_axes(queries, kv_len, offset, window):
    return mask(queries, kv_len, offset, window)[None, None]


def prints_the_mask(queries, kv_len, offset, window):
    mask(queries, kv_len, offset, window).sum()


# 04b


def layer(update, name="SlidingLayer"):
    def start(self, window):
        self.window, self.keys, self.values = window, None, None

    return type(name, (), {"__init__": start, "update": update})


def joined(self, keys, values):
    if self.keys is None:
        return keys, values
    return torch.cat([self.keys, keys], 2), torch.cat([self.values, values], 2)


def window(self, keys, values):
    keys, values = joined(self, keys, values)
    start = max(0, keys.shape[2] - self.window + 1)
    self.keys, self.values = keys[:, :, start:].clone(), values[:, :, start:].clone()
    return keys, values


class InABuffer:
    """Right too: a list of single tokens."""

    def __init__(self, window):
        self.tokens, self.window = [], window

    def update(self, keys, values):
        self.tokens += [
            (key.clone(), value.clone()) for key, value in zip(keys.unbind(2), values.unbind(2), strict=True)
        ]
        shown = [torch.stack(part, dim=2) for part in zip(*self.tokens, strict=True)]
        del self.tokens[: max(0, len(self.tokens) - self.window + 1)]
        return shown


def keeps_w(self, keys, values):
    keys, values = joined(self, keys, values)
    self.keys, self.values = keys[:, :, -self.window :].clone(), values[:, :, -self.window :].clone()
    return keys, values


def keeps_w_minus_two(self, keys, values):
    keys, values = joined(self, keys, values)
    start = max(0, keys.shape[2] - max(self.window - 2, 0))
    self.keys, self.values = keys[:, :, start:].clone(), values[:, :, start:].clone()
    return keys, values


def trims_before_the_prompt_is_attended(self, keys, values):
    keys, values = joined(self, keys, values)
    self.keys, self.values = keys[:, :, -self.window :].clone(), values[:, :, -self.window :].clone()
    return self.keys, self.values


def returns_what_it_keeps(self, keys, values):
    window(self, keys, values)
    return self.keys, self.values


def trims_each_chunk(self, keys, values):
    return window(self, keys[:, :, -self.window :], values[:, :, -self.window :])


def forgets_beyond_the_chunk(self, keys, values):
    shown = joined(self, keys, values)
    self.keys = keys[:, :, -(self.window - 1) :].clone()
    self.values = values[:, :, -(self.window - 1) :].clone()
    return shown


def new_ones_alone(self, keys, values):
    window(self, keys, values)
    return keys, values


def never_drops(self, keys, values):
    self.keys, self.values = (states.clone() for states in joined(self, keys, values))
    return self.keys, self.values


def keeps_all_and_shows_a_part(self, keys, values):
    new = keys.shape[2]
    self.keys, self.values = (states.clone() for states in joined(self, keys, values))
    return self.keys[:, :, -(new + self.window - 1) :], self.values[:, :, -(new + self.window - 1) :]


def keeps_the_first(self, keys, values):
    keys, values = joined(self, keys, values)
    self.keys, self.values = keys[:, :, : self.window - 1].clone(), values[:, :, : self.window - 1].clone()
    return keys, values


def values_grow(self, keys, values):
    keys, values = joined(self, keys, values)
    self.keys, self.values = keys[:, :, -(self.window - 1) :].clone(), values.clone()
    return keys, values


def keeps_views(self, keys, values):
    keys, values = joined(self, keys, values)
    self.keys, self.values = keys[:, :, -(self.window - 1) :], values[:, :, -(self.window - 1) :]
    return keys, values


def forgets_to_return(self, keys, values):
    window(self, keys, values)


def forgets_at_the_next(self, keys, values):
    if self.keys is None:
        self.keys, self.values = keys.clone(), values.clone()
    else:
        self.keys = torch.cat([self.keys[:, :, 1 - self.window :], keys], 2)
        self.values = torch.cat([self.values[:, :, 1 - self.window :], values], 2)
    return self.keys, self.values


def cuts(index, extra=0):
    def along_another_axis(self, keys, values):
        keys, values = joined(self, keys, values)
        part = (*[slice(None)] * index, slice(-(self.window - 1 + extra), None))
        self.keys, self.values = keys[part].clone(), values[part].clone()
        return keys, values

    return along_another_axis


def joins(*dim):
    def along_another_axis(self, keys, values):
        if self.keys is not None:
            keys, values = torch.cat([self.keys, keys], *dim), torch.cat([self.values, values], *dim)
        self.keys, self.values = keys[:, :, 1 - self.window :].clone(), values[:, :, 1 - self.window :].clone()
        return keys, values

    return along_another_axis


def keys_alone(self, keys, values):
    return window(self, keys, values)[0]


def values_first(self, keys, values):
    keys, values = window(self, keys, values)
    return values, keys


class CopiesFirst:
    """A copy as it comes in, then slices: the whole prompt stays behind them."""

    def __init__(self, window):
        self.window, self.keys, self.values = window, None, None

    def update(self, keys, values):
        keys, values = joined(self, keys.clone(), values.clone())
        self.keys, self.values = keys[:, :, 1 - self.window :], values[:, :, 1 - self.window :]
        return [keys, values]


def clones_at_first(self, keys, values):
    """The caller's tensors are safe, and a slice of the copy keeps the prompt."""
    if self.keys is None:
        keys, values = keys.clone(), values.clone()
    keys, values = joined(self, keys, values)
    self.keys, self.values = keys[:, :, 1 - self.window :], values[:, :, 1 - self.window :]
    return keys, values


def views_of_tokens(self, keys, values):
    self.tokens = [*getattr(self, "tokens", []), *zip(keys.clone().unbind(2), values.clone().unbind(2), strict=True)]
    shown = [torch.stack(part, dim=2) for part in zip(*self.tokens, strict=True)]
    self.tokens = self.tokens[1 - self.window :]
    return shown


def slides_in_place(self, keys, values):
    """Right: room for window - 1 tokens that is written over."""
    shown = joined(self, keys, values)
    if self.keys is None or self.keys.shape[2] < self.window - 1:
        self.keys, self.values = (states[:, :, 1 - self.window :].contiguous().clone() for states in shown)
    else:
        self.keys.copy_(shown[0][:, :, 1 - self.window :]), self.values.copy_(shown[1][:, :, 1 - self.window :])
    return shown


# 04c


def sink_mask(self, q_len, window=0, sinks=0):
    held = 0 if self.keys is None else self.keys.shape[2]
    column, query = torch.arange(held + q_len), torch.arange(held, held + q_len)[:, None]
    near, first = query - column < self.window + window, column < self.sinks + sinks
    return (column <= query) & (near | first)


def sink_layer(update=None, mask=sink_mask, keep=None):
    def start(self, window, sinks):
        self.window, self.sinks, self.keys, self.values = window, sinks, None, None

    def by_columns(self, keys, values):
        keys, values = joined(self, keys, values)
        keep_now = (keep or right_columns)(self, keys.shape[2])
        self.keys, self.values = keys[:, :, keep_now], values[:, :, keep_now]
        return keys, values

    return type("SinkLayer", (), {"__init__": start, "update": update or by_columns, "mask": mask})


def right_columns(self, count):
    column = torch.arange(count)
    return (column < self.sinks) | (column > count - self.window)


def the_window_alone(self, count):
    return torch.arange(count) > count - self.window


def first_of_the_window(self, keys, values):
    keys, values = joined(self, keys, values)
    recent = [states[:, :, -(self.window - 1) :] for states in (keys, values)]
    first = [states[:, :, : self.sinks] for states in recent]
    self.keys, self.values = (torch.cat(pair, 2) for pair in zip(first, recent, strict=True))
    return keys, values


def kept_twice(self, keys, values):
    keys, values = joined(self, keys, values)
    self.keys, self.values = (
        torch.cat([states[:, :, : self.sinks], states[:, :, -(self.window - 1) :]], 2) for states in (keys, values)
    )
    return keys, values


def window_in_all(self, count):
    column = torch.arange(count)
    return (column < self.sinks) | (column > count - self.window + self.sinks)


def w_beside_the_sinks(self, count):
    column = torch.arange(count)
    return (column < self.sinks) | (column >= count - self.window)


def keeps_everything(self, count):
    return torch.arange(count) >= 0


def returns_after_dropping(self, keys, values):
    keys, values = joined(self, keys, values)
    keep = right_columns(self, keys.shape[2])
    self.keys, self.values = keys[:, :, keep], values[:, :, keep]
    return self.keys, self.values


def masks_the_sinks(self, q_len):
    held = 0 if self.keys is None else self.keys.shape[2]
    column, query = torch.arange(held + q_len), torch.arange(held, held + q_len)[:, None]
    return (column <= query) & (query - column < self.window)


def all_held_is_visible(self, q_len):
    held = 0 if self.keys is None else self.keys.shape[2]
    return torch.ones(q_len, held + q_len).tril(held).bool()


def no_mask(self, q_len):
    held = 0 if self.keys is None else self.keys.shape[2]
    return torch.ones(q_len, held + q_len, dtype=torch.bool)


def square_mask(self, q_len):
    return torch.ones(q_len, q_len, dtype=torch.bool).tril()


def swapped_mask(self, q_len):
    return ~sink_mask(self, q_len)


def wide_mask(self, q_len):
    return sink_mask(self, q_len, window=1)


def mask_returns_nothing(self, q_len):
    sink_mask(self, q_len)


def rows_for_all(self, q_len):
    n = q_len + (0 if self.keys is None else self.keys.shape[2])
    distance = torch.arange(n)[:, None] - torch.arange(n)
    return (distance >= 0) & ((distance < self.window) | (torch.arange(n) < self.sinks))


def queries_at_the_front(self, q_len):
    held = 0 if self.keys is None else self.keys.shape[2]
    column, query = torch.arange(held + q_len), torch.arange(q_len)[:, None]
    return (column <= query) & ((query - column < self.window) | (column < self.sinks))


def counting(held):
    """A layer with a count of its own, as in the stub; `held(tokens joined, columns kept)` is what it sets."""

    class SinkLayer:
        def __init__(self, window, sinks):
            self.window, self.sinks, self.held, self.keys, self.values = window, sinks, 0, None, None

        def mask(self, q_len):
            column = torch.arange(self.held + q_len)
            d = column[self.held :, None] - column
            return (d >= 0) & ((d < self.window) | (column < self.sinks))

        def update(self, keys, values):
            keys, values = joined(self, keys, values)
            n = keys.shape[2]
            keep = [*range(min(self.sinks, n)), *range(max(self.sinks, n - self.window + 1), n)]
            self.keys, self.values, self.held = keys[:, :, keep], values[:, :, keep], held(n, keep)
            return keys, values

    return SinkLayer


def unclamped(self, count):
    return list(range(self.sinks)) + list(range(max(self.sinks, count - self.window + 1), count))


def trims_late(self, keys, values):
    keys, values = joined(self, keys.clone(), values.clone())
    self.keys, self.values = keys, values
    return keys, values


def trims_in_the_mask(self, q_len):
    if self.keys is not None:
        keep = right_columns(self, self.keys.shape[2])
        self.keys, self.values = self.keys[:, :, keep], self.values[:, :, keep]
    return sink_mask(self, q_len)


def first_of_these(self, keys, values):
    all_keys, all_values = joined(self, keys.clone(), values.clone())
    if all_keys.shape[2] <= self.sinks + self.window - 1:
        self.keys, self.values = all_keys, all_values
    else:
        self.keys = torch.cat([keys[:, :, : self.sinks], all_keys[:, :, 1 - self.window :]], 2)
        self.values = torch.cat([values[:, :, : self.sinks], all_values[:, :, 1 - self.window :]], 2)
    return all_keys, all_values


def short_texts_are_the_callers(self, keys, values):
    keys, values = joined(self, keys, values)
    self.keys, self.values = keys, values
    if keys.shape[2] > self.sinks + self.window - 1:
        self.keys, self.values = (
            torch.cat([states[:, :, : self.sinks], states[:, :, 1 - self.window :]], 2) for states in (keys, values)
        )
    return keys, values


def all_but_the_oldest(self, count):
    return torch.arange(count) >= count - (self.sinks + self.window - 1)


def by_the_whole_text(self, q_len):
    """Counts columns by all tokens of the text so far."""
    self.seen = getattr(self, "seen", 0)
    column, query = torch.arange(self.seen + q_len), torch.arange(self.seen, self.seen + q_len)[:, None]
    self.seen += q_len
    return (column <= query) & ((query - column < self.window) | (column < self.sinks))


def mask_of_four_axes(self, q_len):
    return sink_mask(self, q_len)[None, None]


def mask_of_numbers(self, q_len):
    return torch.zeros(sink_mask(self, q_len).shape).masked_fill(~sink_mask(self, q_len), float("-inf"))


class TwoViews:
    """The first tokens and the window apart, as slices of copies."""

    def __init__(self, window, sinks):
        self.window, self.sinks, self.first, self.recent = window, sinks, None, None

    def parts(self):
        return [] if self.first is None else [torch.cat(pair, 2) for pair in zip(self.first, self.recent, strict=True)]

    def mask(self, q_len):
        held = self.parts()[0].shape[2] if self.parts() else 0
        column, query = torch.arange(held + q_len), torch.arange(held, held + q_len)[:, None]
        return (column <= query) & ((query - column < self.window) | (column < self.sinks))

    def update(self, keys, values):
        new = keys.clone(), values.clone()
        shown = [torch.cat(pair, 2) for pair in zip(self.parts(), new, strict=True)] if self.parts() else new
        n = shown[0].shape[2]
        start = max(min(self.sinks, n), n - self.window + 1)
        self.first, self.recent = [s[:, :, : self.sinks] for s in shown], [s[:, :, start:] for s in shown]
        return shown


class TwoCopies(TwoViews):
    """Right: the same with copies of the slices."""

    def update(self, keys, values):
        shown = super().update(keys, values)
        self.first, self.recent = [s.clone() for s in self.first], [s.clone() for s in self.recent]
        return shown


# 04d

SEEN = {7: list(range(8)), 8: [8], 9: [8, 9]}

WRONG = {
    "04a": [
        (one_too_many, "one too many"),
        (not_itself, "at distance 0 it looks at itself"),
        (window_before_itself, "at distance 0 it looks at itself"),
        (one_too_few, "one too few"),
        (offset_ignored, "the first key stands at position `offset`"),
        (queries_from_zero, "the queries were counted from 0"),
        (queries_from_offset, "the queries were counted from `offset`"),
        (sees_the_future, "the future is visible"),
        (looks_both_ways, "a window looks back only"),
        (causal_alone, "the window is not used"),
        (without_brackets_left, "`&` took the 0"),
        (without_brackets_right, "`&` binds before"),
        (other_sign, "the sign of the distance"),
        (ends_at_kv_len, "end before offset + kv_len"),
        (a_key_missing, "leaves its end out"),
        (four_axes, "came      a tensor of shape (1, 1, 7, 7), not (7, 7)"),
        (four_axes, "leave [None, None] away"),
        (inverted, "True means may look"),
        (turned, "rows and columns are swapped"),
        (for_adding, "not numbers to be added"),
        (element_by_element, "compares each query with every key"),
        (with_and, "for tensors write (...) & (...)"),
        (with_a_chain, "for tensors write (...) & (...)"),
        (prints_the_mask, "`return` missing"),
    ],
    "04b": [
        (layer(keeps_w), "keep window - 1"),
        (layer(keeps_w_minus_two), "one too few are kept"),
        (layer(trims_before_the_prompt_is_attended), "never had their turn to look"),
        (layer(returns_what_it_keeps), "dropped before they were returned"),
        (layer(trims_each_chunk), "cut to the window as it came in"),
        (layer(forgets_beyond_the_chunk), "only tokens of that chunk are held"),
        (layer(new_ones_alone), "only the new tokens were returned"),
        (layer(never_drops), "nothing is ever dropped"),
        (layer(keeps_all_and_shows_a_part), "old ones are still held somewhere"),
        (layer(keeps_the_first), "the first tokens were kept"),
        (layer(values_grow), "the values do not"),
        (layer(keeps_views), "a view of the caller's own tensor"),
        (CopiesFirst, "a view: it shows 3 tokens, and the tensor behind it, of 1,000, stays"),
        (layer(clones_at_first), "what is kept is a view"),
        (layer(views_of_tokens), "what is kept is a view"),
        (layer(returns_what_it_keeps), "so a new token sees only window - 1 tokens"),
        (layer(forgets_to_return), "`return` missing"),
        (layer(forgets_at_the_next), "dropped at the next update only"),
        (layer(cuts(0)), "the sequences were cut, not the tokens"),
        (layer(cuts(1)), "the heads were cut, not the tokens"),
        (layer(cuts(1, 1)), "the heads were cut, not the tokens"),
        (layer(cuts(3)), "the channels were cut, not the tokens"),
        (layer(joins()), "joined along the sequences"),
        (layer(joins(1)), "joined along the heads"),
        (layer(joins(-1)), "joined along the channels"),
        (layer(keys_alone), "return two tensors"),
        (layer(values_first), "have changed places"),
    ],
    "04c": [
        (sink_layer(keep=the_window_alone), "a plain window"),
        (sink_layer(first_of_the_window), "the first tokens of the window"),
        (sink_layer(kept_twice), "kept twice"),
        (sink_layer(keep=window_in_all), "they come on top"),
        (sink_layer(keep=w_beside_the_sinks), "one too many: window - 1"),
        (sink_layer(keep=keeps_everything), "nothing is ever dropped"),
        (sink_layer(returns_after_dropping), "dropped before they were returned"),
        (sink_layer(returns_after_dropping), "positions of the keys that update 6 returned: [0, 1, 2, 3, 4, 5]"),
        (sink_layer(keep=all_but_the_oldest), "the first tokens went with the rest"),
        (sink_layer(mask=by_the_whole_text), "dropped tokens have no column"),
        (sink_layer(mask=mask_of_four_axes), "came      a tensor of shape (1, 1, 1, 1), not (1, 1)"),
        (sink_layer(mask=mask_of_four_axes), "leave [None, None] away"),
        (sink_layer(mask=mask_of_numbers), "not numbers to be added"),
        (TwoViews, "what is kept is a view"),
        (sink_layer(mask=masks_the_sinks), "the mask hides them"),
        (sink_layer(mask=all_held_is_visible), "shows all that is held"),
        (sink_layer(mask=no_mask), "its own future"),
        (sink_layer(mask=square_mask), "a column for each held token"),
        (sink_layer(mask=swapped_mask), "True means may look"),
        (sink_layer(mask=wide_mask), "one token too many be seen"),
        (sink_layer(mask=None), "without one"),
        (sink_layer(mask=mask_returns_nothing), "`return` missing"),
        (sink_layer(mask=rows_for_all), "a row for each new token only"),
        (sink_layer(mask=queries_at_the_front), "the last q_len columns"),
        (counting(lambda n, keep: 0), "does `update` set self.held"),
        (counting(lambda n, keep: n), "len(keep)"),
        (sink_layer(keep=unclamped), "shorter than `sinks`"),
        (sink_layer(trims_late, trims_in_the_mask), "dropped at the next update only"),
        (sink_layer(first_of_these), "the first tokens of this update"),
        (sink_layer(short_texts_are_the_callers), "the caller's own tensors"),
    ],
    "04d": [
        (SEEN | {8: range(1, 9), 9: range(2, 10)}, "does not slide along"),
        (SEEN | {8: range(9), 9: [9]}, "token 8 begins the second"),
        (SEEN | {8: range(1, 9), 9: [9]}, "token 8 begins the second"),
        (SEEN | {7: [7], 8: [7, 8], 9: [7, 8, 9]}, "token 7 is in it"),
        ({7: range(8), 8: range(9), 9: range(10)}, "nothing before the border"),
        ({7: range(7), 8: [], 9: [8]}, "a token sees itself too"),
        ({7: range(8), 8: range(8, 16), 9: range(8, 16)}, "the later ones are its future"),
        (SEEN | {7: 8}, "a list of positions"),
        ({7: range(1, 8), 8: range(1, 9), 9: [9]}, "positions count from 0"),
        (SEEN | {7: [range(8)]}, "leave the brackets away"),
        (SEEN | {7: [None, 1]}, "whole numbers"),
        ({"7": range(8), "8": [8], "9": [8, 9]}, "without quotes"),
    ],
}
RIGHT = {
    "04a": [mask, mask_by_loops],
    "04b": [layer(window), InABuffer, layer(slides_in_place)],
    "04c": [sink_layer(), counting(lambda n, keep: len(keep)), TwoCopies],
    "04d": [SEEN, {7: range(8), 8: {8}, 9: (9, 8)}, {7: torch.arange(8), 8: torch.tensor([8]), 9: [8, 9]}],
}
