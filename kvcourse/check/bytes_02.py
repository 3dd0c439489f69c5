"""Task 02c: six formulas for the bytes of a token. What is right is what zero-filled caches really hold."""

import math
from dataclasses import dataclass

import torch

from ..containers import DynamicCache
from ..hf import head_shapes
from ..measure import fill
from ..public import PUBLIC
from .task import Wrong, choices, task


def held_by(config, tokens, batch=1, dtype=torch.bfloat16):
    """Bytes of a cache filled with `tokens` tokens of zeros, on torch's "meta" device, which needs no memory."""
    with torch.device("meta"):
        return fill(DynamicCache(config=config), config, tokens, batch, dtype).nbytes()


@dataclass(frozen=True)
class Formula:
    """A formula for the bytes of one token in 16-bit numbers. Which one it is shows in its numbers alone.

    `FORMULAS["A"](config)` is what it says, `FORMULAS["A"].product(config)` how it comes to that.
    """

    text: str
    fault: str

    def factors(self, config):
        """The numbers that are multiplied."""
        kv_heads, head_dim = head_shapes(config)[0]
        names = {"layers": config.num_hidden_layers, "q_heads": config.num_attention_heads, "kv_heads": kv_heads}
        names |= {"head_dim": head_dim, "hidden": config.hidden_size, "bytes_each": 2, "bits_each": 16}
        return [eval(factor, {}, names) for factor in self.text.split(" * ")]

    def __call__(self, config):
        return math.prod(self.factors(config))

    def product(self, config):
        return " × ".join(map(str, self.factors(config)))

    def __repr__(self):
        return "a formula: call it with a config, or print formula.product(config)"


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
APART = (  # each taken for the other
    "query heads × head_dim and the hidden size are the same number in four of five models. In Qwen3-0.6B they are "
    "not: 16 query heads of 128 make 2,048, and the hidden size is 1,024"
)


@task("02c", "your verdicts against what zero-filled caches of five models hold")
def task_02c(faults):
    """`faults`: {"A": a word of FAULTS, ...} for each formula of FORMULAS."""
    faults = choices(faults, list(FORMULAS), FAULTS)
    for letter, formula in FORMULAS.items():
        said = faults[letter]
        if said != formula.fault:
            raise Wrong(**_disagree(letter, formula, said))
    said = {letter: f"{formula.text}: {formula.fault}" for letter, formula in FORMULAS.items()}
    return said | {"E": f"{FORMULAS['E'].text}: what the cache holds, in all five models"}


def _disagree(letter, formula, said):
    """What speaks against a verdict: a model on which the formula does something else than was said."""
    suspect = next(other for other in FORMULAS.values() if other.fault == said)
    configs = {name: public.config() for name, public in PUBLIC.items()}
    name = next(name for name, config in configs.items() if formula(config) != suspect(config))
    gives, would, held = formula(configs[name]), suspect(configs[name]), held_by(configs[name], 16) // 16
    product = formula.product(configs[name])
    tested = f"{letter}, called {said!r}, on {name}: {product}; the cache holds {held:,} bytes a token"
    hint = APART if {said, formula.fault} == {"query heads", "hidden size"} else HINTS.get(formula.fault)
    if said == "right":
        return dict(tested=tested, expected=f"{held:,}", came=f"{gives:,}", likely=hint)
    return dict(
        tested=tested,
        expected=f"{would:,}, if that were the fault",
        came=f"{gives:,}" + (", what the cache holds" if gives == held else ""),
        likely="nothing is wrong with it: it equals the cache on all five models" if formula.fault == "right" else hint,
    )
