"""Bytes of one layer, by formula: what a text takes in each kind of cache, before anything is allocated.

The formulas are those of the layers' docstrings, for a text that was read in one go, so that no buffer has spare room.
All lengths are in tokens; `Shape` says what one layer of a model needs. Where a layer of the model keeps a window or a
state, every kind of cache keeps it, so those two formulas are shared.
"""

from collections import Counter
from dataclasses import dataclass

from .hf import head_shapes, layer_specs
from .layers.quantized import quantized_formats

FLOAT32 = 4


@dataclass(frozen=True)
class Shape:
    """One layer, and one sequence: what it keeps of the text, and how large an entry is."""

    keeps: str  # "all", "window", "state" or "nothing"
    kv_heads: int = 0
    head_dim: int = 0
    window: int | None = None  # tokens, the one that looks included
    state_bytes: int = 0  # convolution and recurrent states, whatever the length
    index_dim: int = 0  # index key of sparse attention, one a token

    def entry(self, itemsize):
        """Bytes of the key and the value of one token."""
        return 2 * self.kv_heads * self.head_dim * itemsize


def shapes(config, itemsize, state_bytes=None):
    """One `Shape` for each layer that `config` describes. `itemsize`: bytes of a number of the model's format.

    `state_bytes`: bytes of the states of one layer and sequence, for models other than Mamba, which are known here.
    """
    specs = layer_specs(config)
    heads = head_shapes(config) if any(_has_keys(spec) for spec in specs) else [(0, 0)] * len(specs)
    config = config.get_text_config(decoder=True)
    made = []
    for spec, (kv_heads, head_dim) in zip(specs, heads, strict=False):
        state = 0 if spec.kind == "dummy" or not _has_state(spec) else state_bytes
        if state is None:
            state = _mamba_state(config, itemsize)
        if spec.kind == "dummy":
            made.append(Shape("nothing"))
        elif not _has_keys(spec):
            made.append(Shape("state", state_bytes=state))
        else:
            index = getattr(config, "index_head_dim", 0) if spec.kind == "indexed_attention" else 0
            keeps = "all" if spec.window is None else "window"
            made.append(Shape(keeps, kv_heads, head_dim, spec.window, state, index))
    return made


def _has_keys(spec):
    return spec.kind not in ("conv", "linear_attention", "dummy")


def _has_state(spec):
    return spec.kind in ("conv", "linear_attention") or spec.kind.startswith("hybrid")


def _mamba_state(config, itemsize):
    """Bytes of the states of one Mamba layer: convolution inputs in the model's format, the recurrence in float32."""
    if config.model_type == "mamba":
        channels = config.intermediate_size
        recurrent = channels * config.state_size
    elif config.model_type == "mamba2":
        recurrent = config.num_heads * config.head_dim * config.state_size
        channels = config.num_heads * config.head_dim + 2 * config.n_groups * config.state_size
    else:
        raise ValueError(
            f"the states of {config.model_type!r} layers can't be read from the config: feed one token to the model, "
            "look at the bytes of such a layer (cache.layers[i].nbytes()), and give them as state_bytes"
        )
    return channels * config.conv_kernel * itemsize + recurrent * FLOAT32


def filled(tokens):
    """Capacity of a growing buffer whose tokens came in one go: exactly these."""
    return tokens


def grown(tokens):
    """The largest capacity that a growing buffer can have when its tokens came one by one: a quarter more."""
    return max(tokens + 1, tokens + tokens // 4) if tokens else 0


def dynamic(shape, tokens, itemsize, room=filled):
    """A layer of `DynamicCache`: all tokens, or the last window - 1 of them. `room`: `filled` or `grown`."""
    kept = min(tokens, shape.window - 1) if shape.keeps == "window" else tokens
    return room(kept) * (shape.entry(itemsize) + shape.index_dim * itemsize) + shape.state_bytes


def static(shape, tokens, itemsize, room=filled):
    """A layer of `StaticCache` made for `tokens`: all slots at once, and twice a window (it is kept as a ring)."""
    ring = shape.keeps == "window" and tokens >= shape.window
    slots = 2 * shape.window if ring else tokens
    return slots * (shape.entry(itemsize) + shape.index_dim * itemsize) + shape.state_bytes


def quantized(backend, nbits=None):
    """A function like `dynamic` for a layer of `QuantizedCache` with the default options: codes and scales of old
    tokens, full precision for the last ones. Layers that keep a window or a state are not quantized."""
    *formats, residual = quantized_formats(backend, nbits)

    def layer(shape, tokens, itemsize, room=filled):
        if shape.keeps != "all" or shape.index_dim or shape.state_bytes:
            return dynamic(shape, tokens, itemsize, room)
        total = 0
        for number_format in formats:  # of the keys, then of the values
            whole = number_format.token_multiple
            codes = max(tokens - residual, 0) // whole * whole
            exact = tokens - codes if room is filled else min(tokens, residual + whole)
            total += room(exact) * shape.entry(itemsize) // 2
            total += number_format.nbytes(1, shape.kv_heads, room(codes), shape.head_dim)
        return total

    return layer


def offloaded(layers, tokens, itemsize, size, windows_stay, room=filled):
    """(bytes on the device, bytes on the host) while layers are offloaded.

    On the device: what never moves, and the largest pair of neighbours of what does: the layer that computes and the
    one that is fetched ahead. The last layer is followed by the first. `layers`: a `Shape` each. `size`: `dynamic` or
    `static`. States and index keys never move; with `windows_stay`, layers that keep a window don't either.
    """
    moving, staying = [], 0
    for shape in layers:
        whole = size(shape, tokens, itemsize, room)
        fixed = shape.state_bytes + room(tokens) * shape.index_dim * itemsize
        moves = shape.keeps == "all" or (shape.keeps == "window" and not windows_stay)
        staying += fixed if moves else whole
        moving += [whole - fixed] if moves else []
    pairs = zip(moving, moving[1:] + moving[:1], strict=True)
    visiting = sum(moving) if len(moving) < 2 else max(a + b for a, b in pairs)
    return staying + visiting, sum(moving)


def resident(layers, tokens, itemsize, size, room=filled):
    """Bytes of all layers, each kind of layer computed once."""
    return sum(count * size(shape, tokens, itemsize, room) for shape, count in Counter(layers).items())
