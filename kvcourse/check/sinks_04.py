"""Task 04c: a window that keeps the first tokens of the text."""

import torch

from ..cache import Cache
from ..measure import perplexity
from .playing import Adapter, first_difference, some_ids, tiny
from .positions import check_held, returned
from .runner import run
from .sinks_mistakes import SINK_MISTAKES, Sinks
from .sliding_04 import PROMPT
from .task import Wrong, compare, task

SINKS = [
    returned("window 4, 2 first: ten tokens, one at a time", [1] * 10, [4, 2], 2, 3, with_mask=True),
    returned("window 3, 1 first: a prompt of 8 tokens, then 1, 1", [8, 1, 1], [3, 1], with_mask=True),
    returned("window 4, 2 first: chunks of 3, 5, 1, 4", [3, 5, 1, 4], [4, 2], 2, 3, 4, with_mask=True),
    returned("window 3, 4 first: chunks of 1, 2, 1, 6, 1", [1, 2, 1, 6, 1], [3, 4], with_mask=True),
    returned("window 4, 2 first: the caller writes over its tensors", [2, 1, 4, 1], [4, 2], 1, 2, 2, True, True),
    returned(
        "window 4, 2 first: what is held after a prompt of 9 tokens, then 1, 1",
        [9, 1, 1],
        [4, 2],
        with_mask=True,
        most=5,
    ),
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
    check_held(layer_class, 2 * (4 + 2), [4, 2], PROMPT, at_once=True)
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
    said = {"small": "six cases, every position as expected", "model": "the scores that it gives without a cache"}
    if model is None:
        return said
    tokens, window, sinks = text.shape[1], 32, 4
    yours = surprise(logits_with(layer_class, model, text, 50, window, sinks), text)
    bare = perplexity(model, text, attention_mask=sink_mask(tokens, window, 0).to(model.device))
    return said | {
        "perplexity": f"of {tokens} tokens: {perplexity(model, text):.0f} when everything is kept, {bare:.0f} with a "
        f"window of {window}, {yours:.0f} with the same window and your {sinks} first tokens"
    }
