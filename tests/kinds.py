"""Every kind of cache that a config can ask for, and one oracle for all of them: the text itself, kept as it came.

Used by the random sequences of `test_all_kinds.py` and by the table of operations, `tests/operations.py`.
"""

import copy
from dataclasses import dataclass, field

import torch
import transformers

import kvcourse as kv

WINDOW, ROOM, HEADS, HEAD_DIM = 5, 24, 2, 8
SIZES = dict(hidden_size=16, num_attention_heads=2, num_key_value_heads=HEADS, head_dim=HEAD_DIM, vocab_size=16)


def config(*layer_types):
    """A Llama-like config with these layers; windows and chunks of `WINDOW` tokens."""
    sizes = SIZES | dict(num_hidden_layers=len(layer_types), layer_types=list(layer_types))
    return transformers.LlamaConfig(**sizes, sliding_window=WINDOW, attention_chunk_size=WINDOW)


FULL, SLIDING = ("full_attention",) * 2, ("sliding_attention",) * 2
MIXED, CHUNKED = ("sliding_attention", "full_attention"), ("chunked_attention", "full_attention")
RECURRENT, PAIR = ("linear_attention", "full_attention"), ("hybrid", "hybrid_sliding")


@dataclass(frozen=True)
class Kind:
    """One way to build a cache: a container's name, its layers and options; how far its numbers may be off."""

    container: str
    layer_types: tuple = FULL
    options: dict = field(default_factory=dict)
    tolerance: float = 0.0

    def make(self, library=kv):
        """An empty cache of this package, or of `transformers`."""
        return getattr(library, self.container)(config=config(*self.layer_types), **self.options)


STATIC, OFFLOADED = {"max_cache_len": ROOM}, {"offloading": True}
HQQ = {"backend": "hqq", "nbits": 8, "q_group_size": 4, "residual_length": 6}
PER_TOKEN = HQQ | {"axis_key": 1, "axis_value": 1}
QUANTO = {"backend": "quanto", "nbits": 4, "q_group_size": 8, "residual_length": 4}
KINDS = {
    "dynamic, full": Kind("DynamicCache"),
    "dynamic, sliding": Kind("DynamicCache", SLIDING),
    "dynamic, chunked": Kind("DynamicCache", CHUNKED),
    "dynamic, mixed": Kind("DynamicCache", MIXED),
    "dynamic, recurrent": Kind("DynamicCache", RECURRENT),
    "dynamic, hybrid": Kind("DynamicCache", PAIR),
    "dynamic, offloaded": Kind("DynamicCache", MIXED, OFFLOADED),
    "static, full": Kind("StaticCache", FULL, STATIC),
    "static, sliding": Kind("StaticCache", SLIDING, STATIC),
    "static, mixed": Kind("StaticCache", MIXED, STATIC),
    "static, hybrid": Kind("StaticCache", PAIR, STATIC),
    "static, offloaded": Kind("StaticCache", MIXED, STATIC | OFFLOADED),
    "quantized, hqq": Kind("QuantizedCache", FULL, HQQ, 0.05),
    "quantized, hqq per token": Kind("QuantizedCache", FULL, PER_TOKEN, 0.05),
    "quantized, quanto": Kind("QuantizedCache", FULL, QUANTO, 0.25),
    "quantized, fp8": Kind("QuantizedCache", FULL, {"backend": "fp8"}, 0.08),
    "quantized, mixed": Kind("QuantizedCache", MIXED, HQQ, 0.05),
}


class Wrong(AssertionError):
    """The cache answers, and the answer is not what the text says."""


def must(truth, otherwise):
    if not truth:
        raise Wrong(otherwise)


class Story:
    """A cache and the text it should remember, (batch, HEADS, tokens, HEAD_DIM), with the same things done to both."""

    def __init__(self, kind, library=kv, batch=2):
        self.kind, self.library, self.cache, self.recording = kind, library, kind.make(library), False
        self.dice = torch.Generator().manual_seed(0)
        self.text = self._states(batch, 0)
        self.oldest = 0  # position of the oldest token that a dynamic window still has

    def _states(self, batch, tokens):
        return 2 * torch.rand(batch, HEADS, tokens, HEAD_DIM, generator=self.dice) - 1

    @property
    def length(self):
        return self.text.shape[2]

    @property
    def is_static(self):
        return self.kind.container == "StaticCache"

    def has_window(self, layer_type):
        return "sliding" in layer_type or "chunked" in layer_type

    # The same thing done to both

    def fits(self, tokens):
        """A static cache with a layer of full attention has room for ROOM tokens; windows go on for ever."""
        full = any(not self.has_window(each) and each != "linear_attention" for each in self.kind.layer_types)
        return not (self.is_static and full) or self.length + tokens <= ROOM

    def can_crop(self, count):
        """Whether every layer still has what it needs when the last `count` tokens are gone."""
        if count == 0 or self.length == 0:
            return True
        for layer_type in self.kind.layer_types:
            if "hybrid" in layer_type or layer_type == "linear_attention":
                return False
            if self.has_window(layer_type):
                if self.is_static and self.length > WINDOW:
                    return False
                if not self.is_static and self.oldest > max(self.length - count - (WINDOW - 1), 0):
                    return False
        return True

    def update(self, tokens):
        """One forward: states where there are some, then keys and values in each layer. Checks what comes back."""
        new = self._states(self.text.shape[0], tokens)
        text = torch.cat([self.text, new], dim=2)
        for layer_idx, layer_type in enumerate(self.kind.layer_types):
            if "hybrid" in layer_type or layer_type == "linear_attention":
                inputs = new.flatten(1, 1)[:, 0].transpose(1, 2)  # (batch, channels, tokens)
                self.cache.update_conv_state(inputs, layer_idx, conv_kernel_size=3)
                self.cache.update_recurrent_state(text.sum(dim=2), layer_idx)
            if layer_type == "linear_attention":
                continue
            length, offset = self.cache.get_mask_sizes(tokens, layer_idx)
            keys, values = self.cache.update(new, -new, layer_idx)
            reach = self.length - (WINDOW - 1) if self.has_window(layer_type) else 0
            must(keys.shape[2] == values.shape[2] == length, "not the length that get_mask_sizes announced")
            must(0 <= int(offset) <= max(reach, 0), "a token that can be seen is missing")
            self._agrees(keys, values, text[:, :, int(offset) :])
        self.text = text
        if not self.recording:
            self.oldest = max(self.oldest, self.length - (WINDOW - 1))

    def crop(self, count):
        self.cache.crop(-count)
        self.text = self.text[:, :, : max(self.length - count, 0)]
        self.oldest = max(min(self.oldest, self.length), self.length - (WINDOW - 1), 0)

    def rows(self, rows):
        self.cache.reorder_cache(torch.tensor(rows))
        self.text = self.text[rows]

    def select(self, rows):
        self.cache.batch_select_indices(torch.tensor(rows))
        self.text = self.text[rows]

    def repeat(self, times):
        self.cache.batch_repeat_interleave(times)
        self.text = self.text.repeat_interleave(times, dim=0)

    def record(self):
        self.cache.activate_past_recording()
        self.recording = True

    def reset(self, batch=2):
        self.cache.reset()
        self.text, self.oldest = self._states(batch, 0), 0

    # The questions

    def finish(self):
        """The questions, and one more token: what the contents are good for. Needs no copy of the cache."""
        self.check(look=False)
        if self.fits(1):
            self.update(1)

    def check(self, look=True):
        """Length, positions, states; with `look`, on a copy, the contents as a forward of one more token sees them."""
        must(int(self.cache.get_seq_length()) == self.length, "wrong length")
        for layer_idx, layer_type in enumerate(self.kind.layer_types):
            if hasattr(self.cache, "positions") and layer_type != "linear_attention":
                held = self.cache.positions(layer_idx)
                needed = max(self.length - (WINDOW - 1), 0) if self.has_window(layer_type) else 0
                must(held == list(range(held[0] if held else self.length, self.length)), "positions out of order")
                must(not self.length or held[0] <= needed, "a token that is needed is not held")
            if "hybrid" in layer_type or layer_type == "linear_attention":
                state = self.cache.get_recurrent_state(layer_idx)
                must((state is None) == (self.length == 0), "a state where there is no text, or the other way round")
                must(state is None or torch.allclose(state, self.text.sum(dim=2), atol=1e-5), "not the text's state")
        if look and self.length and self.fits(1):
            twin = copy.copy(self)
            twin.cache = copy.deepcopy(self.cache)
            twin.dice = torch.Generator().manual_seed(self.length)
            twin.update(1)

    def _agrees(self, keys, values, wanted):
        known = min(wanted.shape[2], keys.shape[2])
        for got, expected in ((keys, wanted), (values, -wanted)):
            gap = (got[:, :, :known].float() - expected[:, :, :known]).abs()
            must(not known or gap.max() <= self.kind.tolerance, "not the tokens that were put in")
