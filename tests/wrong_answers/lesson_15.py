"""Lesson 15: bytes before a cache is made, advice for six customers, a server's start."""

import math

import kvcourse as kv
from kvcourse.engine import engine_start

# 15a


def kept(layer, context):
    if layer.shared:
        return 0
    if layer.window is None:
        return context
    return min(context, layer.window - 1)


def token_bytes(layer, bits):
    numbers = 2 * layer.kv_heads * layer.head_dim
    scales = 0 if bits == 16 else numbers // 64 * 4
    return numbers * bits // 8 + scales


def given(kept=kept, token_bytes=token_bytes):
    """The two arguments of the check."""
    return kept, token_bytes


def whole_window(layer, context):
    return 0 if layer.shared else min(context, layer.window or context)


def no_window(layer, context):
    return 0 if layer.shared else context


def always_a_full_window(layer, context):
    return 0 if layer.shared else (layer.window or context + 1) - 1


def always_the_window(layer, context):
    return 0 if layer.shared else layer.window or context


def larger_one(layer, context):
    return 0 if layer.shared else context if layer.window is None else max(context, layer.window - 1)


def counts_shared(layer, context):
    return context if layer.window is None else min(context, layer.window - 1)


def prints_it(layer, context):
    print(kept(layer, context))


def numbers_of(layer):
    return 2 * layer.kv_heads * layer.head_dim


def no_scales(layer, bits):
    return numbers_of(layer) * bits // 8


def half_of_the_scales(layer, bits):
    return no_scales(layer, bits) + (numbers_of(layer) // 64 * 2 if bits < 16 else 0)


def a_scale_for_each_number(layer, bits):
    return no_scales(layer, bits) + (numbers_of(layer) * 4 if bits < 16 else 0)


def a_scale_for_each_token(layer, bits):
    return no_scales(layer, bits) + (4 if bits < 16 else 0)


def scales_everywhere(layer, bits):
    return no_scales(layer, bits) + numbers_of(layer) // 64 * 4


def bits_as_bytes(layer, bits):
    return numbers_of(layer) * bits


def keys_alone(layer, bits):
    return token_bytes(layer, bits) / 2


def twice(layer, bits):
    return 2 * token_bytes(layer, bits)


def always_two_bytes(layer, bits):
    return numbers_of(layer) * 2


def divides_first(layer, bits):
    return numbers_of(layer) * (bits // 8) + (numbers_of(layer) // 64 * 4 if bits < 16 else 0)


def asks_the_package(layer, bits):
    config = kv.public.PUBLIC["SmolLM2-135M"].config()
    return kv.plan(config, 2**40, 1)["dynamic"].nbytes


def fills_one(layer, bits):
    config = kv.public.PUBLIC["SmolLM2-135M"].config()
    return kv.measure.fill(kv.DynamicCache(config=config), config, 1).nbytes()


def one_less_of_either(layer, context):
    if layer.shared:
        return 0
    return context if layer.window is None else min(context, layer.window) - 1


def in_one_line(layer, context):
    """Right, with a truth value in place of a branch."""
    return (not layer.shared) * min(context, layer.window - 1 if layer.window else context)


def by_groups(layer, bits):
    """Right, for each group of 64 numbers."""
    return numbers_of(layer) / 64 * {16: 128, 4: 36, 2: 20}[bits]


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


def raises(*given):
    said = start_log(*given)
    if said == "refuses":
        raise ValueError("the longest request does not fit")
    return said


def fits_in_parts(memory, weights, bytes_per_token, max_model_len, share, size):
    left = memory * share - weights
    blocks = int(left // (size * bytes_per_token))
    return (blocks, blocks * size) if left / bytes_per_token >= max_model_len else "refuses"


def needs_whole_blocks_only(memory, weights, bytes_per_token, max_model_len, share, size):
    blocks = int((memory * share - weights) // (size * bytes_per_token))
    return (blocks, blocks * size) if blocks >= max_model_len // size else "refuses"


def blocks_alone(*given):
    said = start_log(*given)
    return said if said == "refuses" else said[0]


def says_it_aloud(*given):
    """Right: a list, and the word in another spelling."""
    said = start_log(*given)
    return "Refused" if said == "refuses" else list(said)


WRONG = {
    "15a": [
        (given(whole_window), "W - 1 are kept"),
        (given(no_window), "the window was ignored"),
        (given(always_a_full_window), "shorter than the window"),
        (given(always_the_window), "the token that looks is not kept"),
        (given(larger_one), "min, not max"),
        (given(counts_shared), "a shared layer was counted"),
        (given(prints_it), "is the `return` missing"),
        (given(kept, no_scales), "scales left out"),
        (given(kept, half_of_the_scales), "a scale and an offset: 4 bytes"),
        (given(kept, a_scale_for_each_number), "not once for each number"),
        (given(kept, a_scale_for_each_token), "not once for a token"),
        (given(kept, scales_everywhere), "numbers of 16 bits have no scales"),
        (given(kept, bits_as_bytes), "a byte has 8 bits"),
        (given(kept, keys_alone), "the factor 2"),
        (given(kept, twice), "twice too much"),
        (given(kept, always_two_bytes), "here it has `bits` bits"),
        (given(kept, divides_first), "bits // 8 is 0"),
        (given(kept, asks_the_package), "does what this task builds"),
        (given(kept, fills_one), "find the number by formula"),
        (given(one_less_of_either), "taken off the window alone"),
        ((kept(kv.check.plans_15.FULL, 3), token_bytes), "hand the function itself"),
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
        (ADVICE | {"e": ("sliding", "3,840 slots")}, "choose one of the caches"),
        (ADVICE | {"e": ("3,840 slots", "blocks")}, "the cache comes first"),
        (ADVICE | {"e": ("blocks", 3_840)}, "inside the sentence"),
        (ADVICE | {"e": ("blocks", "3,840 slots", "mostly")}, "two things belong"),
        (ADVICE | {"b": ("dynamic", "2 GiB")}, "there are 6"),
        (ADVICE | {"b": ("dynamic", "27 GiB of 80")}, "with the weights"),
        (ADVICE | {"b": ("dynamic", "65 GiB are free")}, "they ask what it needs"),
        (ADVICE | {"b": ("dynamic", "13.5 GiB")}, "your numbers: 13.5"),
        (ADVICE | {"c": ("offloaded", "only 9 GiB are free")}, "they ask what it needs"),
        (ADVICE | {"c": ("offloaded", "1 it is")}, "they ask for all of it"),
        (ADVICE | {"d": ("static", "2,000 slots; 2 graphs")}, "they ask for graphs"),
        (ADVICE | {"d": ("static", "2 graphs")}, "for a second shape"),
        (ADVICE | {"d": ("static", "1,000 tokens and 1,000 more")}, "with no number of your own"),
        (ADVICE | {"e": ("blocks", "3,841 slots")}, "slots minus tokens"),
        (ADVICE | {"e": ("blocks", "at most 15 slots are wasted")}, "about the static cache"),
        (ADVICE | {"f": ("quantized", "in fp8 6.1 GiB")}, "for full precision"),
        (ADVICE | {"a": ("dynamic", "127 tokens")}, "of the newest tokens stay exact"),
        (ADVICE | {"b": ("dynamic", "13 GiB")}, "that is in GB"),
        (ADVICE | {"c": ("offloaded", "17 GiB")}, "that is in GB"),
        (ADVICE | {"c": ("offloaded", "17.2")}, "that is in GB"),
        (ADVICE | {"f": ("quantized", "13 GiB")}, "that is in GB"),
        (ADVICE | {"e": ("dynamic", "3,840 slots")}, "its rows go in step"),
        (ADVICE | {"e": ("rows (dynamic)", "3,840 slots")}, "choose one of the caches"),
        (list(ADVICE.values()), "a dict such as"),
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
        (raises, "this function returns the word"),
        (fits_in_parts, "blocks are whole: what is left"),
        (needs_whole_blocks_only, "blocks are whole: what is left"),
        (blocks_alone, "and not two numbers"),
        (list(start_log(24 * 2**30, 2**34, 2**17, 8_192, 0.9, 16)), "hand the function itself"),
    ],
}
RIGHT = {
    "15a": [given(), given(in_one_line, by_groups)],
    "15b": [
        ADVICE,
        ADVICE
        | {
            "a": ["dynamic", "0 of 100 tokens"],
            "e": ("blocks", "93.75 % of the slots would be empty"),
            "c": ("offloaded", "17,179,869,184 bytes"),
        },
        ADVICE | {"b": ("Dynamic", "12.0 GiB"), "c": ("offloaded cache", "16GiB"), "e": ("paged", "3 840 slots")},
        ADVICE | {"b": ("dynamic", "1.2e1 GiB"), "e": ("blocks", "3_840"), "f": ("fp8", "12,2 GiB")},
        ADVICE
        | {
            "b": ("dynamic", "12.9 GB"),
            "c": ("offloaded (to the host)", "17.2GB"),
            "f": ("quantized (fp8)", "13,1 gb"),
        },
        ADVICE | {"f": ("quantized (4 bits)", "12.2 GiB"), "c": ("offloaded", "16 GiB, or 17 GB")},
        ADVICE
        | {"b": ("DynamicCache", "12.884.901.888 bytes"), "e": ("blocks", "3.840"), "f": ("hqq", "about 12 GiB")},
    ],
    "15c": [start_log, says_it_aloud],
}
