"""Task 12c: bytes of a quantized cache, to the last one. What is right is what a filled layer holds."""

import functools
import math

import torch

from ..layers.blocks import QuantizedBuffer
from ..layers.quantized import QuantizedLayer
from ..quantize import AffineFormat, Quantized
from .plain import number
from .task import Case, Mistake, compare, task
from .withheld import run_without

OWN = [(QuantizedBuffer, "append"), (AffineFormat, "nbytes"), (Quantized, "nbytes")]
SMOL = {"layers": 30, "kv_heads": 3, "head_dim": 64, "bits": 4, "group": 64, "residual": 128}
ODD = {"layers": 2, "kv_heads": 5, "head_dim": 20, "bits": 3, "group": 16, "residual": 32}


@functools.cache
def truth(tokens, layers, kv_heads, head_dim, bits, group, residual):
    """What a cache of such layers holds in bfloat16 after one update of `tokens` tokens."""
    layer = QuantizedLayer("hqq", nbits=bits, q_group_size=group, residual_length=residual)
    zeros = torch.zeros(1, kv_heads, tokens, head_dim, dtype=torch.bfloat16)
    layer.update(zeros, zeros)
    return layers * layer.nbytes()


def asking(tokens, options, name):
    """A case: the bytes of a cache after `tokens` tokens."""

    def play(answer, seen):
        seen["bytes"] = number(run_without([] if answer is truth else OWN, answer, answer, tokens, **options))

    return Case(f"{tokens} tokens, {name}", play)


NAMES = "30 layers, 3 heads of 64; 4 bits, groups of 64, residual 128"
CASES = [asking(tokens, SMOL, NAMES) for tokens in (10, 128, 129, 500)]
CASES += [asking(t, ODD, "2 layers, 5 heads of 20; 3 bits, groups of 16, residual 32") for t in (129, 500)]


def held(tokens, layers, kv_heads, head_dim, bits, group, residual, **lines):
    """The formula, with what people forget as parameters."""
    metadata, exact_bytes = lines.get("metadata", 4), lines.get("exact_bytes", 2)
    old = lines.get("old", lambda tokens, residual: max(tokens - residual, 0))(tokens, residual)
    up, whole = lines.get("up", math.ceil), lines.get("whole", math.floor)
    key_groups = whole(old / group)
    key_codes = key_groups * group if lines.get("wait", True) else old
    if lines.get("capped"):
        key_codes = min(key_codes, old)
    row = up(head_dim * bits / lines.get("bits_a_byte", 8))
    value_groups = lines.get("value_groups", lambda head_dim, group: up(head_dim / group))(head_dim, group)
    exact_keys = min(tokens, residual) if lines.get("nobody_waits") else tokens - key_codes
    exact_values = {"none": 0, "residual": residual}.get(lines.get("exact_values"), tokens - old)
    exact = exact_keys + exact_values if lines.get("exact", True) else 0
    scales = key_groups * (1 if lines.get("one_a_group") else head_dim) + old * value_groups
    if lines.get("keys_as_values"):
        key_codes, scales = old, 2 * old * value_groups
        exact = 2 * (tokens - old)
    if lines.get("values_as_keys"):
        scales, exact, old = 2 * key_groups * head_dim, 2 * (tokens - key_codes), key_codes
    codes = (key_codes + old) * row
    if lines.get("end_to_end"):
        codes = math.ceil(key_codes * head_dim * bits / 8) + math.ceil(old * head_dim * bits / 8)
    a_head = codes + metadata * scales + exact * head_dim * exact_bytes
    times = {"layers": kv_heads, "heads": layers, "both": 1}.get(lines.get("forgotten"), layers * kv_heads)
    return times * a_head * lines.get("part", 1)


def of_the_lesson(tokens, residual, group, **_):
    """The formula of the lesson with the numbers of its model."""
    old = max(tokens - residual, 0)
    coded = old // group * group + old
    return 30 * 3 * (36 * coded + 128 * (2 * tokens - coded))


def but(**lines):
    return functools.partial(held, **lines)


def groups_across_heads(tokens, layers, kv_heads, head_dim, group, residual, **others):
    """Groups of values counted over all channels of a token at once."""
    right = held(tokens, layers, kv_heads, head_dim, group=group, residual=residual, **others)
    old = max(tokens - residual, 0)
    return right + 4 * layers * old * (math.ceil(kv_heads * head_dim / group) - kv_heads * math.ceil(head_dim / group))


def keys_by_channel(tokens, layers, kv_heads, head_dim, bits, group, residual):
    """Codes of keys packed along the group, a channel at a time."""
    groups = max(tokens - residual, 0) // group
    more = head_dim * math.ceil(group * bits / 8) - group * math.ceil(head_dim * bits / 8)
    return held(tokens, layers, kv_heads, head_dim, bits, group, residual) + layers * kv_heads * groups * more


def scales_too_early(tokens, layers, kv_heads, head_dim, bits, group, residual):
    """Scales for a group of keys that is not full."""
    started = max(tokens - residual, 0) % group > 0
    return held(tokens, layers, kv_heads, head_dim, bits, group, residual) + layers * kv_heads * started * head_dim * 4


def same(x):
    return x


def rounded_up(head_dim, group):
    return math.ceil(head_dim / group)


WAIT = "the keys of a group wait until it is full: the tokens that are left over stay exact"
TWICE = (
    "two things are rounded up: the codes of a token to whole bytes, and its groups to whole groups. The lesson's "
    "formula needs neither, because 64 numbers of 4 bits fill both"
)
PADDED = "a row of codes ends with a whole byte, so round up for each token: ceil(head_dim * bits / 8)"
SHORTER = "with 20 channels and groups of 16 a token has two groups, the second one shorter: round up"
MISTAKES = [
    Mistake("scales and offsets were forgotten: each group has both, 2 bytes each", but(metadata=0)),
    Mistake("each group has a scale and an offset: 2 bytes each, 4 together", but(metadata=2)),
    Mistake("scale and offset are kept in 2 bytes each, not 4", but(metadata=8)),
    Mistake(
        "the residual was forgotten: the last tokens are exact, 2 bytes a number. So 100 tokens save nothing",
        but(old=lambda tokens, residual: tokens),
    ),
    Mistake(
        "saving was promised from the first token on; up to `residual` tokens nothing is quantized at all",
        but(old=lambda tokens, residual: tokens, wait=False, metadata=0),
    ),
    Mistake(
        "saving was promised from the first token on; up to `residual` tokens nothing is quantized at all",
        but(old=lambda tokens, residual: tokens, wait=False),
    ),
    Mistake(
        "saving was promised from the first token on; up to `residual` tokens nothing is quantized at all",
        but(old=lambda tokens, residual: tokens, keys_as_values=True),
    ),
    Mistake(WAIT, but(wait=False, whole=math.ceil)),
    Mistake(WAIT, but(whole=math.ceil, capped=True)),
    Mistake(WAIT, but(whole=math.ceil)),
    Mistake(WAIT, but(wait=False)),
    Mistake("there are whole groups only: old // group, and not old / group", but(whole=same)),
    Mistake(
        "keys that wait for a whole group are exact, too: all tokens but those whose keys are codes",
        but(nobody_waits=True),
    ),
    Mistake(
        "for keys each *channel* of a group has a scale and an offset of its own: head_dim of them for each group",
        but(one_a_group=True),
    ),
    Mistake("a group of keys that is not full has no scale yet: old // group of them have one", scales_too_early),
    Mistake(
        "values have groups within a head: a token has ceil(head_dim / group) of them in each head, not "
        "ceil(kv_heads * head_dim / group) in all",
        groups_across_heads,
    ),
    Mistake(
        "the codes of keys are packed token by token, not channel by channel: head_dim codes fill whole bytes",
        keys_by_channel,
    ),
    Mistake(TWICE, but(up=same)),
    Mistake(TWICE, but(up=math.floor)),
    Mistake("each token's codes fill whole bytes; here all codes were laid end to end", but(end_to_end=True)),
    Mistake("the layers were forgotten: each has keys and values", but(forgotten="layers")),
    Mistake("the heads were forgotten: each has keys and values", but(forgotten="heads")),
    Mistake("layers and heads were forgotten: each head of each layer has keys and values", but(forgotten="both")),
    Mistake(
        "30 layers, 3 heads and 36 bytes belong to the model of the lesson: compute with the arguments", of_the_lesson
    ),
    Mistake("the exact values are missing in the sum: tokens - old of them", but(exact_values="none")),
    Mistake("with fewer tokens than `residual` only `tokens` are exact", but(exact_values="residual")),
    Mistake(
        "keys are grouped along time: a channel has a scale and an offset for each group of tokens, not for each token",
        but(keys_as_values=True),
    ),
    Mistake(
        "values have groups within a token, so each quantized token has scales of its own and none waits",
        but(values_as_keys=True),
    ),
    Mistake("the exact tokens are missing in the sum: they take head_dim numbers of 2 bytes each", but(exact=False)),
    Mistake("exact numbers are bfloat16, 2 bytes", but(exact_bytes=4)),
    Mistake(PADDED, but(up=same, value_groups=rounded_up)),
    Mistake(PADDED, but(up=math.floor, value_groups=rounded_up)),
    Mistake(SHORTER, but(value_groups=lambda head_dim, group: 1)),
    Mistake(SHORTER, but(value_groups=lambda head_dim, group: head_dim / group)),
    Mistake(SHORTER, but(value_groups=lambda head_dim, group: head_dim // group)),
    Mistake("bits were counted, not bytes: 8 bits are a byte", but(bits_a_byte=1)),
    Mistake("keys or values alone: both are held", but(part=0.5)),
    Mistake(
        "nothing was quantized here: tokens beyond the residual are codes",
        but(old=lambda tokens, residual: 0),
    ),
    Mistake("one token of residual too many", but(old=lambda tokens, residual: max(tokens - residual - 1, 0))),
    Mistake(
        "with fewer tokens than the residual a negative number of them would be quantized: take max(..., 0)",
        but(old=lambda tokens, residual: tokens - residual),
    ),
]


@task("12c", "bytes_held at 10, 128, 129 and 500 tokens, and on a second model with odd sizes")
def task_12c(function):
    """`function(tokens, layers, kv_heads, head_dim, bits, group, residual)` -> bytes."""
    compare(function, truth, CASES, MISTAKES)
    left = {bits: 100 * truth(500, **SMOL | {"bits": bits}) / (2 * 2 * 30 * 3 * 64 * 500) for bits in (4, 2)}
    shares = " and ".join(f"{share:.0f} % with {bits} bits" for bits, share in left.items())
    return {"bytes": "as nbytes() says, six times", "of bfloat16": f"128 tokens: 100 %. 500 tokens: {shares}"}
