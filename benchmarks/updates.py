"""Seconds of one update, ours against transformers, as ratios within one process: python benchmarks/updates.py

Each row fills both caches with the same random history and then adds single tokens to both in turns, so that other
load on the machine falls on both alike. Below 1.00 ours is faster. No test depends on these numbers.
"""

import time
from statistics import median

import torch
import transformers

import kvcourse as kv

HEADS, HEAD_DIM, STEPS, ROUNDS = 8, 64, 20, 9
SIZES = dict(hidden_size=512, num_attention_heads=8, num_key_value_heads=HEADS, head_dim=HEAD_DIM, num_hidden_layers=1)
KINDS = {
    "dynamic": ("DynamicCache", "full_attention", {}),
    "dynamic, window 512": ("DynamicCache", "sliding_attention", {}),
    "static": ("StaticCache", "full_attention", {"max_cache_len": 20_000}),
    "static, window 512": ("StaticCache", "sliding_attention", {"max_cache_len": 20_000}),
    "hqq 4 bits": ("QuantizedCache", "full_attention", {"backend": "hqq", "nbits": 4, "axis_key": 1, "axis_value": 1}),
    "fp8": ("QuantizedCache", "full_attention", {"backend": "fp8"}),
}


def cache_of(library, name, history):
    container, layer_type, options = KINDS[name]
    config = transformers.LlamaConfig(**SIZES, layer_types=[layer_type], sliding_window=512)
    cache = getattr(library, container)(config=config, **options)
    cache.update(history, -history, 0)
    return cache


def seconds(cache, token):
    start = time.perf_counter()
    for _ in range(STEPS):
        cache.update(token, token, 0)
    return (time.perf_counter() - start) / STEPS


def main(lengths=(100, 1_000, 10_000)):
    torch.set_num_threads(1)
    print(
        f"{'one token, ' + str(HEADS) + ' heads of ' + str(HEAD_DIM):24}" + "".join(f"{n:>26,} tokens" for n in lengths)
    )
    for name in KINDS:
        cells = []
        for length in lengths:
            history, token = torch.randn(1, HEADS, length, HEAD_DIM), torch.randn(1, HEADS, 1, HEAD_DIM)
            with torch.no_grad():
                pair = [cache_of(library, name, history) for library in (kv, transformers)]
                rounds = [[seconds(cache, token) for cache in pair] for _ in range(ROUNDS)]
            ours, theirs = (median(column) for column in zip(*rounds, strict=True))
            cells.append(f"{ours * 1e6:10,.0f} us, ratio {ours / theirs:5.2f}      ")
        print(f"{name:24}" + "".join(cells))


if __name__ == "__main__":
    main()
