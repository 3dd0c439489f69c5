"""Full attention in few bits: keep everything, the old tokens as codes."""

from ..quantize import AXES, FORMATS, PER_CHANNEL, PER_TOKEN, Fp8, grouping, make_format
from .blocks import QuantizedBuffer
from .checks import whole
from .dynamic import DynamicLayer

BACKENDS = (*FORMATS, "fp8")


class QuantizedLayer(DynamicLayer):
    """Keys and values of every token seen: the last ones exactly, the older ones as codes of `nbits` bits.

    Keeps: all tokens. Drops: digits. A token is quantized once, when it leaves the residual, and its error stays what
    it is then. The last `residual_length` tokens are exact; where groups lie along time ("per channel"), a token waits
    until its group is full, so that up to `residual_length + q_group_size - 1` are. After a crop only those tokens are
    exact that were never quantized. Keys and values are independent of each other.
    With "fp8" there is no residual: each token is quantized when it arrives.

    Bytes, for keys and values each, with C codes, S rows of scales and E exact tokens as capacities:
        batch x kv_heads x (C x ceil(head_dim x nbits / 8) + S x groups x 2 x width + E x head_dim x itemsize)
        per token     a row of scales for each token, groups = ceil(head_dim / min(q_group_size, head_dim))
        per channel   a row for each group of q_group_size tokens, one that a crop has cut included; groups = head_dim
        width         2, or 4 with 8 bits and from the first block on whose scales float16 would spoil
        fp8           batch x (C x kv_heads x head_dim + S), one row for each token
    After a first update of n tokens each capacity is exactly what is used, with m = max(n - residual_length, 0):
    per token C = S = m; per channel S = floor(m / q_group_size), C = q_group_size x S; and E = n - C. From there on,
    C and S grow as in `GrowingBuffer`, E as in `WindowBuffer`.
    In transformers: `QuantizedLayer` and its three subclasses, which quantize the whole history again at every flush
    (fp8: clip to the scale of the first forward) and cannot crop.

    An update reads the history back from its codes and returns the new tokens as they were given, so that a first
    forward computes with exact states. Gradients reach the new tokens in the forward that brings them, and no token
    that is kept. All else is a `DynamicLayer` over another storage.

    `backend`: "hqq", "quanto" or "fp8"; the other arguments: `quantized_formats`.
    """

    def __init__(self, backend, nbits=None, axis_key=None, axis_value=None, q_group_size=None, residual_length=None):
        key_format, value_format, residual = quantized_formats(
            backend, nbits, axis_key, axis_value, q_group_size, residual_length
        )
        self.backend, self.residual_length = backend, residual
        self._keys, self._values = QuantizedBuffer(key_format, residual), QuantizedBuffer(value_format, residual)

    def storages(self):
        return [*self._keys.storages(), *self._values.storages()]

    def news(self, twin, key_states, value_states):
        """Codes, scales, offsets and exact tokens that are new: fewer bytes than the states, and quantized already."""
        return (*self._keys.news(twin._keys), *self._values.news(twin._values))

    def follow(self, twin, news):
        """Append the news of a twin, without quantizing them again."""
        half = len(self._keys.news(twin._keys))
        self._keys.follow(twin._keys, news[:half])
        self._values.follow(twin._values, news[half:])

    def quantized_positions(self):
        """Absolute positions kept as codes: (those of the keys, those of the values). The others are exact."""
        return list(range(self._keys.quantized)), list(range(self._values.quantized))

    def reset(self):
        self._keys.clear()
        self._values.clear()


def quantized_formats(backend, nbits=None, axis_key=None, axis_value=None, q_group_size=None, residual_length=None):
    """Check the options of a quantized layer and return (format of the keys, format of the values, residual length).

    `nbits`: bits a value, 4 by default; "hqq" knows 1, 2, 3, 4, 8 and "quanto" 2, 4. `axis_key`, `axis_value`: how a
    backend numbers its groupings, see `kvcourse.quantize.AXES`; by default keys per channel, values per token.
    `q_group_size`: values in a group, 64 by default. `residual_length`: tokens that stay exact, 128 by default.
    "fp8" has no options. ValueError for what a backend cannot honour, naming it.
    """
    options = {"nbits": nbits, "axis_key": axis_key, "axis_value": axis_value}
    options |= {"q_group_size": q_group_size, "residual_length": residual_length}
    given = {name: value for name, value in options.items() if value is not None}
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}: there are {', '.join(map(repr, BACKENDS))}")
    if backend == "fp8":
        if given:
            raise ValueError(
                f"the fp8 backend has no options and cannot honour {', '.join(given)}: leave out, or use hqq or quanto"
            )
        return Fp8(), Fp8(), 0
    bits = whole("nbits", given.get("nbits", 4))
    if bits not in FORMATS[backend].known_bits:
        known = ", ".join(map(str, FORMATS[backend].known_bits))
        raise ValueError(f"nbits={nbits!r}: the {backend} backend keeps {known} bits a value")
    group = whole("q_group_size", given.get("q_group_size", 64), least=1)
    residual = whole("residual_length", given.get("residual_length", 128), least=0)
    key_grouping = _grouping(backend, "axis_key", axis_key, PER_CHANNEL)
    value_grouping = _grouping(backend, "axis_value", axis_value, PER_TOKEN)
    return make_format(backend, bits, key_grouping, group), make_format(backend, bits, value_grouping, group), residual


def _grouping(backend, name, axis, default):
    if axis is None:
        return default
    if whole(name, axis) not in AXES[backend]:
        known = ", ".join(f"{number} ({meaning})" for number, meaning in AXES[backend].items())
        raise ValueError(f"{name}={axis!r}: the {backend} backend has the axes {known}")
    return grouping(backend, axis)
