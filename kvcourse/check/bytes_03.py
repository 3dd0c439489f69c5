"""Task 03c: bytes that are read for each token, and the context at which the cache takes over. Both are counted."""

import functools
import math
from dataclasses import dataclass

import torch

from ..containers import DynamicCache
from ..hf import head_shapes
from ..measure import fill
from ..public import PUBLIC
from ..traffic import count_reads
from .bytes_02 import held_by, parameters_of
from .runner import run
from .task import Case, Mistake, compare, task


@dataclass(frozen=True)
class Small:
    """A small model whose last layer is its table of embeddings, as in SmolLM2: then all weights are read in a step."""

    kv_heads: int
    dtype: torch.dtype

    @functools.cached_property
    def model(self):
        from transformers import LlamaConfig, LlamaForCausalLM

        sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4)
        config = LlamaConfig(**sizes, num_key_value_heads=self.kv_heads, head_dim=16, tie_word_embeddings=True)
        with torch.random.fork_rng(devices=[]):
            return LlamaForCausalLM(config).to(self.dtype).eval()

    @torch.no_grad()
    def read(self, tokens, batch):
        """Bytes that one step reads, counted, for each of the tokens that it writes."""
        cache = fill(DynamicCache(), self.model.config, tokens - 1, batch, self.dtype)
        with count_reads(self.model, cache) as forwards:
            self.model(torch.ones(batch, 1, dtype=torch.long), cache=cache)
        return forwards[0].read_bytes / batch

    def __str__(self):
        name = str(self.dtype).removeprefix("torch.")
        return f"a small model with {self.kv_heads} key heads, {name}"


SMALL = [Small(4, torch.float32), Small(2, torch.bfloat16)]
TOKENS, BATCHES, PUBLISHED = 100, (1, 2, 8), ("SmolLM2-135M", "Llama-3.1-8B")


def step(small):
    """A case: bytes for a token, as counted in a real step."""

    def play(answer, seen):
        config, weights = small.model.config, small.model.num_parameters()
        for batch in BATCHES:
            came = run(answer[0], answer[0], config, weights, TOKENS, batch, small.dtype)
            seen[f"bytes for a token, batch {batch}"] = came

    return Case(f"bytes_for_a_token, {small}, {TOKENS} tokens each", play)


def meeting(name):
    """A case: tokens at which cache equals weights."""

    def play(answer, seen):
        for batch in BATCHES:
            arguments = PUBLIC[name].config(), parameters_of(name), batch, torch.bfloat16
            seen[f"tokens of each sequence, batch {batch}"] = run(answer[1], answer[1], *arguments)

    return Case(f"meets_at, {name}, bfloat16", play)


CASES = [*map(step, SMALL), *map(meeting, PUBLISHED)]


def counted(config, parameters, tokens, batch, dtype):
    small = next(small for small in SMALL if small.model.config is config)
    return small.read(tokens, batch)


@functools.cache
def _fills(name, batch):
    """The right answer, measured: caches are filled with zeros around the size of the weights."""
    config, weights = PUBLIC[name].config(), 2 * parameters_of(name)
    tokens = int(weights // held_by(config, 1, batch))
    while held_by(config, tokens, batch) < weights:
        tokens += 1
    return tokens


def filled(config, parameters, batch, dtype):
    return _fills(next(name for name in PUBLISHED if parameters_of(name) == parameters), batch)


def read(
    config, parameters, tokens, batch, dtype, share=True, part=2, cache=lambda batch: 1, weight=None, together=False
):
    """Bytes for a token by formula, with the lines that go wrong as parameters."""
    weights = parameters * (dtype.itemsize if weight is None else weight)
    held = tokens * one(config, dtype, part) * cache(batch)
    return (weights / (batch if share else 1) + held) * (batch if together else 1)


def meet(config, parameters, batch, dtype, part=2, shared=lambda batch: batch, weight=None, whole=math.ceil):
    weights = parameters * (dtype.itemsize if weight is None else weight)
    return whole(weights / (shared(batch) * one(config, dtype, part)))


def one(config, dtype, part=2):
    """Bytes of one token of one sequence."""
    kv_heads, head_dim = head_shapes(config)[0]
    return part * config.num_hidden_layers * kv_heads * head_dim * dtype.itemsize


def query_heads(config, *others):
    part = 2 * config.num_attention_heads / head_shapes(config)[0][0]
    return meet(config, *others, part=part) if len(others) == 3 else read(config, *others, part=part)


def step_with(**changes):
    return functools.partial(read, **changes), meet


def meets_with(**changes):
    return read, functools.partial(meet, **changes)


VALUES = "the values were forgotten: a token leaves a key and a value, and a step reads both"
GROUPED = "query heads were counted; a step reads the keys that are held, and those have kv_heads"
OWN = "the cache is not shared: a step reads that of every sequence, so each token pays for its own in full"
MISTAKES = [
    Mistake(
        "each token pays for all weights: a step fetches them once, and all sequences of the batch share them",
        step_with(share=False),
    ),
    Mistake(OWN, step_with(cache=lambda batch: 1 / batch)),
    Mistake(VALUES, step_with(part=1)),
    Mistake(
        "this is what the whole step reads; it writes one token for each sequence, so divide by the batch",
        step_with(together=True),
    ),
    Mistake(
        "each token pays for the caches of all sequences; its own is the only one that it needs",
        step_with(cache=lambda batch: batch),
    ),
    Mistake("parameters are numbers, not bytes: each takes dtype.itemsize bytes", step_with(weight=1)),
    Mistake("the weights alone; a step reads the cache too", step_with(part=0)),
    Mistake(GROUPED, (query_heads, meet)),
    Mistake(
        "the batch: with twice the sequences a step reads twice the cache, so they meet at half the tokens",
        meets_with(shared=lambda batch: 1),
    ),
    Mistake(
        "more sequences read more cache, so the two meet earlier, not later", meets_with(shared=lambda batch: 1 / batch)
    ),
    Mistake(VALUES, meets_with(part=1)),
    Mistake("parameters are numbers, not bytes: each takes dtype.itemsize bytes", meets_with(weight=1)),
    Mistake("round up: at this length the cache is still a little smaller than the weights", meets_with(whole=int)),
    Mistake("a part of a token does not exist: round up", meets_with(whole=float)),
    Mistake(GROUPED, (read, query_heads)),
]


@task("03c", "bytes_for_a_token against a counted step, and meets_at against filled caches, for batch 1, 2 and 8")
def task_03c(bytes_for_a_token, meets_at=None):
    """`bytes_for_a_token(config, parameters, tokens, batch, dtype)`, `meets_at(config, parameters, batch, dtype)`."""
    compare((bytes_for_a_token, meets_at), (counted, filled), CASES, MISTAKES, tolerance=1e-6)
    meets = [f"{_fills('SmolLM2-135M', batch):,}" for batch in BATCHES]
    return {
        "bytes": "as counted in a step of two small models, for 1, 2 and 8 sequences",
        "meeting": f"SmolLM2 reads as much cache as weights from {', '.join(meets)} tokens each on",
    }
