"""The quantized layer: what is exact and what is not, codes, bytes, roll-back, batches, copies; and inside models."""

import copy
import pickle

import pytest
import torch
import transformers
from conftest import tiny_llama
from hypothesis import given, settings
from hypothesis import strategies as st

import kvcourse as kv
from kvcourse.layers.quantized import QuantizedLayer, quantized_formats
from kvcourse.quantize import PER_CHANNEL, PER_TOKEN, AffineFormat, Fp8, make_format
from kvcourse.quantized_cache import QuantizedCache

BOTH_PER_TOKEN = dict(axis_key=1, axis_value=1)
BOTH_PER_CHANNEL = dict(axis_key=0, axis_value=0)
SMALL = dict(q_group_size=4, residual_length=5)
KINDS = [  # backend and options: each backend, each grouping, each width, with and without a residual
    ("hqq", dict(nbits=4) | SMALL),
    ("hqq", dict(nbits=2, q_group_size=4, residual_length=0) | BOTH_PER_CHANNEL),
    ("hqq", dict(nbits=3, axis_key=1, axis_value=0) | SMALL),
    ("hqq", dict(nbits=8, q_group_size=3, residual_length=0) | BOTH_PER_TOKEN),
    ("quanto", dict(nbits=2) | SMALL),
    ("quanto", dict(nbits=4, q_group_size=7, residual_length=2, axis_key=-1, axis_value=-1)),
    ("fp8", {}),
]
kinds = pytest.mark.parametrize(("backend", "options"), KINDS, ids=[f"{b}{i}" for i, (b, _) in enumerate(KINDS)])
PROMPT = torch.tensor([[5, 17, 33, 2, 61, 9, 44]])
PADDED = torch.tensor([[0, 0, 0, 5, 17, 33, 2], [8, 61, 9, 44, 23, 3, 70]])


def states(batch, heads, tokens, head_dim, seed=0):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(batch, heads, tokens, head_dim, generator=random)


def cache_of(backend, options, layers=1):
    return QuantizedCache(backend, transformers.LlamaConfig(num_hidden_layers=layers), **options)


def filled(backend, options, tokens=23, batch=2, heads=3, head_dim=6, layers=2):
    cache = cache_of(backend, options, layers)
    for layer_idx in range(layers):
        cache.update(
            states(batch, heads, tokens, head_dim, 2 * layer_idx),
            states(batch, heads, tokens, head_dim, 2 * layer_idx + 1),
            layer_idx,
        )
    return cache


def halves(backend, options):
    """(grouping, group size, residual, format) of keys and of values, worked out apart from the layer."""
    if backend == "fp8":
        return [(PER_TOKEN, 1, 0, Fp8())] * 2
    per_channel = {"hqq": 0, "quanto": -1}[backend]
    size, residual = options.get("q_group_size", 64), options.get("residual_length", 128)
    found = []
    for name, default in (("axis_key", PER_CHANNEL), ("axis_value", PER_TOKEN)):
        axis = options.get(name)
        groups = default if axis is None else PER_CHANNEL if axis == per_channel else PER_TOKEN
        found.append((groups, size, residual, make_format(backend, options.get("nbits", 4), groups, size)))
    return found


def quantized_count(tokens, groups, size, residual):
    """Of `tokens` tokens in all, those that have left the residual."""
    leaving = max(tokens - residual, 0)
    return leaving // size * size if groups == PER_CHANNEL else leaving


def everything(cache):
    """All that a cache holds, as tensors: contents, not capacity."""
    return [s.view().clone() for layer in cache.layers for s in layer.storages() if s.is_allocated]


def same(some, others):
    return len(some) == len(others) and all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


# What is exact


@kinds
def test_a_first_forward_is_exact_and_later_ones_read_the_history_back(backend, options):
    keys, values = states(2, 3, 31, 6), states(2, 3, 31, 6, seed=1)
    cache = cache_of(backend, options)
    got = cache.update(keys[:, :, :20], values[:, :, :20], 0)
    assert torch.equal(got[0], keys[:, :, :20]) and torch.equal(got[1], values[:, :, :20])
    end = 20
    for count in (1, 1, 4, 1, 4):
        assert cache.get_mask_sizes(count, 0) == (end + count, 0)
        before = cache.layers[0].keys, cache.layers[0].values
        got = cache.update(keys[:, :, end : end + count], values[:, :, end : end + count], 0)
        for returned, held, whole in zip(got, before, (keys, values), strict=True):
            assert torch.equal(returned[:, :, :end], held)
            assert torch.equal(returned[:, :, end:], whole[:, :, end : end + count])
        end += count
        assert cache.get_seq_length() == end and cache.positions() == list(range(end))


@kinds
def test_exactly_the_residual_is_exact_at_any_moment(backend, options):
    keys, values = states(2, 3, 30, 6), states(2, 3, 30, 6, seed=1)
    cache = cache_of(backend, options)
    for end in range(1, 31):
        cache.update(keys[:, :, end - 1 : end], values[:, :, end - 1 : end], 0)
        layer = cache.layers[0]
        for held, whole, positions, (groups, size, residual, format) in zip(
            (layer.keys, layer.values),
            (keys, values),
            layer.quantized_positions(),
            halves(backend, options),
            strict=True,
        ):
            count = quantized_count(end, groups, size, residual)
            assert positions == list(range(count))
            assert torch.equal(held[:, :, count:], whole[:, :, count:end])
            assert end - count <= residual + (size - 1 if groups == PER_CHANNEL else 0)
            assert end - count >= min(end, residual)
            if backend != "fp8":  # whose blocks are the single tokens here
                codes = format.quantize(whole[:, :, :count])
                assert torch.equal(held[:, :, :count], format.dequantize(codes, torch.float32))


@kinds
def test_steps_chunks_and_one_shot_hold_the_same_codes(backend, options):
    keys, values = states(2, 3, 41, 6), states(2, 3, 41, 6, seed=1)
    held = []
    for sizes in ([41], [1] * 41, [7, 1, 1, 20, 12], [3, 38]):
        cache = cache_of(backend, options)
        for part_keys, part_values in zip(keys.split(sizes, 2), values.split(sizes, 2), strict=True):
            cache.update(part_keys, part_values, 0)
        held.append(everything(cache) if backend != "fp8" else [cache.layers[0].keys, cache.layers[0].values])
    assert all(same(held[0], other) for other in held[1:])


@kinds
def test_no_token_is_quantized_twice_and_none_is_forgotten(backend, options, monkeypatch):
    counted = []
    for kind in (AffineFormat, Fp8):
        original = kind.quantize

        def counting(self, x, original=original):
            counted.append(x.shape[2])
            return original(self, x)

        monkeypatch.setattr(kind, "quantize", counting)
    cache = cache_of(backend, options)
    for count in (9, 1, 1, 1, 14, 1, 1, 1, 1, 30, 1):
        cache.update(states(1, 1, count, 8), states(1, 1, count, 8), 0)
    assert sum(counted) == sum(quantized_count(61, *half[:3]) for half in halves(backend, options))
    counted.clear()
    copy.deepcopy(cache).layers[0].keys.sum()
    cache.reorder_cache(torch.tensor([0]))
    cache.crop(-1)
    assert not counted


@kinds
def test_the_error_of_a_token_is_fixed_once(backend, options):
    cache = filled(backend, options, layers=1)
    layer = cache.layers[0]
    fixed = layer.keys[:, :, : len(layer.quantized_positions()[0])]
    for seed in range(40):
        cache.update(100 * states(2, 3, 1, 6, seed), states(2, 3, 1, 6, seed), 0)
        assert torch.equal(layer.keys[:, :, : fixed.shape[2]], fixed)


# Formats and shapes


@pytest.mark.parametrize("backend", ["hqq", "quanto", "fp8"])
@pytest.mark.parametrize(("heads", "head_dim"), [(1, 8), (3, 20), (2, 64), (5, 7), (1, 256)])
def test_any_prompt_length_head_count_and_head_size(backend, heads, head_dim):
    options = {} if backend == "fp8" else dict(residual_length=16, q_group_size=32)
    for tokens in (1, 2, 3, 16, 17, 47, 48, 49, 300):
        keys, values = states(1, heads, tokens, head_dim), states(1, heads, tokens, head_dim + 1, seed=1)
        layer = QuantizedLayer(backend, **options)
        layer.update(keys, values)
        for held, whole, (groups, size, residual, format) in zip(
            (layer.keys, layer.values), (keys, values), halves(backend, options), strict=True
        ):
            count = quantized_count(tokens, groups, size, residual)
            expected = format.dequantize(format.quantize(whole[:, :, :count]), torch.float32)
            assert torch.equal(held, torch.cat([expected, whole[:, :, count:]], 2))
            assert torch.allclose(held, whole, atol=0.6)  # 4 bits of a normal distribution; fp8 is far below


@pytest.mark.parametrize("backend", ["hqq", "quanto"])
@pytest.mark.parametrize("tokens", [129, 192, 193, 250])
def test_a_few_huge_key_channels_survive_four_bits(backend, tokens):
    keys = states(1, 2, tokens, 64)
    keys[..., [21, 53]] = 60 + 40 * keys[..., [21, 53]]
    ordinary = [channel for channel in range(64) if channel not in (21, 53)]
    error = {}
    for name, options in (("default", {}), ("per token", dict(axis_key=1 if backend == "hqq" else 0))):
        layer = QuantizedLayer(backend, residual_length=0, **options)
        layer.update(keys, keys)
        error[name] = (layer.keys - keys)[:, :, :128, ordinary].abs().mean().item()
    assert error["default"] < 0.12 < 4 * error["default"] < error["per token"]


@pytest.mark.parametrize("first", [torch.full((1, 2, 1, 8), 1e-6), torch.zeros(1, 2, 1, 8)], ids=["tiny", "zeros"])
def test_fp8_neither_clips_nor_flushes_what_comes_after_the_first_token(first):
    layer, parts = QuantizedLayer("fp8"), [first]
    layer.update(first, first)
    for size in (100.0, 1e-5, 3000.0, 0.0, 1.0):
        parts.append(size * states(1, 2, 1, 8))
        layer.update(parts[-1], -parts[-1])
    whole = torch.cat(parts, 2)
    assert torch.allclose(layer.keys, whole, rtol=2**-4, atol=0)
    theirs = transformers.cache_utils.Fp8QuantizedLayer()
    for part in parts[:2]:
        theirs.update(part, part)
    frozen = theirs._dequantize(theirs._quantized_keys)
    assert not torch.allclose(frozen, whole[:, :, :2], rtol=2**-4, atol=0)  # else this test would be too easy


def test_errors_are_those_of_transformers_hqq_at_the_same_groups():
    keys = states(1, 2, 64, 64)  # a group is then one token of one head for both
    ours = QuantizedLayer("hqq", residual_length=0, axis_key=1, axis_value=1)
    theirs = transformers.cache_utils.HQQQuantizedLayer(axis_key=1, axis_value=1)
    ours.update(keys, keys)
    theirs.update(keys, keys)
    error = [(held - keys).abs().mean() for held in (ours.keys, theirs._dequantize(theirs._quantized_keys))]
    assert error[0] == pytest.approx(error[1].item(), rel=0.002)


@kinds
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_number_format_comes_back(backend, options, dtype):
    cache = cache_of(backend, options)
    for count in (9, 1, 6):
        got = cache.update(states(1, 2, count, 6).to(dtype), states(1, 2, count, 6).to(dtype), 0)
        layer = cache.layers[0]
        assert all(tensor.dtype == dtype for tensor in (*got, layer.keys, layer.values)) and layer.dtype == dtype


# Bytes


def expected_bytes(backend, options, sizes, batch, heads, head_dim, itemsize):
    """(held, used) after updates of these sizes, from the options alone: the formula and both rules of growth."""
    held = used = 0
    for groups, size, residual, _ in halves(backend, options):
        bits, per_channel = options.get("nbits", 4), groups == PER_CHANNEL
        if backend == "fp8":
            code_row, metadata_row = batch * heads * head_dim, batch
        else:
            code_row = batch * heads * -(-head_dim * bits // 8)
            count = head_dim if per_channel else -(-head_dim // min(size, head_dim))
            metadata_row = batch * heads * count * 2 * (4 if bits == 8 else 2)
        total = exact = room = first = codes = codes_room = rows_room = 0
        for new in sizes:
            total += new
            leaving = quantized_count(total, groups, size, residual) - codes
            kept = exact + new - leaving
            if exact == 0 or kept + leaving > max(kept + 1, kept + kept // 4):
                room, first = kept, 0
            elif first + exact + new > room:
                room, first = max(exact + new, exact + exact // 4), leaving
            else:
                first += leaving
            exact, codes = kept, codes + leaving
            rows = codes // size if per_channel else codes
            codes_room = max(codes, codes_room + codes_room // 4) if codes > codes_room else codes_room
            rows_room = max(rows, rows_room + rows_room // 4) if rows > rows_room else rows_room
        one = batch * heads * head_dim * itemsize
        held += codes_room * code_row + rows_room * metadata_row + room * one
        used += codes * code_row + rows * metadata_row + exact * one
    return held, used


@kinds
@pytest.mark.parametrize("sizes", [[3], [37], [37, 1], [1] * 50, [30, 1, 1, 1, 1, 1, 1, 1, 17, 3]])
def test_bytes_equal_the_formula(backend, options, sizes):
    for head_dim in (6, 9):
        cache = cache_of(backend, options)
        for seed, count in enumerate(sizes):
            new = states(2, 3, count, head_dim, seed).mul(5).round()  # float16 can hold such groups
            cache.update(new, new, 0)
        expected = expected_bytes(backend, options, sizes, 2, 3, head_dim, 4)
        assert (cache.nbytes(), cache.nbytes(used=True)) == expected
        assert cache.nbytes("cpu") == cache.nbytes() and cache.nbytes("cuda") == 0
        assert cache.nbytes() == sum(s.buffer.nbytes for s in cache.layers[0].storages() if s.is_allocated)


def test_bytes_of_a_prompt_in_plain_numbers():
    """SmolLM2's shape, defaults, 1,000 tokens of bfloat16: keys keep 832 tokens in 13 groups, values 872 tokens."""
    layer = QuantizedLayer("quanto")
    layer.update(states(1, 3, 1000, 64).bfloat16(), states(1, 3, 1000, 64).bfloat16())
    keys = 3 * (832 * 32 + 13 * 64 * 4 + 168 * 128)
    values = 3 * (872 * 32 + 872 * 4 + 128 * 128)
    assert layer.nbytes() == layer.nbytes(used=True) == keys + values
    assert layer.nbytes() < 0.42 * 2 * 3 * 1000 * 128
    short = QuantizedLayer("quanto")
    short.update(states(1, 3, 100, 64).bfloat16(), states(1, 3, 100, 64).bfloat16())
    assert short.nbytes() == 2 * 3 * 100 * 128  # a short text gains nothing


def test_a_block_that_float16_cannot_describe_widens_the_scales_and_changes_no_value():
    layer = QuantizedLayer("quanto", residual_length=0, q_group_size=4)
    first = states(1, 1, 8, 4)
    layer.update(first, first)
    before, bytes_before = layer.keys, layer.nbytes(used=True)
    layer.update(1e6 * states(1, 1, 4, 4, seed=1), states(1, 1, 4, 4, seed=1))
    assert torch.equal(layer.keys[:, :, :8], before)
    codes, rows_of_keys = 2 * 4 * 2, 3 * 4 * 2 * 4  # four tokens, key and value; three rows of scales, now float32
    assert layer.nbytes(used=True) - bytes_before >= codes + rows_of_keys - 2 * 4 * 2 * 2


# Roll-back


@kinds
@pytest.mark.parametrize("count", [0, -1, -3, -6, -9, -14, -22, -23, -50])
def test_crop_and_go_on(backend, options, count):
    cache = filled(backend, options)
    before = [(layer.keys, layer.values, layer.quantized_positions()) for layer in cache.layers]
    cache.crop(count)
    left = max(23 + count, 0)
    assert cache.is_croppable and cache.get_seq_length() == left and cache.positions(1) == list(range(left))
    for layer, (keys, values, quantized) in zip(cache.layers, before, strict=True):
        assert torch.equal(layer.keys, keys[:, :, :left]) and torch.equal(layer.values, values[:, :, :left])
        assert layer.quantized_positions() == tuple(positions[:left] for positions in quantized)
    more = states(2, 3, 30, 6, seed=9)
    for part in more.split([1] * 10 + [20], 2):
        got, _ = cache.update(part, -part, 0)
        fixed = min(left, len(before[0][2][0]))
        assert torch.equal(got[:, :, :fixed], before[0][0][:, :, :fixed])
        assert torch.equal(got[:, :, -part.shape[2] :], part)
    layer, end = cache.layers[0], left + 30
    for held, (groups, size, residual, _), positions in zip(
        (layer.keys, -layer.values), halves(backend, options), layer.quantized_positions(), strict=True
    ):
        exact = end - len(positions)
        assert residual <= exact <= residual + (size - 1 if groups == PER_CHANNEL else 0)
        assert torch.equal(held[:, :, end - exact :], more[:, :, 30 - exact :])


@kinds
def test_crop_in_parts_equals_crop_at_once(backend, options):
    for first, second in ((-1, -1), (-2, -5), (-9, -3), (-8, -8), (-20, -20)):
        once, twice = filled(backend, options), filled(backend, options)
        once.crop(first + second)
        twice.crop(first)
        twice.crop(second)
        assert same(everything(once), everything(twice))
        for cache in (once, twice):
            cache.update(states(2, 3, 13, 6, seed=5), states(2, 3, 13, 6, seed=6), 0)
        assert same(everything(once), everything(twice))


def test_several_crops_inside_groups_leave_runs_that_read_as_before():
    layer = QuantizedLayer("quanto", q_group_size=4, residual_length=0)
    layer.update(states(1, 2, 10, 3), states(1, 2, 10, 3))
    held = layer.keys
    for seed, cut in enumerate((-3, -6, -9, -1, -5), start=1):
        layer.crop(cut)
        kept = held[:, :, : layer.get_seq_length()]
        assert torch.equal(layer.keys, kept)
        layer.update(states(1, 2, 9, 3, seed), states(1, 2, 9, 3, seed))
        held = layer.keys
        assert torch.equal(held[:, :, : kept.shape[2]], kept)
        assert (held[:, :, kept.shape[2] :] - states(1, 2, 9, 3, seed)).abs().max() < 0.3


@kinds
def test_crop_gives_memory_back_once_less_than_half_is_used(backend, options):
    cache = filled(backend, options, tokens=400)
    full = cache.nbytes()
    cache.crop(-20)
    assert cache.nbytes() > 0.9 * full
    cache.crop(-360)
    assert cache.nbytes() < 0.1 * full
    cache.crop(-20)
    assert cache.nbytes() == 0 and cache.is_initialized


def test_a_positive_crop_is_refused_and_an_unused_cache_takes_any_other():
    cache = filled(*KINDS[0])
    before = everything(cache)
    with pytest.raises(ValueError, match=r"crop\(-2\)"):
        cache.crop(2)
    assert same(everything(cache), before)
    unused = cache_of("hqq", {})
    unused.crop(-3)
    assert unused.is_croppable and unused.get_max_length() == -1 and unused.positions() == [] and unused.nbytes() == 0


# Batches, copies, reset


@kinds
def test_reorder_select_and_repeat_reach_both_halves(backend, options):
    cache = filled(backend, options, batch=3)
    cache.crop(-7)  # so that a run has ended inside a group
    cache.update(states(3, 3, 9, 6, seed=7), states(3, 3, 9, 6, seed=8), 1)
    rows, expected = torch.arange(3), [(layer.keys, layer.values) for layer in cache.layers]
    for change, chosen in (
        (lambda: cache.reorder_cache(torch.tensor([2, 0, 0])), rows[[2, 0, 0]]),
        (lambda: cache.batch_repeat_interleave(2), torch.arange(3).repeat_interleave(2)),
        (
            lambda: cache.batch_select_indices(torch.tensor([False, True, True, False, False, True])),
            rows.new([1, 2, 5]),
        ),
        (lambda: cache.batch_select_indices([-1]), torch.tensor([-1])),
    ):
        change()
        expected = [(keys[chosen], values[chosen]) for keys, values in expected]
        for layer, (keys, values) in zip(cache.layers, expected, strict=True):
            assert torch.equal(layer.keys, keys) and torch.equal(layer.values, values)
    assert cache.batch_size == 1
    got, _ = cache.update(states(1, 3, 5, 6), states(1, 3, 5, 6), 0)
    assert torch.equal(got[:, :, :16], expected[0][0])


@kinds
@pytest.mark.parametrize("copier", [copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))])
def test_copies_are_trimmed_and_independent(backend, options, copier):
    cache = filled(backend, options, tokens=60)
    for count in (1, 4):
        cache.update(states(2, 3, count, 6), states(2, 3, count, 6), 0)
        cache.update(states(2, 3, count, 6), states(2, 3, count, 6), 1)
    assert cache.nbytes() > cache.nbytes(used=True)
    cache.note = "kept"
    before = everything(cache)
    twin = copier(cache)
    assert twin.nbytes() == twin.nbytes(used=True) == cache.nbytes(used=True) < cache.nbytes()
    assert type(twin) is QuantizedCache and twin.note == "kept" and same(everything(twin), before)
    twin.crop(-20)
    twin.update(states(2, 3, 40, 6), states(2, 3, 40, 6), 0)
    twin.reorder_cache(torch.tensor([1, 0]))
    assert same(everything(cache), before)
    cache.crop(-20)
    assert twin.get_seq_length() == 85


def test_a_pickle_is_no_larger_than_what_it_holds():
    cache = filled("quanto", dict(nbits=2), tokens=3000, head_dim=64, layers=1)
    cache.crop(-1400)
    assert len(pickle.dumps(cache)) < cache.nbytes(used=True) + 10_000 < cache.nbytes()


@kinds
def test_reset_is_as_new_and_takes_another_batch_and_number_format(backend, options):
    cache = filled(backend, options)
    cache.crop(-10)
    cache.reset()
    assert cache.get_seq_length() == cache.nbytes() == 0 and cache.batch_size == -1 and cache.positions() == []
    layer = cache.layers[0]
    assert layer.keys is None and layer.quantized_positions() == ([], []) and not cache.is_initialized
    new = cache_of(backend, options)
    for each in (cache, new):
        for seed in range(2):
            got = each.update(states(5, 1, 9, 4, seed).half(), states(5, 1, 9, 4, seed).half(), 0)
    assert same(everything(cache), everything(new)) and got[0].dtype == torch.float16


@kinds
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.reorder_cache(torch.tensor([0, 2])), "batch of 2"),
        (lambda c: c.batch_repeat_interleave(0), "1 or more"),
        (lambda c: c.update(states(4, 3, 1, 6), states(4, 3, 1, 6), 0), r"batch_repeat_interleave\(2\)"),
        (lambda c: c.update(states(2, 1, 1, 6), states(2, 1, 1, 6), 0), "3 heads of size 6"),
        (lambda c: c.update(states(2, 3, 1, 6), states(2, 3, 1, 5), 0), "values of 3 heads of size 6"),
        (lambda c: c.update(states(2, 3, 1, 6), states(2, 3, 2, 6), 0), "1 keys and 2 values"),
        (lambda c: c.update(states(2, 3, 1, 6)[0], states(2, 3, 1, 6), 0), r"\(3, 1, 6\)"),
        (lambda c: c.update(states(2, 3, 1, 6), states(2, 3, 1, 6), 7), "layer 7"),
    ],
)
def test_a_refused_operation_changes_nothing(backend, options, change, message):
    cache = filled(backend, options)
    before = everything(cache)
    with pytest.raises(ValueError, match=message):
        change(cache)
    assert same(everything(cache), before) and cache.get_seq_length() == 23


@kinds
def test_filled_in_inference_mode_and_continued_outside(backend, options):
    with torch.inference_mode():
        cache = filled(backend, options)
        twin = copy.deepcopy(cache)
        cache.update(states(2, 3, 1, 6), states(2, 3, 1, 6), 0)
        cache.batch_repeat_interleave(1)
    for each in (cache, twin):
        for _ in range(7):
            with torch.no_grad():
                each.update(states(2, 3, 1, 6), states(2, 3, 1, 6), 0)
        each.crop(-9)
        each.reorder_cache(torch.tensor([1, 0]))
        with torch.enable_grad():
            each.update(states(2, 3, 5, 6), states(2, 3, 5, 6), 0)
        assert not any(s.buffer.is_inference() for s in each.layers[0].storages() if s.is_allocated)


@kinds
def test_gradients_reach_the_new_tokens_and_nothing_that_is_kept(backend, options):
    keys = states(1, 1, 12, 4).requires_grad_()
    cache = cache_of(backend, options)
    for part in keys.split([9, 3], 2):
        got, _ = cache.update(part, part, 0)
    got.square().sum().backward()
    assert torch.equal(keys.grad[:, :, 9:], 2 * keys.detach()[:, :, 9:]) and not keys.grad[:, :, :9].any()
    assert not any(tensor.requires_grad for tensor in everything(cache))
    copy.deepcopy(cache).update(keys, keys, 0)


@kinds
def test_views_handed_out_keep_what_they_showed(backend, options):
    query, cache, loss = torch.randn(1, 1, 1, 4, requires_grad=True), cache_of(backend, options), 0
    seen = []
    for seed in range(12):
        keys, _ = cache.update(states(1, 1, 2, 4, seed), states(1, 1, 2, 4, seed), 0)
        seen.append((keys, keys.clone()))
        loss = loss + (query @ keys.transpose(-1, -2)).square().sum()
    assert all(torch.equal(view, then) for view, then in seen)
    loss.backward()  # autograd would refuse if what it saved had been written over
    assert torch.isfinite(query.grad).all()


@kinds
def test_a_caller_may_read_and_replace_keys_and_values(backend, options):
    cache = filled(backend, options, layers=1)
    layer = cache.layers[0]
    new = states(2, 3, 11, 6, seed=4)
    layer.keys, layer.values = new, -new
    assert torch.equal(layer.keys, new) and torch.equal(layer.values, -new) and cache.get_seq_length() == 11
    got, _ = cache.update(states(2, 3, 1, 6), states(2, 3, 1, 6), 0)
    assert got.shape[2] == 12 and torch.equal(got[:, :, :11], new)
    assert layer.quantized_positions()[0] == list(range(quantized_count(12, *halves(backend, options)[0][:3])))
    layer.keys = layer.values = None
    assert not layer.is_initialized


@kinds
def test_early_initialization_allocates_no_token(backend, options):
    cache = cache_of(backend, options, layers=2)
    cache.early_initialization(2, 3, 6, torch.float16, "cpu")
    assert cache.is_initialized and cache.batch_size == 2 and cache.nbytes() == cache.get_seq_length() == 0
    new = states(2, 3, 14, 6).half()
    got, _ = cache.update(new, new, 0)
    assert torch.equal(got, new)
    with pytest.raises(ValueError, match="batch of 2"):
        cache.update(states(3, 3, 1, 6), states(3, 3, 1, 6), 0)
    assert cache.update(states(3, 3, 1, 6), states(3, 3, 1, 6), 1)[0].shape == (3, 3, 1, 6)  # it holds nothing


# Options


def test_defaults():
    for backend in ("hqq", "quanto"):
        keys, values, residual = quantized_formats(backend)
        assert (keys.bits, keys.grouping, keys.group_size) == (4, PER_CHANNEL, 64) and residual == 128
        assert (values.bits, values.grouping, values.group_size) == (4, PER_TOKEN, 64)
    assert quantized_formats("fp8") == (Fp8(), Fp8(), 0)
    keys, values, _ = quantized_formats("quanto", axis_key=0, axis_value=-1)
    assert (keys.grouping, values.grouping) == (PER_TOKEN, PER_CHANNEL)
    keys, values, _ = quantized_formats("hqq", axis_key=1, axis_value=0)
    assert (keys.grouping, values.grouping) == (PER_TOKEN, PER_CHANNEL)


@pytest.mark.parametrize(
    ("backend", "options", "message"),
    [
        ("int4", {}, "unknown backend 'int4': there are 'hqq', 'quanto', 'fp8'"),
        (None, {}, "unknown backend None"),
        ("hqq", dict(nbits=5), "nbits=5: the hqq backend keeps 1, 2, 3, 4, 8"),
        ("quanto", dict(nbits=8), "nbits=8: the quanto backend keeps 2, 4 bits"),
        ("hqq", dict(nbits=True), "nbits=True"),
        ("hqq", dict(nbits=4.0), "nbits=4.0"),
        ("hqq", dict(axis_key=-1), r"axis_key=-1: the hqq backend has the axes 1 \(per token\), 0 \(per channel\)"),
        ("quanto", dict(axis_value=1), "axis_value=1: the quanto backend"),
        ("quanto", dict(axis_value="token"), "axis_value='token'"),
        ("hqq", dict(q_group_size=0), "q_group_size=0: give a whole number of 1 or more"),
        ("hqq", dict(q_group_size=32.5), "q_group_size=32.5"),
        ("quanto", dict(residual_length=-1), "residual_length=-1: give a whole number of 0 or more"),
        ("fp8", dict(nbits=8), "cannot honour nbits"),
        ("fp8", dict(axis_key=0, residual_length=128), "cannot honour axis_key, residual_length"),
        ("fp8", dict(axis_value=0, q_group_size=64), "cannot honour axis_value, q_group_size"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused_by_name(backend, options, message):
    mamba = transformers.MambaConfig(num_hidden_layers=1)  # refused also where no layer would use them
    for build in (lambda: QuantizedLayer(backend, **options), lambda: QuantizedCache(backend, mamba, **options)):
        with pytest.raises(ValueError, match=message):
            build()


# Random operations

OPERATIONS = st.one_of(
    st.tuples(st.just("update"), st.integers(1, 9)),
    st.tuples(st.just("update"), st.just(1)),
    st.tuples(st.just("crop"), st.integers(-12, 0)),
    st.tuples(st.just("reorder"), st.integers(0, 5)),
    st.tuples(st.just("repeat"), st.integers(1, 2)),
    st.tuples(st.just("copy"), st.booleans()),
    st.tuples(st.just("reset"), st.just(0)),
)


class PlainHalf:
    """The oracle: lists of tokens, each (batch, kv_heads, head_dim). A quantized token is its final value."""

    def __init__(self, groups, size, residual, format):
        self.multiple = size if groups == PER_CHANNEL else 1
        self.residual, self.format = residual, format
        self.fixed, self.exact = [], []

    def update(self, new):
        """What the update returns."""
        self.exact += new.unbind(2)
        returned = torch.stack(self.fixed + self.exact, 2)
        # The smallest blocks there can be; only for fp8 does it matter which tokens arrived together.
        size = max(len(self.exact), 1) if isinstance(self.format, Fp8) else self.multiple
        while len(self.exact) >= self.residual + size:
            block = torch.stack(self.exact[:size], 2)
            self.fixed += self.format.dequantize(self.format.quantize(block), block.dtype).unbind(2)
            del self.exact[:size]
        return returned

    def crop(self, length):
        del self.exact[max(length - len(self.fixed), 0) :]
        del self.fixed[length:]

    def choose(self, rows):
        self.fixed, self.exact = [t[rows] for t in self.fixed], [t[rows] for t in self.exact]


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.sampled_from(KINDS), st.lists(OPERATIONS, max_size=25))
def test_any_sequence_of_operations_equals_plain_lists(kind, operations):
    cache, model = cache_of(*kind), [PlainHalf(*half) for half in halves(*kind)]
    batch, length = 2, 0
    for seed, (name, value) in enumerate(operations):
        if name == "update":
            new = [states(batch, 2, value, 5, 2 * seed) for _ in range(2)]
            new[1] = -2 * new[1]
            assert cache.get_mask_sizes(value, 0) == (length + value, 0)
            got = cache.update(*new, 0)
            length += value
            for returned, half, part in zip(got, model, new, strict=True):
                expected = half.update(part)
                assert torch.equal(returned, expected)
        elif name == "crop":
            cache.crop(value)
            length = max(length + value, 0)
            for half in model:
                half.crop(length)
        elif name == "reset":
            cache.reset()
            batch, length, model = 2, 0, [PlainHalf(*half) for half in halves(*kind)]
        elif name == "copy":
            cache = pickle.loads(pickle.dumps(cache)) if value else copy.deepcopy(cache)
        elif cache.is_initialized and name == "reorder":
            rows = torch.arange(batch) * value % batch
            cache.reorder_cache(rows)
            for half in model:
                half.choose(rows)
        elif cache.is_initialized and name == "repeat" and batch * value <= 8:
            cache.batch_repeat_interleave(value)
            rows = torch.arange(batch).repeat_interleave(value)
            batch *= value
            for half in model:
                half.choose(rows)
        layer = cache.layers[0]
        assert cache.get_seq_length() == length and cache.positions() == list(range(length))
        if length:
            assert cache.batch_size == batch
            quantized = layer.quantized_positions()
            for held, half, positions in zip((layer.keys, layer.values), model, quantized, strict=True):
                assert len(positions) == len(half.fixed)
                assert torch.equal(held, torch.stack(half.fixed + half.exact, 2))


# In models


@pytest.mark.parametrize("backend", ["hqq", "quanto"])
@pytest.mark.parametrize(
    ("ids", "options"),
    [
        (PROMPT, {}),
        (PROMPT, {"num_beams": 4}),
        (PADDED, {"attention_mask": (PADDED != 0).long(), "num_beams": 2}),
        (PROMPT, {"prompt_lookup_num_tokens": 4}),
        (PROMPT, {"prefill_chunk_size": 3}),
    ],
)
def test_where_the_residual_covers_the_text_tokens_are_those_of_no_cache(llama, backend, ids, options):
    options = {"do_sample": False, "max_new_tokens": 10} | options
    cache = QuantizedCache(backend, llama.config)
    ours = llama.generate(ids, cache=cache, **options)
    plain = {name: value for name, value in options.items() if "lookup" not in name and "chunk" not in name}
    assert torch.equal(ours, llama.generate(ids, use_cache=False, **plain))
    assert cache.get_seq_length() == ours.shape[1] - 1


@pytest.mark.parametrize(
    ("ids", "options"),
    [
        (PROMPT, {}),
        (PROMPT, {"num_beams": 4}),
        (PADDED, {"attention_mask": (PADDED != 0).long(), "num_beams": 2}),
        (PROMPT, {"prompt_lookup_num_tokens": 4}),
    ],
)
def test_eight_bits_without_a_residual_generate_the_tokens_of_no_cache(llama, ids, options):
    """Every token is quantized here, and beams are reordered in codes: a wrong row or run would change the text."""
    options = {"do_sample": False, "max_new_tokens": 10} | options
    cache = QuantizedCache("hqq", llama.config, nbits=8, residual_length=0, q_group_size=2)
    ours = llama.generate(ids, cache=cache, **options)
    assert len(cache.layers[0].quantized_positions()[0]) >= cache.get_seq_length() - 1
    options.pop("prompt_lookup_num_tokens", None)
    assert torch.equal(ours, llama.generate(ids, use_cache=False, **options))


@kinds
def test_generate_runs_with_every_kind_and_keeps_count(llama, backend, options):
    for more in ({}, {"num_beams": 3}, {"prompt_lookup_num_tokens": 3}):
        cache = QuantizedCache(backend, llama.config, **options)
        text = llama.generate(PROMPT, cache=cache, do_sample=False, max_new_tokens=9, **more)
        assert text.shape[1] == 16 and cache.get_seq_length() == 15
        for positions, half in zip(cache.layers[1].quantized_positions(), halves(backend, options), strict=True):
            if not more:
                assert positions == list(range(quantized_count(15, *half[:3])))


def test_a_quantized_prefix_is_copied_and_continued_twice(llama):
    prefix = QuantizedCache("hqq", llama.config, nbits=8, residual_length=0, q_group_size=2)
    with torch.inference_mode():
        llama(PROMPT[:, :4], cache=prefix)
    for tail in ([61, 9, 44], [3, 3, 50, 8]):
        text = torch.cat([PROMPT[:, :4], torch.tensor([tail])], dim=1)
        continued = llama.generate(text, cache=copy.deepcopy(prefix), do_sample=False, max_new_tokens=6)
        assert torch.equal(continued, llama.generate(text, use_cache=False, do_sample=False, max_new_tokens=6))
    assert prefix.get_seq_length() == 4


def test_a_half_precision_model_gets_half_precision_back():
    model = tiny_llama().to(torch.bfloat16)
    cache = QuantizedCache("quanto", model.config, **SMALL)
    model.generate(PROMPT, cache=cache, do_sample=False, max_new_tokens=9)
    assert cache.layers[0].keys.dtype == cache.layers[0].values.dtype == torch.bfloat16


def test_windows_stay_in_full_precision():
    config = transformers.Gemma2Config(num_hidden_layers=2, sliding_window=4)
    cache = QuantizedCache("quanto", config, **SMALL)
    assert cache.is_sliding == [True, False]
    new = states(1, 1, 20, 8)
    for layer_idx in range(2):
        cache.update(new, new, layer_idx)
    assert torch.equal(cache.layers[0].keys, new[:, :, 17:]) and cache.positions(0) == [17, 18, 19]
    assert cache.positions(1) == list(range(20)) and not torch.equal(cache.layers[1].keys, new)
    assert isinstance(cache, transformers.QuantizedCache) and isinstance(cache, kv.Cache)


def perplexity(model, ids, cache):
    """Of every token after the first 64, fed 16 at a time, so that what was read long before is read from codes."""
    logits = [model(part, cache=cache).logits for part in ids.split(16, 1)]
    scores = torch.cat(logits, 1)[:, 63:-1].log_softmax(-1)
    return scores.gather(2, ids[:, 64:, None]).mean().neg().exp().item()


def test_four_bits_of_the_real_model_read_almost_as_well(real):
    model, tokenizer = real
    text = "The lighthouse keeper climbed the stairs each evening and lit the lamp before the first ships came in. " * 2
    text += "In winter the storms were loud, and he wrote down every ship he saw: its name, its flag and its course. "
    text += (
        "Years later the notebooks were found in the cellar, and historians learned from them which harbours traded "
    )
    text += "with each other, what the weather was like, and how many sailors never returned to their families."
    ids = tokenizer(text, return_tensors="pt").input_ids[:, :128]
    with torch.inference_mode():
        exact = perplexity(model, ids, kv.DynamicCache(config=model.config))
        four = perplexity(model, ids, QuantizedCache("quanto", model.config, residual_length=16, q_group_size=16))
        wrong = perplexity(model, ids, QuantizedCache("quanto", model.config, nbits=2, axis_key=0, residual_length=0))
    assert four == pytest.approx(exact, rel=0.1) and wrong > 2 * exact
