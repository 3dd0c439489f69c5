"""Task 04c: a window that keeps the first tokens of the text."""

import torch

from ..cache import Cache
from ..measure import perplexity
from .playing import Adapter, first_difference, some_ids, tiny
from .positions import check_held, returned
from .runner import run
from .task import Mistake, Wrong, compare, task


class Sinks:
    """The right answer to 04c, with the lines that go wrong as parameters."""

    keys = values = None

    def __init__(self, window, sinks):
        self.window, self.sinks = window, sinks

    def mask(self, q_len):
        held = 0 if self.keys is None else self.keys.shape[-2]
        columns = torch.arange(held + q_len)
        distance = columns[held:, None] - columns
        return self.sees(distance, columns)

    def sees(self, distance, columns):
        return (distance >= 0) & ((distance < self.window) | (columns < self.sinks))

    def update(self, keys, values):
        if self.keys is not None:
            keys, values = torch.cat([self.keys, keys], dim=-2), torch.cat([self.values, values], dim=-2)
        keep = self.stays(keys.shape[-2])
        self.keys, self.values = keys[:, :, keep], values[:, :, keep]
        return keys, values

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


TWICE = "while the text is short the first tokens are also in the window, and were kept twice"
MASKED = "the first tokens are held, but the mask hides them once the window has moved on: let every token see columns "
MASKED += "below `sinks`"
NOT_FIRST = "what was kept are the first tokens of the window; keep the first of the text: they stand in front of all "
NOT_FIRST += "that is held"
SINK_MISTAKES = [
    Mistake("a plain window: the first tokens of the text were dropped", sinking(stays=recent)),
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
        "the mask is as wide as the new tokens; it needs a column for each held token too",
        sinking(mask=lambda self, q_len: torch.ones(q_len, q_len, dtype=torch.bool).tril()),
    ),
]
SINKS = [
    returned("window 4, 2 first: ten tokens, one at a time", [1] * 10, [4, 2], with_mask=True),
    returned("window 3, 1 first: a prompt of 8 tokens, then 1, 1", [8, 1, 1], [3, 1], with_mask=True),
    returned(
        "window 4, 2 first: chunks of 3, 5, 1, 4; 2 sequences, 3 heads", [3, 5, 1, 4], [4, 2], 2, 3, 4, with_mask=True
    ),
    returned("window 3, 4 first: chunks of 1, 2, 1, 6, 1", [1, 2, 1, 6, 1], [3, 4], with_mask=True),
]


def sink_mask(tokens, window, sinks):
    """Who sees whom when nothing is cached: (1, 1, tokens, tokens)."""
    positions = torch.arange(tokens)
    distance = positions[:, None] - positions
    return ((distance >= 0) & ((distance < window) | (positions < sinks)))[None, None]


@torch.no_grad()
def logits_with(layer_class, model, ids, parts, window, sinks):
    """Logits of a model of full layers whose cache and mask are the learner's."""
    layers = [Adapter(layer_class, window, sinks) for _ in range(model.config.num_hidden_layers)]
    cache, logits = Cache(layers=layers), []
    for part in ids.split(parts, dim=1):
        mask = run(layer_class, layers[0].layer.mask, part.shape[1])[None, None].to(model.device)
        logits.append(model(part, cache=cache, attention_mask=mask).logits)
    return torch.cat(logits, dim=1)


def surprise(logits, ids):
    """Perplexity from logits that are there already."""
    return torch.nn.functional.cross_entropy(logits[0, :-1].float(), ids[0, 1:]).exp().item()


@task("04c", "SinkLayer: the positions that it returns, who may look at them, then inside a model")
def task_04c(layer_class, model=None, text=None):
    """`layer_class(window, sinks)`, with `update(keys, values)` and `mask(q_len)`.

    `model`, `text`: (1, tokens); with them it also says what the layer does to the perplexity of that text.
    """
    compare(layer_class, Sinks, SINKS, SINK_MISTAKES)
    check_held(layer_class, 2 * (4 + 2), [4, 2])
    small = tiny()
    ids = some_ids(small, 2, 20)
    with torch.no_grad():
        plain = small(ids, use_cache=False, attention_mask=sink_mask(20, 4, 2)).logits
    start = first_difference(plain, logits_with(layer_class, small, ids, [7, 1, 1, 6, 5], 4, 2))
    if start is not None:
        raise Wrong(
            tested="a model of two layers of yours, fed in chunks",
            expected="the scores that it gives without a cache, under one mask over the whole text",
            came=f"other scores from position {start} on",
        )
    said = {"small": "four cases, every position as expected", "model": "the scores that it gives without a cache"}
    if model is None:
        return said
    tokens, window, sinks = text.shape[1], 32, 4
    yours = surprise(logits_with(layer_class, model, text, 50, window, sinks), text)
    bare = perplexity(model, text, attention_mask=sink_mask(tokens, window, 0).to(model.device))
    return said | {
        "perplexity": f"of {tokens} tokens: {perplexity(model, text):.0f} when everything is kept, {bare:.0f} with a "
        f"window of {window}, {yours:.0f} with the same window and your {sinks} first tokens"
    }
