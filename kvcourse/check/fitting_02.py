"""Task 02d: tokens that fit beside the weights. What is right is what zero-filled caches really hold."""

import functools
from dataclasses import dataclass

import torch

from ..hf import head_shapes
from ..public import PUBLIC
from .bytes_02 import held_by
from .plain import number
from .runner import run
from .task import Case, Mistake, compare, task
from .words import Phrase


@dataclass(frozen=True)
class Machine:
    """A model, the memory it has to live in, and how many sequences it serves at once."""

    model: str
    memory_gib: float
    batch: int
    dtype: torch.dtype

    def __str__(self):
        size = f"{self.memory_gib:g} GiB, batch {self.batch}, {str(self.dtype).removeprefix('torch.')}"
        return f"{self.model}, {size}"


MACHINES = [
    Machine("Llama-3.1-8B", 24, 1, torch.bfloat16),
    Machine("Llama-3.1-8B", 24, 4, torch.bfloat16),
    Machine("Qwen3-0.6B", 2.5, 2, torch.float16),  # its head_dim is not hidden over heads
    Machine("Qwen3-0.6B", 6, 3, torch.float32),  # its numbers take 4 bytes
    Machine("Llama-2-7B", 12, 1, torch.bfloat16),  # the weights alone need more
]


@functools.cache
def parameters_of(model):
    return PUBLIC[model].parameters()


def longest(config, parameters, memory_gib, batch, dtype):
    """The right answer, measured: caches are filled around the limit and asked what they hold."""
    room = memory_gib * 2**30 - parameters * dtype.itemsize
    tokens = max(0, int(room // held_by(config, 1, batch, dtype)))
    while tokens and held_by(config, tokens, batch, dtype) > room:
        tokens -= 1
    while held_by(config, tokens + 1, batch, dtype) <= room:
        tokens += 1
    return tokens


def arguments(machine):
    config = PUBLIC[machine.model].config()
    return config, parameters_of(machine.model), machine.memory_gib, machine.batch, machine.dtype


def fitting(machine):
    """A case: what a function says for this machine."""

    def play(answer, seen):
        seen["tokens"] = number(run(answer, answer, *arguments(machine)))

    def explain(label, expected, came):
        if isinstance(came, str) and not isinstance(came, Phrase):
            return "text came; return the number itself"
        if not isinstance(came, (int, float)) or isinstance(came, bool):
            return None
        if expected < came < expected + 2:
            return "a part of a token does not fit: round down"
        return "one token more would still fit; nothing is to be set aside" if came == expected - 1 else None

    return Case(str(machine), play, explain)


def fit(config, parameters, memory_gib, batch, dtype, giga=2**30, shared=False, weight=None, copies=1, **token):
    """The right answer by formula, and with other keywords the wrong ones.

    `weight`: bytes of each; `copies`: of the weights, a number or "batch"; `token`: as in `one`.
    """
    weights = parameters * (dtype.itemsize if weight is None else weight) * (batch if copies == "batch" else copies)
    room = memory_gib * giga - weights
    return max(0, int(room // (one(config, dtype, **token) * (1 if shared else batch))))


def one(config, dtype, part=2, itemsize=None, heads=None, head_dim=None):
    """Bytes of one token of one sequence. `heads`, `head_dim`: functions of the config, in place of the right ones."""
    kv_heads, size = head_shapes(config)[0]
    kv_heads, size = heads(config) if heads else kv_heads, head_dim(config) if head_dim else size
    return part * config.num_hidden_layers * kv_heads * size * (itemsize or dtype.itemsize)


def query_heads(config):
    return config.num_attention_heads


def guessed(config):
    return config.hidden_size // config.num_attention_heads


def below_zero(config, parameters, memory_gib, batch, dtype):
    room = memory_gib * 2**30 - parameters * dtype.itemsize
    return room // (batch * held_by(config, 1, 1, dtype))


def xor(config, parameters, memory_gib, batch, dtype):
    return max(0, (memory_gib * 2 ^ 30 - parameters * dtype.itemsize) // (batch * one(config, dtype)))


def for_all_together(config, parameters, memory_gib, batch, dtype):
    return batch * fit(config, parameters, memory_gib, 1, dtype)


def with_other(**changes):
    return functools.partial(fit, **changes)


GIB = "a GiB is 2**30 bytes"
ITEM = "the type decides: a number of type `dtype` takes dtype.itemsize bytes, a weight and a cached number alike"
FITS = [
    Mistake(f"GB for GiB: {GIB}, a GB is 10**9", with_other(giga=10**9)),
    Mistake(f"MiB for GiB: {GIB}, a MiB is 2**20", with_other(giga=2**20)),
    Mistake(f"`^` is no power in Python: {GIB}", xor),
    Mistake("the weights live in the same memory: subtract them first", with_other(weight=0)),
    Mistake("the batch: each sequence has a cache of its own, of that length", with_other(shared=True)),
    Mistake("the batch: more sequences get fewer tokens each; divide by it", for_all_together),
    Mistake("the weights are there once, however many sequences there are", with_other(copies="batch")),
    Mistake("parameters are numbers, not bytes: each takes dtype.itemsize bytes", with_other(weight=1)),
    Mistake("a token leaves a key and a value: the factor 2", with_other(part=1)),
    Mistake(
        "bytes of a cached number: dtype.itemsize, not always 2. bytes_per_token(config, dtype) wants the type, too",
        with_other(itemsize=2),
    ),
    Mistake(ITEM, with_other(itemsize=2, weight=2)),
    Mistake(ITEM, with_other(itemsize=4, weight=4)),
    Mistake("query heads were counted; the cache holds kv_heads", with_other(heads=query_heads)),
    Mistake(
        "head_dim was guessed as hidden size over heads; Qwen3-0.6B states one of its own: config.head_dim",
        with_other(head_dim=guessed),
    ),
    Mistake(
        "the hidden size was counted; a token leaves kv_heads × head_dim numbers in each layer, twice",
        with_other(heads=lambda config: 1, head_dim=lambda config: config.hidden_size),
    ),
    Mistake("nothing fits when the weights alone are too large: 0, not a negative number", below_zero),
]


@task("02d", "tokens_that_fit on five machines: so many fit, one more does not")
def task_02d(function):
    """`function(config, parameters, memory_gib, batch, dtype)`: tokens for each of `batch` sequences."""
    compare(function, longest, [fitting(machine) for machine in MACHINES], FITS)
    asked = MACHINES[1]
    return {"your guess": f"{asked}: {longest(*arguments(asked)):,} tokens for each of the four"} | {
        "the others": "; ".join(f"{m}: {longest(*arguments(m)):,}" for m in MACHINES if m != asked)
    }
