"""Task 03c: bytes that are read for each token, and the context at which the cache takes over. Both are counted."""

import functools
import inspect
from dataclasses import dataclass

import torch

from ..containers import DynamicCache
from ..measure import fill
from ..public import PUBLIC
from ..traffic import count_reads
from .bytes_02 import held_by
from .fitting_02 import parameters_of
from .plain import number
from .reads_mistakes import MISTAKES
from .runner import run
from .task import Case, Wrong, compare, task


@dataclass(frozen=True)
class Small:
    """A small model whose last layer is its table of embeddings, as in SmolLM2: then all weights are read in a step.

    Its head_dim is three times the hidden size over heads, so that a guess is not mistaken for a forgotten factor 2.
    """

    kv_heads: int
    dtype: torch.dtype

    @functools.cached_property
    def model(self):
        from transformers import LlamaConfig, LlamaForCausalLM

        sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4)
        config = LlamaConfig(**sizes, num_key_value_heads=self.kv_heads, head_dim=24, tie_word_embeddings=True)
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


SMALL = [Small(2, torch.bfloat16), Small(4, torch.float32)]  # in the first no number takes other than 2 bytes
TOKENS, BATCHES = 100, (1, 2, 8)
MEETING = [  # model, weights (None: its own), type
    ("SmolLM2-135M", None, torch.bfloat16),
    ("SmolLM2-135M", None, torch.float32),
    ("SmolLM2-135M", 1_152_000, torch.bfloat16),  # comes out even for batch 1 and 2
    ("Qwen3-0.6B", None, torch.bfloat16),  # its head_dim is not hidden over heads
]


def step(small):
    """A case: bytes for a token, as counted in a real step."""

    def play(answer, seen):
        config, weights = small.model.config, small.model.num_parameters()
        for batch in BATCHES:
            came = run(answer[0], answer[0], config, weights, TOKENS, batch, small.dtype)
            seen[f"bytes for a token, batch {batch}"] = number(came)

    return Case(f"bytes_for_a_token, {small}, {TOKENS} tokens each", play)


def meeting(name, weights, dtype):
    """A case: tokens at which cache equals weights."""

    def play(answer, seen):
        config, parameters = PUBLIC[name].config(), weights or parameters_of(name)
        for batch in BATCHES:
            came = run(answer[1], answer[1], config, parameters, batch, dtype)
            seen[f"tokens of each sequence, batch {batch}"] = number(came)

    def explain(label, expected, came):
        return "text came; return the number itself" if type(came) is str else None

    model = f"{weights:,} weights and the cache of {name}" if weights else name
    return Case(f"meets_at, {model}, {str(dtype).removeprefix('torch.')}", play, explain)


CASES = [*map(step, SMALL), *(meeting(*what) for what in MEETING)]


def counted(config, parameters, tokens, batch, dtype):
    small = next(small for small in SMALL if small.model.config is config)
    return small.read(tokens, batch)


@functools.cache
def fills(name, weights, batch, dtype):
    """The right answer, measured: caches are filled with zeros around the size of the weights."""
    config, size = PUBLIC[name].config(), dtype.itemsize * weights
    tokens = int(size // held_by(config, 1, batch, dtype))
    while held_by(config, tokens, batch, dtype) < size:
        tokens += 1
    return tokens


def filled(config, parameters, batch, dtype):
    name = next(name for name, *_ in MEETING if config.num_hidden_layers == PUBLIC[name].config().num_hidden_layers)
    return fills(name, parameters, batch, dtype)


def takes(function, count):
    """Whether a function can be called with so many arguments."""
    try:
        inspect.signature(function).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True


@task("03c", "bytes_for_a_token against a counted step, and meets_at against filled caches, for batch 1, 2 and 8")
def task_03c(bytes_for_a_token, meets_at=None):
    """`bytes_for_a_token(config, parameters, tokens, batch, dtype)`, `meets_at(config, parameters, batch, dtype)`."""
    both = bytes_for_a_token, meets_at
    if meets_at is None:
        call = "kv.check.task_03c(bytes_for_a_token, meets_at)"
        raise Wrong(expected="two functions", came="one", likely=f"hand over both, without calling them: {call}")
    if all(map(callable, both)) and [takes(one, 4) for one in both] == [True, False] and takes(meets_at, 5):
        raise Wrong(expected="bytes_for_a_token first", came="meets_at first", likely="the two functions are swapped")
    try:
        compare(both, (counted, filled), CASES, MISTAKES, tolerance=1e-6)
    except Wrong as wrong:
        if "still running" in wrong.lines["came"] and wrong.lines["tested"].startswith("meets_at"):
            wrong.lines["likely"] = (
                "counting up token by token is right and too slow: take out of the loop what does not change, or divide"
            )
        raise
    small = ", ".join(f"{SMALL[0].read(TOKENS, batch):,.0f} with batch {batch}" for batch in BATCHES)
    meets = [f"{fills('SmolLM2-135M', parameters_of('SmolLM2-135M'), batch, torch.bfloat16):,}" for batch in BATCHES]
    return {
        "your guess": f"the bytes for one token fall: {small} ({SMALL[0]}). Weights are shared, caches are not",
        "meeting": f"SmolLM2 reads as much cache as weights from {', '.join(meets)} tokens each on",
    }
