"""Which cache, before anything is allocated: bytes of each kind, tokens that fit, and a recommendation with its reason.

The bytes equal `nbytes()` of a real cache that has read the whole text in one go, to the byte. A growing cache that
gets its tokens one by one has spare room, up to a quarter: `Option.at_most` counts it, and so does the recommendation.
"""

from dataclasses import dataclass

import torch

from . import layer_bytes
from .cache_kinds import KINDS
from .layer_bytes import filled, grown
from .layers.checks import whole

LONGEST = 2**40  # tokens; what still fits then has stopped growing


@dataclass(frozen=True)
class Option:
    """One kind of cache for the text that was asked about."""

    name: str
    nbytes: int  # on the device, for all sequences of the batch
    host_nbytes: int  # beside that, in the memory of the host
    at_most: int  # on the device, with the spare room that growing token by token may leave
    tokens: int | None  # tokens of each sequence that fit, however they come in chunks; None: any number
    available: int  # bytes for the cache
    exact: bool
    lesson: str
    code: str

    @property
    def fits(self):
        """Whether the text fits when it is read in one go."""
        return self.nbytes <= self.available

    @property
    def fits_growing(self):
        """Whether it fits as well when it grows token by token."""
        return self.at_most <= self.available


@dataclass(frozen=True, repr=False)
class Plan:
    """All options, and the one to take (None: nothing fits). Prints as a table."""

    options: tuple
    recommended: Option | None
    reason: str
    memory: int  # bytes of the device
    weights: int  # bytes of the weights in it

    def __getitem__(self, name):
        """The option of that name."""
        for option in self.options:
            if option.name == name:
                return option
        raise KeyError(f"{name!r}: the options are {', '.join(option.name for option in self.options)}")

    def __repr__(self):
        rows = [f"{'cache':18}{'on the device':>14}{'on the host':>13}{'tokens that fit':>17}  fits"]
        for option in self.options:
            host = in_units(option.host_nbytes) if option.host_nbytes else "-"
            tokens = "any number" if option.tokens is None else f"{option.tokens:,}"
            fits = ("no", "yes" if option.fits_growing else "in one go")[option.fits]
            mark = "  <- take this" if option is self.recommended else ""
            rows.append(f"{option.name:18}{in_units(option.nbytes):>14}{host:>13}{tokens:>17}  {fits}{mark}")
        return "\n".join([*rows, "", self.reason])


def plan(
    config,
    memory,
    context,
    batch=1,
    dtype=torch.bfloat16,
    weights=0,
    *,
    source=None,
    exact=False,
    compiled=False,
    state_bytes=None,
):
    """What each kind of cache takes, what fits, and which one to take. Nothing is allocated.

    `config`: of the model (no weights needed). `memory`: bytes of the device. `context`: tokens of each sequence,
    prompt and answer together. `batch`: sequences side by side. `dtype`: number format of keys and values. `weights`:
    bytes of the model's weights, subtracted from the memory. `source`: tokens that an encoder reads, for models that
    have one; their keys and values count as a resident dynamic cache. `exact`: recommend no quantized cache.
    `compiled`: the decode step will be compiled, so a static cache comes first. `state_bytes`: see
    `layer_bytes.shapes`.

    Not counted: activations, and the old buffer of one layer while its larger one is filled. Returns a `Plan`.
    ValueError for numbers that can't be.
    """
    context, batch = whole("context", context, 1), whole("batch", batch, 1)
    memory, weights = whole("memory", memory, 0), whole("weights", weights, 0)
    if config.is_encoder_decoder != (source is not None):
        need = (
            "an encoder: give source=, the tokens that it reads" if source is None else "no encoder: leave out source="
        )
        raise ValueError(f"this model has {need}")
    layers = layer_bytes.shapes(config, dtype.itemsize, state_bytes)
    cross = 0 if source is None else whole("source", source, 1) * sum(s.entry(dtype.itemsize) for s in layers)
    available = max(memory - weights, 0)
    options = {}
    for kind in KINDS:
        (here, host), (most, _) = (kind.nbytes(layers, context, dtype.itemsize, room) for room in (filled, grown))
        fit = _tokens_that_fit(lambda n, kind=kind: batch * (cross + kind.peak(layers, n, dtype.itemsize)) <= available)
        sizes = (batch * (cross + here), batch * host, batch * (cross + most))
        code = kind.code.format(context=context)
        options[kind.name] = Option(kind.name, *sizes, fit, available, kind.exact, kind.lesson, code)
    recommended, reason = _recommend(options, exact, compiled)
    left = in_units(available) + (f" of {in_units(memory)} are left beside the weights" if weights else " are there")
    return Plan(tuple(options.values()), recommended, f"{left}. {reason}", memory, weights)


def _tokens_that_fit(fits):
    """The largest number of tokens for which `fits` holds, None where it always does; `fits` never turns true again."""
    if fits(LONGEST):
        return None
    low, high = 0, LONGEST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _recommend(options, exact, compiled):
    """(option, reason): the first that fits, in the order in which they give something up."""
    dynamic, static = options["dynamic"], options["static"]
    order = ["static"] if compiled else ["dynamic", "static"]
    order += [] if exact else ["fp8", "hqq, 4 bits"]
    order += ["offloaded static", "offloaded"] if compiled else ["offloaded", "offloaded static"]
    chosen = next((options[name] for name in order if options[name].fits_growing), None)
    if chosen is None:
        best = max((options[name] for name in order), key=lambda option: option.tokens)
        most = f"at most {best.tokens:,} tokens a sequence, {best.name} (lesson {best.lesson}) read in one go"
        return None, (
            f"Nothing fits that grows token by token: {most if best.tokens else 'not even one token fits'}. "
            "Take a shorter text, fewer sequences at a time, or a smaller model."
        )
    took, size = f"{chosen.name} (lesson {chosen.lesson})", in_units(chosen.nbytes)
    short = f"Full precision takes {in_units(dynamic.nbytes)}"
    if chosen is dynamic:
        return chosen, f"Take {took}: at most {in_units(chosen.at_most)} while it grows, exact, nothing to decide."
    if chosen is static and compiled:
        return chosen, f"Take {took}: {size}, made once, so a compiled step sees one shape."
    if chosen is static:
        grows = in_units(dynamic.at_most)
        return chosen, f"A dynamic cache may need {grows} while it grows. Take {took}: {size}, made once."
    if chosen.name.startswith("offloaded"):
        host = in_units(chosen.host_nbytes)
        asked = "has to be exact" if exact else "is too large in fp8 and in 4 bits as well"
        return chosen, f"{short} and {asked}. Take {took}: {size} on the device, {host} on the host, and slower."
    return chosen, f"{short}. Take {took}: {size}; old tokens lose digits, so look at the text that it writes."


def in_units(nbytes):
    """Bytes as people read them: 512 B, 1.5 KiB, 22.0 MiB, 4.2 GiB."""
    for unit, digits in (("B", 0), ("KiB", 1), ("MiB", 1)):
        if nbytes < 1024:
            return f"{nbytes:,.{digits}f} {unit}"
        nbytes /= 1024
    return f"{nbytes:,.1f} GiB"
