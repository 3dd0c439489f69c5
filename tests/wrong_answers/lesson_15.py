"""Lesson 15: bytes before a cache is made, advice for six customers, a server's start."""

import math

import kvcourse as kv
from kvcourse.engine import engine_start

# 15a


def nbytes_of(layers, context, batch, kind, held=lambda layer, context: min(context, (layer.window or 2**60) - 1)):
    sizes = []
    for layer in layers:
        kept = 0 if layer.shared else held(layer, context)
        exact = min(kept, 128) if kind == "4 bits" and layer.window is None else kept
        numbers = 2 * layer.kv_heads * layer.head_dim
        sizes.append(exact * numbers * 2 + (kept - exact) * (numbers // 2 + numbers // 64 * 4))
    return batch * (sum(sorted(sizes)[-2:]) if kind == "offloaded" else sum(sizes))


def of_entry(entry):
    """Right but for what an old token takes in 4 bits."""

    def wrong(layers, context, batch, kind):
        right = nbytes_of(layers, context, batch, kind)
        if kind != "4 bits":
            return right
        numbers = sum(2 * layer.kv_heads * layer.head_dim for layer in layers if layer.window is None)
        old = max(context - 128, 0) * batch * numbers
        return right - old * 9 / 16 + old * entry

    return wrong


def whole_window(layers, context, batch, kind):
    return nbytes_of(layers, context, batch, kind, held=lambda layer, context: min(context, layer.window or context))


def no_window(layers, context, batch, kind):
    return nbytes_of(layers, context, batch, kind, held=lambda layer, context: context)


def always_a_full_window(layers, context, batch, kind):
    return nbytes_of(layers, context, batch, kind, held=lambda layer, context: (layer.window or context + 1) - 1)


class NotShared:
    def __init__(self, layer):
        self.kv_heads, self.head_dim, self.window, self.shared = layer.kv_heads, layer.head_dim, layer.window, False


def counts_shared(layers, *others):
    return nbytes_of([NotShared(layer) for layer in layers], *others)


def no_residual(layers, context, batch, kind):
    if kind != "4 bits":
        return nbytes_of(layers, context, batch, kind)
    full = [layer for layer in layers if layer.window is None]
    rest = nbytes_of([layer for layer in layers if layer.window], context, batch, kind)
    return rest + sum(batch * context * 2 * layer.kv_heads * layer.head_dim * 9 / 16 for layer in full)


def squeezes_windows(layers, context, batch, kind):
    if kind != "4 bits":
        return nbytes_of(layers, context, batch, kind)
    total = 0
    for layer in layers:
        kept = min(context, layer.window - 1) if layer.window else context
        old = max(kept - 128, 0)
        total += 2 * layer.kv_heads * layer.head_dim * ((kept - old) * 2 + old * 9 / 16)
    return total * batch


def offloaded_counts_all(layers, context, batch, kind):
    return nbytes_of(layers, context, batch, "dynamic" if kind == "offloaded" else kind)


def offloaded_counts_one(layers, context, batch, kind):
    return nbytes_of(layers, context, batch, kind) / (2 if kind == "offloaded" else 1)


def offloaded_is_free(layers, context, batch, kind):
    return 0 if kind == "offloaded" else nbytes_of(layers, context, batch, kind)


def forgets_the_batch(layers, context, batch, kind):
    return nbytes_of(layers, context, 1, kind)


def keys_alone(*given):
    return nbytes_of(*given) / 2


def in_float32(*given):
    return nbytes_of(*given) * 2


def asks_the_package(layers, context, batch, kind):
    config = kv.public.PUBLIC["SmolLM2-135M"].config()
    return kv.plan(config, 2**40, context, batch)["dynamic"].nbytes


def fills_one(layers, context, batch, kind):
    config = kv.public.PUBLIC["SmolLM2-135M"].config()
    return kv.measure.fill(kv.DynamicCache(config=config), config, context, batch).nbytes()


def layer_by_layer(layers, context, batch, kind):
    """Right, in another shape."""

    def one(layer):
        if layer.shared:
            return 0
        each = layer.kv_heads * layer.head_dim
        if layer.window:
            return 4 * each * min(context, layer.window - 1)
        old = max(0, context - 128) if kind == "4 bits" else 0
        return 4 * each * (context - old) + old * (each + each / 8)

    together = [one(layer) for layer in layers]
    return batch * (2 * max(together) if kind == "offloaded" else math.fsum(together))


# 15b

ADVICE = {
    "a": ("dynamic", "The last 128 tokens stay in full precision, so none of them would be quantized"),
    "b": ("dynamic", "12 GiB fit beside the weights; moving them would only cost time"),
    "c": ("offloaded", "16 GiB of cache and the weights are 31 in all, more than the GPU has"),
    "d": ("static", "made once, so there is 1 graph"),
    "e": ("blocks", "3,840 slots would stay empty; with blocks at most 15"),
    "f": ("quantized", "12.2 GiB do not fit, 4 bits with scales are 4.5 bits a number: 3.4 GiB"),
}

# 15c


def start_log(memory, weights, bytes_per_token, max_model_len, share, size, rounded=math.floor):
    blocks = rounded((memory * share - weights) / (size * bytes_per_token))
    return "refuses" if blocks * size < max_model_len else (blocks, blocks * size)


def forgets_the_weights(memory, weights, *others):
    return start_log(memory, 0, *others)


def share_of_the_rest(memory, weights, bytes_per_token, max_model_len, share, size):
    return start_log(memory - weights, 0, bytes_per_token, max_model_len, share, size)


def ignores_the_share(memory, weights, bytes_per_token, max_model_len, share, size):
    return start_log(memory, weights, bytes_per_token, max_model_len, 1, size)


def rounds_up(*given):
    return start_log(*given, rounded=math.ceil)


def parts_of_blocks(*given):
    return start_log(*given, rounded=lambda blocks: blocks)


def never_refuses(memory, weights, bytes_per_token, max_model_len, share, size):
    blocks = math.floor((memory * share - weights) / (size * bytes_per_token))
    return blocks, blocks * size


def refuses_without_weights_only(memory, weights, bytes_per_token, max_model_len, share, size):
    blocks = math.floor((memory * share - weights) / (size * bytes_per_token))
    return "refuses" if blocks <= 0 else (blocks, blocks * size)


def tokens_from_bytes(memory, weights, bytes_per_token, max_model_len, share, size):
    said = start_log(memory, weights, bytes_per_token, max_model_len, share, size)
    left = int(memory * share - weights)
    return said if said == "refuses" else (said[0], left // bytes_per_token)


def forgets_the_block(memory, weights, bytes_per_token, max_model_len, share, size):
    blocks = int((memory * share - weights) // bytes_per_token)
    return "refuses" if blocks < max_model_len else (blocks, blocks * size)


def refuses_an_equal_one(memory, weights, bytes_per_token, max_model_len, share, size):
    said = start_log(memory, weights, bytes_per_token, max_model_len, share, size)
    return "refuses" if said[1] == max_model_len else said


def tokens_first(*given):
    said = start_log(*given)
    return said if said == "refuses" else (said[1], said[0])


def the_package(*given):
    memory, weights, bytes_per_token, max_model_len, share, size = given
    start = engine_start(memory, weights, bytes_per_token, max_model_len, share, size)
    return start.blocks, start.tokens


WRONG = {
    "15a": [
        (whole_window, "W - 1 are kept"),
        (no_window, "the window was ignored"),
        (always_a_full_window, "shorter than the window"),
        (counts_shared, "shared layers were counted"),
        (of_entry(1 / 2), "scales left out"),
        (of_entry(1 / 2 + 2 / 64), "a scale and a zero"),
        (of_entry(2), "4 bits were not used"),
        (of_entry(1 + 4 / 64), "4 bits are half a byte"),
        (no_residual, "the residual was forgotten"),
        (squeezes_windows, "layers that keep a window stay"),
        (offloaded_counts_all, "on the device lie two layers"),
        (offloaded_counts_one, "two layers, not one"),
        (offloaded_is_free, "has to be on the device to compute"),
        (forgets_the_batch, "a cache of its own"),
        (keys_alone, "the factor 2"),
        (in_float32, "the card says 16 bits"),
        (asks_the_package, "does what this task builds"),
        (fills_one, "find the number by formula"),
    ],
    "15b": [
        (ADVICE | {"a": ("quantized", "a quarter of the bytes: 25 %")}, "a short chat gains nothing"),
        (ADVICE | {"e": ("static", "4,096 slots")}, "mixed lengths"),
        (ADVICE | {"b": ("offloaded", "it is faster")}, "for space, not for speed"),
        (ADVICE | {"c": ("quantized", "4.5 GiB")}, "it has to be exact"),
        (ADVICE | {"c": ("dynamic", "16 GiB")}, "it does not fit"),
        (ADVICE | {"d": ("dynamic", "2 graphs")}, "that is the pause"),
        (ADVICE | {"f": ("offloaded", "12.2 GiB")}, "a human waits"),
        (ADVICE | {"f": ("dynamic", "12.2 GiB")}, "full precision does not fit"),
        (ADVICE | {"a": ("dynamic", "it is the simplest")}, "the reason does not show it yet"),
        (ADVICE | {"a": ("dynamic", "chats have 100 tokens")}, "with no number of your own"),
        (ADVICE | {"c": ("offloaded", "12 GiB, or so")}, "bytes a token times tokens"),
        (ADVICE | {"e": "blocks"}, "a cache and a reason, as in"),
        (ADVICE | {"e": ("paged", "3,840 slots")}, "a cache and a reason, as in"),
    ],
    "15c": [
        (forgets_the_weights, "the weights were forgotten"),
        (share_of_the_rest, "one of the whole memory"),
        (ignores_the_share, "the share was ignored"),
        (rounds_up, "rounded up"),
        (parts_of_blocks, "round down"),
        (never_refuses, "it must refuse where"),
        (refuses_without_weights_only, "it must refuse"),
        (tokens_from_bytes, "holds none"),
        (forgets_the_block, "a block holds"),
        (refuses_an_equal_one, "whole blocks"),
        (tokens_first, "the order is blocks, tokens"),
        (the_package, "does what this task builds"),
    ],
}
RIGHT = {
    "15a": [nbytes_of, layer_by_layer],
    "15b": [
        ADVICE,
        ADVICE
        | {
            "a": ["dynamic", "0 of 100 tokens"],
            "e": ("dynamic", "93.75 % of the slots would be empty"),
            "c": ("offloaded", "17,179,869,184 bytes"),
        },
    ],
    "15c": [start_log],
}
