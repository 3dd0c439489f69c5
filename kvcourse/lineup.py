"""Every kind of cache on one text, measured: bytes, step time, and what one can do with it, all asked of live caches.

rows = line_up(model, input_ids)            the kinds that serve one and the same model
print(table(rows))                          counts and booleans, the same on every machine
print(times(rows))                          this machine's times, as multiples of the dynamic cache's
"""

import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch

from .containers import DynamicCache, StaticCache
from .encoder_decoder import EncoderDecoderCache
from .models.twins import with_windows
from .offload import emulated_device
from .quantized_cache import QuantizedCache
from .same import ROUNDING


@dataclass(frozen=True)
class Kind:
    """How to make one kind of cache: `make(config, tokens)`, for a text of so many tokens."""

    name: str
    make: Callable
    lesson: str
    window: int | None = None  # tokens; every second layer of the model then has this window
    offloaded: bool = False


@dataclass(frozen=True)
class Measured:
    """One kind of cache after a text of `tokens` tokens."""

    name: str
    tokens: int
    nbytes: int  # held at the end, on the device where there is one
    first_nbytes: int  # held after the first token
    step_s: float  # seconds of a step of one token, the median
    croppable: bool
    compileable: bool
    exact: bool  # same logits as without a cache, up to rounding
    lesson: str

    @property
    def bytes_per_token(self):
        """Bytes held for each token of the text, spare room included."""
        return self.nbytes / self.tokens


KINDS = (
    Kind("no cache", lambda config, tokens: None, "01"),
    Kind("dynamic", lambda config, tokens: DynamicCache(config=config), "02"),
    Kind("dynamic, half windows", lambda config, tokens: DynamicCache(config=config), "04", window=64),
    Kind("static", lambda config, tokens: StaticCache(config, 2 * tokens), "08"),
    Kind("offloaded", lambda config, tokens: DynamicCache(config=config, offloading=True), "09", offloaded=True),
    Kind("fp8", lambda config, tokens: QuantizedCache("fp8", config), "12"),
    Kind("quanto, 4 bits", lambda config, tokens: QuantizedCache("quanto", config, nbits=4), "12"),
    Kind("hqq, 4 bits", lambda config, tokens: QuantizedCache("hqq", config, nbits=4), "12"),
    Kind("hqq, 2 bits", lambda config, tokens: QuantizedCache("hqq", config, nbits=2), "12"),
)


@torch.no_grad()
def line_up(model, input_ids, steps=4, kinds=KINDS, bandwidth=1e9):
    """Measure each kind of cache on the same text, a list of `Measured`.

    `input_ids`: (1, tokens); all but the last `steps` tokens are put into the cache beforehand, as keys and values of
    one prefill, and the others are fed one by one. A kind with a window gets a twin of the model with windows in every
    second layer. Offloaded kinds run over an emulated link of `bandwidth` bytes a second, in real time.
    """
    history, rows, references = input_ids[:, :-steps], [], {}
    for kind in kinds:
        if kind.window not in references:
            layer_types = ["full_attention", "sliding_attention"] * model.config.num_hidden_layers
            layer_types = layer_types[: model.config.num_hidden_layers]
            twin = model if kind.window is None else with_windows(model, layer_types, kind.window)
            states = DynamicCache()  # without a config: all tokens of every layer, the windows' as well
            twin(history, cache=states)
            references[kind.window] = twin, states, twin(input_ids, use_cache=False).logits
        twin, states, expected = references[kind.window]

        def fill(cache, states=states):
            for layer_idx, layer in enumerate(states.layers):
                cache.update(layer.keys, layer.values, layer_idx)

        def make(kind=kind, twin=twin):
            return kind.make(twin.config, input_ids.shape[1])

        def forward(ids, cache, twin=twin):
            return twin(ids, cache=cache, use_cache=cache is not None).logits

        link = {"memory": 2**40, "bandwidth": bandwidth, "latency": 1e-5, "clock": "wall"}
        with emulated_device(**link) if kind.offloaded else nullcontext() as device:
            rows.append(measure(kind.name, make, forward, input_ids, expected, steps, kind.lesson, fill, device))
    return rows


def line_up_toys(load, steps=4):
    """The two kinds that other models need, on toys that copy letters and write numbers in words. `load`: `kv.load`.

    Their bytes don't compare with those of the model above; what one can do with the cache does.
    """
    model, tokenizer = load("toy-mamba")
    text = tokenizer("hsreltpu>hsreltpu", return_tensors="pt").input_ids

    def recurrent(ids, cache):
        return model(ids, cache=cache, use_cache=cache is not None).logits

    with torch.no_grad():
        expected = recurrent(text, None)
    states = measure("states", lambda: DynamicCache(config=model.config), recurrent, text, expected, steps, "14")

    t5, tokenizer = load("toy-t5")
    source = tokenizer("70142", return_tensors="pt")
    answer = t5.generate(**source, do_sample=False, max_new_tokens=30)
    encoded = t5.get_encoder()(**source)

    def decoder(ids, cache):
        return t5(encoder_outputs=encoded, decoder_input_ids=ids, cache=cache, use_cache=cache is not None).logits

    def both_sides():
        return EncoderDecoderCache(DynamicCache(config=t5.config), DynamicCache(config=t5.config))

    with torch.no_grad():
        expected = decoder(answer, None)
    return [measure("encoder-decoder", both_sides, decoder, answer, expected, steps, "13"), states]


@torch.no_grad()
def measure(name, make, forward, input_ids, expected, steps, lesson, fill=None, device=None):
    """Measure one kind of cache on one text.

    `make()` makes an empty cache, or None for none at all. `forward(ids, cache) -> logits`. `expected`: logits of the
    whole text without a cache, (1, tokens, vocabulary). `fill(cache)`: puts all but the last `steps` tokens into it; by
    default one forward does. `device`: an emulated one, whose bytes are then counted.
    """
    tokens, cache = input_ids.shape[1], make()
    if cache is not None:
        first = make()
        forward(input_ids[:, :1], first)
        first_nbytes = device.used if device else first.nbytes()
        del first
        fill(cache) if fill else forward(input_ids[:, :-steps], cache)
    seconds, gap = [], 0.0
    for end in range(tokens - (steps if cache is not None else 1) + 1, tokens + 1):
        start = time.perf_counter()
        logits = forward(input_ids[:, end - 1 : end] if cache is not None else input_ids[:, :end], cache)
        seconds.append(time.perf_counter() - start)
        gap = max(gap, (logits[:, -1] - expected[:, end - 1]).abs().max().item())
    step, exact = statistics.median(seconds), gap <= ROUNDING * torch.finfo(expected.dtype).eps * expected.abs().max()
    if cache is None:
        return Measured(name, tokens, 0, 0, step, True, False, bool(exact), lesson)  # the text grows at each step
    held = device.used if device else cache.nbytes()
    able = bool(cache.is_croppable), bool(cache.is_compileable)
    return Measured(name, tokens, held, first_nbytes, step, *able, bool(exact), lesson)


def table(rows):
    """Bytes and abilities of each row, as text."""
    lines = [f"{'cache':24}{'bytes a token':>14}{'at token 1':>13}  {'crop':6}{'compile':9}{'exact':7}lesson"]
    for row in rows:
        able = [("yes" if able else "no") for able in (row.croppable, row.compileable, row.exact)]
        sizes = f"{row.bytes_per_token:>14,.0f}{row.first_nbytes:>13,}"
        lines.append(f"{row.name:24}{sizes}  {able[0]:6}{able[1]:9}{able[2]:7}{row.lesson:>6}")
    return "\n".join(lines)


def times(rows, against="dynamic"):
    """Seconds of a step of each row as a multiple of another one's, as text."""
    base = next(row.step_s for row in rows if row.name == against)
    lines = [f"{row.name:24}{row.step_s / base:6.1f} x" for row in rows]
    return "\n".join([f"a step of {against}: {1000 * base:.0f} ms", *lines])
