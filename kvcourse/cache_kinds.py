"""The kinds of cache that a plan weighs up, each with the bytes that it takes.

What a kind does to a layer is a function of `layer_bytes`; here it gets a name, a lesson and the line that makes it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from . import layer_bytes
from .layer_bytes import filled
from .layers.quantized import quantized_formats


@dataclass(frozen=True)
class Kind:
    """A kind of cache: bytes of a layer as a function of (shape, tokens, itemsize, room), and what one should know."""

    name: str
    size: Callable = field(repr=False)
    lesson: str
    code: str
    exact: bool = True
    offload: bool = False
    windows_stay: bool = False  # offloading leaves layers that keep a window on the device
    period: tuple | None = None  # (residual, group): tokens in full precision pile up until a group of keys is full

    def nbytes(self, layers, tokens, itemsize, room=filled):
        """(bytes on the device, bytes on the host) of one sequence."""
        if self.offload:
            return layer_bytes.offloaded(layers, tokens, itemsize, self.size, self.windows_stay, room)
        return layer_bytes.resident(layers, tokens, itemsize, self.size, room), 0

    def peak(self, layers, tokens, itemsize):
        """The most bytes on the device of any text of up to `tokens` tokens: when a group of keys is quantized, the
        bytes fall back."""
        candidates = [tokens]
        if self.period and tokens >= sum(self.period):
            residual, group = self.period
            candidates.append(residual + (tokens - residual) // group * group - 1)
        return max(self.nbytes(layers, n, itemsize)[0] for n in candidates)


def _quantized(name, backend, nbits=None):
    key_format, _, residual = quantized_formats(backend, nbits)
    period = (residual, key_format.token_multiple) if key_format.token_multiple > 1 else None
    options = "" if nbits is None else f", nbits={nbits}"
    code = f'kv.QuantizedCache("{backend}", config{options})'
    return Kind(name, layer_bytes.quantized(backend, nbits), "12", code, exact=False, period=period)


KINDS = (
    Kind("dynamic", layer_bytes.dynamic, "02", "kv.DynamicCache(config=config)"),
    Kind("static", layer_bytes.static, "08", "kv.StaticCache(config, {context})"),
    _quantized("fp8", "fp8"),
    _quantized("hqq, 4 bits", "hqq", 4),
    _quantized("hqq, 2 bits", "hqq", 2),
    Kind("offloaded", layer_bytes.dynamic, "09", "kv.DynamicCache(config=config, offloading=True)", offload=True),
    Kind(
        "offloaded static",
        layer_bytes.static,
        "09",
        "kv.StaticCache(config, {context}, offloading=True)",
        offload=True,
        windows_stay=True,
    ),
)
