"""The right layer of task 04c, and the wrong ones that people write."""

import torch

from .task import Mistake


def joined(layer, keys, values):
    if layer.keys is None:
        return keys, values
    return torch.cat([layer.keys, keys], dim=-2), torch.cat([layer.values, values], dim=-2)


class Sinks:
    """The right answer to 04c, with the lines that go wrong as parameters."""

    keys = values = None

    def __init__(self, window, sinks):
        self.window, self.sinks = window, sinks

    def mask(self, q_len):
        held = 0 if self.keys is None else self.keys.shape[-2]
        columns = torch.arange(held + q_len)
        return self.sees(self.queries(held, columns)[:, None] - columns, columns)

    def queries(self, held, columns):
        return columns[held:]

    def sees(self, distance, columns):
        return (distance >= 0) & ((distance < self.window) | (columns < self.sinks))

    def update(self, keys, values):
        both = joined(self, keys, values)
        keep = self.stays(both[0].shape[-2])
        self.keys, self.values = (states[:, :, keep] for states in both)
        return both

    def stays(self, count):
        """The columns kept of so many."""
        first = list(range(min(self.sinks, count)))
        return first + list(range(max(len(first), count - (self.window - 1)), count))


def sinking(**methods):
    return type("Layer", (Sinks,), methods)


def recent(self, count):
    return list(range(max(0, count - (self.window - 1)), count))


def first(self, count):
    return list(range(min(self.sinks, count)))


def first_of_the_window(self, count):
    window = recent(self, count)
    return window[: self.sinks] + window


def one_more(self, count):
    start = first(self, count)
    return start + list(range(max(len(start), count - self.window), count))


def window_in_all(self, count):
    start = first(self, count)
    return start + list(range(max(len(start), count - (self.window - 1 - self.sinks)), count))


def held_alone(self, keys, values):
    Sinks.update(self, keys, values)
    return self.keys, self.values


def first_of_the_new(self, keys, values):
    """The first tokens of this update in front, in place of those of the text."""
    both = joined(self, keys, values)
    if both[0].shape[2] <= self.sinks + self.window - 1:
        self.keys, self.values = both
        return both
    pairs = zip((keys, values), both, strict=True)
    self.keys, self.values = (
        torch.cat([new[:, :, : self.sinks], states[:, :, -(self.window - 1) :]], dim=2) for new, states in pairs
    )
    return both


def the_callers_own(self, keys, values):
    both = joined(self, keys, values)
    count = both[0].shape[-2]
    keep = self.stays(count)
    self.keys, self.values = both if len(keep) == count else (states[:, :, keep] for states in both)
    return both


class CountedBeforeTheCut(Sinks):
    count = 0

    def mask(self, q_len):
        columns = torch.arange(self.count + q_len)
        return self.sees(columns[self.count :, None] - columns, columns)

    def update(self, keys, values):
        both = Sinks.update(self, keys, values)
        self.count = both[0].shape[2]
        return both


class CountedTheWholeText(CountedBeforeTheCut):
    def update(self, keys, values):
        self.count += keys.shape[2]
        return Sinks.update(self, keys, values)


def numbers_to_add(self, q_len):
    return torch.zeros(()).masked_fill(~Sinks.mask(self, q_len), float("-inf"))


TWICE = "while the text is short the first tokens are also in the window, and were kept twice"
MASKED = "the first tokens are held, but the mask hides them once the window has moved on: let every token see columns "
MASKED += "below `sinks`"
NOT_FIRST = "what was kept are the first tokens of the window; keep the first of the text: they stand in front of all "
NOT_FIRST += "that is held"
SINK_MISTAKES = [
    Mistake("a plain window: the first tokens of the text were dropped", sinking(stays=recent)),
    Mistake(
        "the last sinks + window - 1 were kept, and the first tokens went with the rest: the first `sinks` of the text "
        "stay for good",
        sinking(stays=lambda self, count: list(range(max(0, count - (self.sinks + self.window - 1)), count))),
    ),
    Mistake(NOT_FIRST, sinking(stays=first_of_the_window)),
    Mistake(TWICE, sinking(stays=lambda self, count: first(self, count) + recent(self, count))),
    Mistake("the window keeps one too many: window - 1, beside the first tokens", sinking(stays=one_more)),
    Mistake(
        "the first tokens were counted into the window; they come on top: sinks + window - 1 are held",
        sinking(stays=window_in_all),
    ),
    Mistake(
        "the order is that of the text: the first tokens in front, then the window",
        sinking(stays=lambda self, count: [*Sinks.stays(self, count)[self.sinks :], *first(self, count)]),
    ),
    Mistake("nothing is ever dropped", sinking(stays=lambda self, count: list(range(count)))),
    Mistake(
        "the tokens were dropped before they were returned; return all that was held and all that is new, then forget",
        sinking(update=held_alone),
    ),
    Mistake(MASKED, sinking(sees=lambda self, distance, columns: (distance >= 0) & (distance < self.window))),
    Mistake(
        "the future is visible: a first token too is seen by those after it alone",
        sinking(sees=lambda s, distance, columns: (distance >= 0) & (distance < s.window) | (columns < s.sinks)),
    ),
    Mistake(
        "this mask shows all that is held; inside a chunk the later tokens must not see what lies before their window",
        sinking(sees=lambda self, distance, columns: distance >= 0),
    ),
    Mistake(
        "this mask hides nothing at all; a chunk would see its own future",
        sinking(sees=lambda self, distance, columns: (distance < 99) & (columns >= 0)),
    ),
    Mistake(
        "the mask lets one token too many be seen: a window of W counts the one that looks",
        sinking(sees=lambda s, distance, columns: (distance >= 0) & ((distance <= s.window) | (columns < s.sinks))),
    ),
    Mistake(
        "one first token too many is seen: columns below `sinks`",
        sinking(sees=lambda s, distance, columns: (distance >= 0) & ((distance < s.window) | (columns <= s.sinks))),
    ),
    Mistake(
        "True and False are swapped: True means may look",
        sinking(sees=lambda self, distance, columns: ~Sinks.sees(self, distance, columns)),
    ),
    Mistake(
        "the mask is as wide as the new tokens; it needs a column for each held token too. If it counts them by "
        "self.held: does `update` set self.held to the number of tokens kept?",
        sinking(mask=lambda self, q_len: torch.ones(q_len, q_len, dtype=torch.bool).tril()),
    ),
    Mistake(
        "the mask has columns for tokens that were dropped: self.held is how many were kept, len(keep)",
        CountedBeforeTheCut,
    ),
    Mistake(
        "the mask has a column for each token of the text; dropped tokens have no column: self.held is how many were "
        "kept, len(keep)",
        CountedTheWholeText,
    ),
    Mistake(
        "two axes are asked for, a row for each new token and a column for each held and new one: leave [None, None] "
        "away",
        sinking(mask=lambda self, q_len: Sinks.mask(self, q_len)[None, None]),
    ),
    Mistake("True and False were asked for, not numbers to be added to the scores", sinking(mask=numbers_to_add)),
    Mistake(
        "a row for each new token only; the mask has rows for the held ones, too",
        sinking(queries=lambda self, held, columns: columns),
    ),
    Mistake(
        "the queries are the last q_len columns: their numbers begin at self.held, not at 0",
        sinking(queries=lambda self, held, columns: columns[: len(columns) - held]),
    ),
    Mistake(
        "the first tokens of this update went in front; those of the text stand in front of all that was held",
        sinking(update=first_of_the_new),
    ),
    Mistake(
        "a text can be shorter than `sinks`: take min(self.sinks, n) of it",
        sinking(stays=lambda self, n: [*range(self.sinks), *range(max(self.sinks, n - (self.window - 1)), n)]),
    ),
    Mistake(
        "your layer kept the caller's own tensors; keep copies: [...].clone(), or choose columns by a list of numbers",
        sinking(update=the_callers_own),
    ),
]
