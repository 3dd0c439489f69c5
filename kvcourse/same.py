"""Same or not the same: ours against transformers, and rounding against a fault."""

import copy
from dataclasses import dataclass

import torch

from .containers import DynamicCache
from .generate import greedy
from .hf import namesake


@dataclass(frozen=True)
class Comparison:
    """What two caches of the same kind did with the same text."""

    new_tokens: int
    same_tokens: bool
    same_layers: int  # layers whose keys and values are equal to the last bit
    layers: int
    our_bytes: int  # used, without spare room
    their_bytes: int

    def __repr__(self):
        tokens = f"{'same' if self.same_tokens else 'DIFFERENT'} {self.new_tokens} tokens"
        layers = f"keys and values equal in {self.same_layers} of {self.layers} layers"
        return f"{tokens}; {layers}; bytes used: ours {self.our_bytes:,}, transformers {self.their_bytes:,}"


def compare(model, input_ids, cache_class=DynamicCache, max_new_tokens=20, **options):
    """Decode the same text with our cache and with its namesake in transformers.

    `input_ids`: (batch, tokens). `cache_class`: one of our containers; both are made with `options` (by default the
    model's config). Returns a `Comparison`, which prints as one line.
    """
    options = options or {"config": model.config}
    ours, theirs = cache_class(**options), namesake(cache_class)(**options)
    texts = [greedy(model, input_ids, max_new_tokens, cache) for cache in (ours, theirs)]
    pairs = list(zip(ours.layers, theirs.layers, strict=True))
    equal = [torch.equal(a.keys, b.keys) and torch.equal(a.values, b.values) for a, b in pairs]
    their_bytes = sum(layer.keys.nbytes + layer.values.nbytes for layer in theirs.layers)
    return Comparison(max_new_tokens, torch.equal(*texts), sum(equal), len(pairs), ours.nbytes(used=True), their_bytes)


@dataclass(frozen=True)
class Diagnosis:
    """How far two ways to compute the same logits lie apart, and why."""

    verdict: str  # "identical", "rounding" or "fault"
    largest: dict  # dtype -> largest difference between two logits
    position: int | None  # first position that a fault touches

    def __repr__(self):
        names = [str(dtype).removeprefix("torch.") for dtype in self.largest]
        return {
            "identical": "identical: not one logit differs",
            "rounding": f"rounding: the difference all but vanishes in {names[-1]}",
            "fault": f"fault: the difference stays in {names[-1]}; it starts at position {self.position}",
        }[self.verdict]


ROUNDING = 1_000  # steps of the number format, at the largest logit, that some thirty layers of rounding can add up to


def diagnose(model, input_ids, run=None, dtypes=(torch.bfloat16, torch.float32)):
    """Tell rounding from a fault in a cached run.

    A cache computes the same function in another order, so its logits differ in the last bits. A wrong mask or position
    makes them differ too. Which is it? Compute both ways again with a finer number format: rounding shrinks with the
    format, a fault stays.

    `run(model, input_ids) -> logits (batch, tokens, vocabulary)` is the cached run in question; by default our dynamic
    cache, fed one token at a time. `dtypes`: from coarse to fine.
    """
    run = run or one_at_a_time
    gaps = {}
    for dtype in dtypes:
        twin = model if model.dtype == dtype else copy.deepcopy(model).to(dtype)
        with torch.no_grad():
            plain = twin(input_ids, use_cache=False).logits.float()
            gaps[dtype] = (run(twin, input_ids).float() - plain).abs().amax(dim=(0, 2))
    largest = {dtype: gap.max().item() for dtype, gap in gaps.items()}
    if not any(largest.values()):
        return Diagnosis("identical", largest, None)
    allowed = ROUNDING * torch.finfo(dtypes[-1]).eps * plain.abs().max()
    beyond = (gaps[dtypes[-1]] > allowed).nonzero()
    return Diagnosis("fault", largest, int(beyond[0])) if len(beyond) else Diagnosis("rounding", largest, None)


def one_at_a_time(model, input_ids):
    """Logits (batch, tokens, vocabulary) of a text fed to our dynamic cache one token at a time."""
    cache = DynamicCache(config=model.config)
    return torch.cat([model(token, cache=cache).logits for token in input_ids.split(1, dim=1)], dim=1)
