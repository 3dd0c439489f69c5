"""Tasks 02c and 02d: bytes a token, and tokens that fit. What is right is what zero-filled caches really hold."""

import functools
from dataclasses import dataclass

import torch

from ..containers import DynamicCache
from ..hf import head_shapes
from ..measure import fill
from ..public import PUBLIC
from .runner import run
from .task import Case, Mistake, Wrong, choices, compare, task


def held_by(config, tokens, batch=1, dtype=torch.bfloat16):
    """Bytes of a cache filled with `tokens` tokens of zeros, on torch's "meta" device, which needs no memory."""
    with torch.device("meta"):
        return fill(DynamicCache(config=config), config, tokens, batch, dtype).nbytes()


@dataclass(frozen=True)
class Formula:
    """A formula for the bytes of one token. `FORMULAS["A"](config)` computes it for 2-byte numbers."""

    text: str
    fault: str

    def __call__(self, config):
        kv_heads, head_dim = head_shapes(config)[0]
        names = {"layers": config.num_hidden_layers, "q_heads": config.num_attention_heads, "kv_heads": kv_heads}
        names |= {"head_dim": head_dim, "hidden": config.hidden_size, "bytes_each": 2, "bits_each": 16}
        return eval(self.text, {}, names)

    def __repr__(self):
        return self.text


FORMULAS = {  # each of the wrong ones has been published, and is right for some model or in some unit
    "A": Formula("2 * layers * kv_heads * head_dim * bits_each", "bits for bytes"),
    "B": Formula("2 * layers * q_heads * head_dim * bytes_each", "query heads"),
    "C": Formula("2 * layers * kv_heads * (hidden // q_heads) * bytes_each", "head_dim guessed"),
    "D": Formula("layers * kv_heads * head_dim * bytes_each", "keys alone"),
    "E": Formula("2 * layers * kv_heads * head_dim * bytes_each", "right"),
    "F": Formula("2 * layers * hidden * bytes_each", "hidden size"),
}
FAULTS = sorted({formula.fault for formula in FORMULAS.values()})
HINTS = {
    "bits for bytes": "the number counts bits: a number of 16 bits is 2 bytes",
    "query heads": "count the heads whose keys are stored; in newer models several query heads share one",
    "head_dim guessed": "it agrees with four of five models; Qwen3-0.6B states its own head_dim, 128, and hidden // "
    "q_heads is 64",
    "keys alone": "it is half of what is held everywhere: a token leaves a key and a value",
    "hidden size": "it agrees where every query head has keys of its own; look at a model with grouped heads",
}


@task("02c", "your verdicts against what zero-filled caches of five models hold")
def task_02c(faults):
    """`faults`: {"A": a word of FAULTS, ...} for each formula of FORMULAS."""
    choices(faults, list(FORMULAS), FAULTS)
    for letter, formula in FORMULAS.items():
        said = faults[letter]
        if said != formula.fault:
            raise Wrong(**_disagree(letter, formula, said))
    return {"E": "equals the cache on all five", "the rest": "each wrong for the reason you named"}


def _disagree(letter, formula, said):
    """What speaks against a verdict: a model on which the formula does something else than was said."""
    suspect = next(other for other in FORMULAS.values() if other.fault == said)
    configs = {name: public.config() for name, public in PUBLIC.items()}
    name = next(name for name, config in configs.items() if formula(config) != suspect(config))
    gives, would, held = formula(configs[name]), suspect(configs[name]), held_by(configs[name], 16) // 16
    tested = f"{letter} = {formula}, called {said!r}, on {name}: the cache holds {held:,} bytes a token"
    if said == "right":
        return dict(tested=tested, expected=f"{held:,}", came=f"{gives:,}", likely=HINTS[formula.fault])
    return dict(
        tested=tested,
        expected=f"{would:,}, if that were the fault",
        came=f"{gives:,}" + (", what the cache holds" if gives == held else ""),
        likely="nothing is wrong with it: it equals the cache on all five models"
        if formula.fault == "right"
        else HINTS[formula.fault],
    )


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
    Machine("Qwen3-0.6B", 6, 3, torch.float32),
    Machine("SmolLM2-135M", 1.5, 2, torch.float16),
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
        seen["tokens"] = run(answer, answer, *arguments(machine))

    def explain(label, expected, came):
        number = isinstance(came, (int, float)) and not isinstance(came, bool)
        return "a part of a token does not fit: round down" if number and expected < came < expected + 2 else None

    return Case(str(machine), play, explain)


def fit(
    config, parameters, memory_gib, batch, dtype, giga=2**30, per_sequence=True, weights=None, itemsize=None, part=2
):
    """The right answer by formula, and with other keywords the wrong ones."""
    kv_heads, head_dim = head_shapes(config)[0]
    a_token = part * config.num_hidden_layers * kv_heads * head_dim * (itemsize or dtype.itemsize)
    room = memory_gib * giga - parameters * (dtype.itemsize if weights is None else weights)
    return max(0, int(room // (a_token * (batch if per_sequence else 1))))


def below_zero(config, parameters, memory_gib, batch, dtype):
    room = memory_gib * 2**30 - parameters * dtype.itemsize
    return room // (batch * held_by(config, 1, 1, dtype))


def query_heads(config, *others):
    return fit(config, *others, part=2 * config.num_attention_heads / head_shapes(config)[0][0])


FITS = [
    Mistake("GB for GiB: a GiB is 2**30 bytes, a GB is 10**9", functools.partial(fit, giga=10**9)),
    Mistake("the weights live in the same memory: subtract them first", functools.partial(fit, weights=0)),
    Mistake(
        "the batch: each sequence has a cache of its own, of that length", functools.partial(fit, per_sequence=False)
    ),
    Mistake("parameters are numbers, not bytes: each takes dtype.itemsize bytes", functools.partial(fit, weights=1)),
    Mistake("a token leaves a key and a value: the factor 2", functools.partial(fit, part=1)),
    Mistake("bytes of a cached number: dtype.itemsize, not always 2", functools.partial(fit, itemsize=2)),
    Mistake("query heads were counted; the cache holds kv_heads", query_heads),
    Mistake("nothing fits when the weights alone are too large: 0, not a negative number", below_zero),
]


@task("02d", "tokens_that_fit on five machines: so many fit, one more does not")
def task_02d(function):
    """`function(config, parameters, memory_gib, batch, dtype)`: tokens for each of `batch` sequences."""
    compare(function, longest, [fitting(machine) for machine in MACHINES], FITS)
    return {"fits": "on all five machines: " + ", ".join(f"{longest(*arguments(m)):,}" for m in MACHINES) + " tokens"}
