"""The growing full-attention layer: contents, capacity, bytes, roll-back, copies, gradients."""

import copy
import pickle

import pytest
import torch
from conftest import distinct
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcourse import DynamicCache


def filled(tokens, batch=2, heads=3, head_dim=4, layers=2):
    cache, states = DynamicCache(), []
    for layer in range(layers):
        keys = distinct(batch, heads, tokens, head_dim, 10_000 * layer)
        states.append((keys, -keys))
        cache.update(keys, -keys, layer)
    return cache, states


def capacities(cache):
    return [storage.capacity for storage in cache.layers[0].storages()]


def test_steps_chunks_and_one_shot_hold_the_same():
    keys = distinct(2, 3, 23, 4)
    for sizes in ([23], [1] * 23, [7, 1, 1, 9, 5]):
        cache = DynamicCache()
        for part in keys.split(sizes, dim=2):
            announced = cache.get_mask_sizes(part.shape[2], 0)
            got_keys, got_values = cache.update(part, -part, 0)
            assert announced == (got_keys.shape[2], 0)
        assert torch.equal(got_keys, keys) and torch.equal(got_values, -keys)
        assert torch.equal(cache.layers[0].keys, keys) and torch.equal(cache.layers[0].values, -keys)
        assert cache.get_seq_length() == cache.get_query_offset() == 23
        assert cache.positions(0) == list(range(23))


def test_capacity_is_exact_first_and_grows_by_a_quarter():
    cache, _ = filled(10)
    assert capacities(cache) == [10, 10]
    seen = []
    for _ in range(8):
        cache.update(distinct(2, 3, 1, 4), distinct(2, 3, 1, 4), 0)
        seen.append(capacities(cache)[0])
    assert seen == [12, 12, 15, 15, 15, 18, 18, 18]
    cache.update(distinct(2, 3, 100, 4), distinct(2, 3, 100, 4), 0)
    assert capacities(cache) == [118, 118]  # more than a quarter is needed: exactly what is needed


def test_bytes_equal_the_formula():
    cache, _ = filled(10)
    cache.update(distinct(2, 3, 1, 4), distinct(2, 3, 1, 4), 0)
    one_token = 2 * 2 * 3 * 4 * 4  # key and value, batch, kv_heads, head_dim, float32
    assert cache.nbytes() == one_token * (12 + 10)
    assert cache.nbytes(used=True) == one_token * (11 + 10)
    assert cache.nbytes("cpu") == cache.nbytes() and cache.nbytes("cuda") == 0


def test_an_update_moves_the_same_number_of_old_tokens_at_any_length():
    """Amortized over a doubling of the length: what concatenation moves is the length itself, 150 or 15,000."""
    moved = {}
    for tokens in (100, 10_000):
        cache = DynamicCache()
        cache.update(torch.zeros(1, 1, tokens, 2), torch.zeros(1, 1, tokens, 2), 0)
        for _ in range(tokens):
            cache.update(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2), 0)
        moved[tokens] = cache.layers[0].storages()[0].moved_bytes / (2 * 4) / tokens
    assert 0 < moved[100] < 6 and moved[10_000] == pytest.approx(moved[100], rel=0.01)


def test_growth_never_returns_spare_room_and_never_touches_the_callers_tensor():
    keys = distinct(1, 1, 4, 2)
    cache = DynamicCache()
    cache.update(keys, -keys, 0)
    keys.zero_()
    got, _ = cache.update(distinct(1, 1, 1, 2, 100), distinct(1, 1, 1, 2), 0)
    assert got[0, 0].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [100, 101]]


@pytest.mark.parametrize(("count", "left"), [(0, 9), (-2, 7), (-9, 0), (-50, 0)])
def test_crop(count, left):
    cache, states = filled(9)
    cache.crop(count)
    for (keys, values), layer in zip(states, cache.layers, strict=True):
        assert torch.equal(layer.keys, keys[:, :, :left]) and torch.equal(layer.values, values[:, :, :left])
    assert cache.get_seq_length() == left and cache.positions() == list(range(left))
    cache.update(distinct(2, 3, 2, 4, 500), distinct(2, 3, 2, 4), 0)
    assert cache.layers[0].keys[:, :, left:].flatten().tolist() == distinct(2, 3, 2, 4, 500).flatten().tolist()


def test_a_positive_crop_is_refused_and_an_unused_cache_takes_any_other():
    cache, states = filled(5)
    with pytest.raises(ValueError, match=r"crop\(-2\)"):
        cache.crop(2)
    assert torch.equal(cache.layers[1].keys, states[1][0])
    DynamicCache().crop(-3)
    assert cache.is_croppable and DynamicCache().is_croppable


def test_crop_gives_memory_back_once_less_than_half_is_used():
    cache, _ = filled(20)
    address = cache.layers[0].keys.data_ptr()
    cache.crop(-10)
    assert capacities(cache) == [20, 20] and cache.layers[0].keys.data_ptr() == address
    cache.crop(-1)
    assert capacities(cache) == [9, 9]


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))])
def test_copies_are_trimmed_and_independent(copier):
    cache, states = filled(10)
    cache.update(distinct(2, 3, 1, 4), distinct(2, 3, 1, 4), 0)
    cache.note = "kept"
    twin = copier(cache)
    assert [s.capacity for s in twin.layers[0].storages()] == [11, 11]
    twin.update(distinct(2, 3, 5, 4), distinct(2, 3, 5, 4), 0)
    twin.layers[1].keys.zero_()
    assert cache.get_seq_length() == 11 and torch.equal(cache.layers[1].keys, states[1][0])
    assert twin.note == "kept" and type(twin) is DynamicCache


def test_a_pickle_is_no_larger_than_the_tokens_it_holds():
    cache, _ = filled(1000)
    cache.crop(-499)
    assert len(pickle.dumps(cache)) < cache.nbytes(used=True) + 5_000 < cache.nbytes()


def test_reorder_select_and_repeat():
    cache, states = filled(5, batch=3)
    expected = states[0][0][[2, 0, 0]]
    with torch.no_grad():
        buffer = cache.layers[0]._keys.buffer
        cache.reorder_cache(torch.tensor([2, 0, 0]))
        assert cache.layers[0]._keys.buffer is buffer  # in place, as long as nobody has read the keys
    assert torch.equal(cache.layers[0].keys, expected)
    cache.batch_repeat_interleave(2)
    expected = expected.repeat_interleave(2, 0)
    assert torch.equal(cache.layers[0].keys, expected) and torch.equal(cache.layers[0].values, -expected)
    cache.batch_select_indices(torch.tensor([False, True, True, False, False, True]))
    expected = expected[[1, 2, 5]]
    assert torch.equal(cache.layers[0].keys, expected) and cache.batch_size == 3
    cache.batch_select_indices([-1])
    assert torch.equal(cache.layers[1].keys, states[1][0][[0]]) and cache.batch_size == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.reorder_cache(torch.tensor([0, 2])), "batch of 2"),
        (lambda c: c.batch_select_indices([[0]]), "whole numbers"),
        (lambda c: c.batch_repeat_interleave(0), "1 or more"),
        (lambda c: c.crop(-1.5), "whole number"),
        (lambda c: c.update(distinct(4, 3, 1, 4), distinct(4, 3, 1, 4), 0), r"batch_repeat_interleave\(2\)"),
        (lambda c: c.update(distinct(3, 3, 1, 4), distinct(3, 3, 1, 4), 0), "start from an empty cache"),
        (lambda c: c.update(distinct(2, 1, 1, 4), distinct(2, 1, 1, 4), 0), "3 heads of size 4"),
        (lambda c: c.update(distinct(2, 3, 1, 4), distinct(2, 3, 2, 4), 0), "1 keys and 2 values"),
        (lambda c: c.update(distinct(2, 3, 1, 4)[0], distinct(2, 3, 1, 4), 0), r"\(3, 1, 4\)"),
        (lambda c: c.crop(1), "minus the number"),
        (lambda c: c.batch_select_indices(torch.tensor([True, False, True])), "entry for each row"),
        (lambda c: c.update(distinct(2, 3, 1, 4), distinct(2, 3, 1, 4), -9), "layer -9"),
        (lambda c: c.nbytes("emulatd"), "no device"),
    ],
)
def test_a_refused_operation_changes_nothing(change, message):
    cache, states = filled(5)
    with pytest.raises(ValueError, match=message):
        change(cache)
    assert all(torch.equal(layer.keys, keys) for layer, (keys, _) in zip(cache.layers, states, strict=True))
    assert all(torch.equal(layer.values, values) for layer, (_, values) in zip(cache.layers, states, strict=True))
    assert cache.get_seq_length() == 5


def test_reset_is_as_new_and_takes_another_batch_size():
    cache, _ = filled(5)
    cache.reset()
    assert cache.get_seq_length() == cache.nbytes() == 0 and cache.batch_size == -1 and cache.positions() == []
    assert cache.layers[0].keys is None and not cache.is_initialized
    keys = distinct(7, 1, 2, 4)
    got, _ = cache.update(keys, keys, 0)
    assert torch.equal(got, keys)


def test_filled_in_inference_mode_and_continued_outside():
    with torch.inference_mode():
        cache, _ = filled(4)
        twin = copy.deepcopy(cache)
        cache.update(distinct(2, 3, 1, 4, 900), distinct(2, 3, 1, 4), 0)
    for each in (cache, twin):
        with torch.no_grad():
            got, _ = each.update(distinct(2, 3, 1, 4, 700), distinct(2, 3, 1, 4), 0)
        assert got[0, 0, -1].tolist() == [700, 701, 702, 703] and got.shape[2] == each.get_seq_length()
        each.reorder_cache(torch.tensor([1, 0]))
        assert not each.layers[0].keys.is_inference()


def test_gradients_flow_through_a_cache_and_copies_have_none():
    keys = torch.randn(1, 1, 4, 2, requires_grad=True)
    cache = DynamicCache()
    cache.update(keys[:, :, :3], keys[:, :, :3], 0)
    got, _ = cache.update(keys[:, :, 3:], keys[:, :, 3:], 0)
    got.square().sum().backward()
    torch.testing.assert_close(keys.grad, 2 * keys.detach())
    twin = copy.deepcopy(cache)
    assert not twin.layers[0].keys.requires_grad
    with torch.no_grad():
        twin.update(keys, keys, 0)
        cache.update(keys, keys, 0)
    assert torch.equal(twin.layers[0].keys, cache.layers[0].keys)


def test_in_place_growth_does_not_disturb_a_graph_that_saved_an_older_view():
    """Only the queries are trained: the keys carry no gradient, but autograd remembers them."""
    query, cache = torch.randn(1, 1, 1, 2, requires_grad=True), DynamicCache()
    cache.update(torch.randn(1, 1, 8, 2), torch.randn(1, 1, 8, 2), 0)
    loss = 0
    for _ in range(5):
        keys, _ = cache.update(torch.randn(1, 1, 1, 2), torch.randn(1, 1, 1, 2), 0)
        loss = loss + (query @ keys.transpose(-1, -2)).square().sum()
    loss.backward()
    assert torch.isfinite(query.grad).all()


def test_data_to_start_from():
    cache, states = filled(5)
    twin = DynamicCache(iter(cache))
    assert all(torch.equal(a.keys, b.keys) for a, b in zip(cache.layers, twin.layers, strict=True))
    twin = DynamicCache([(keys, values) for keys, values in states])
    assert torch.equal(twin.layers[1].values, states[1][1]) and len(twin) == 2


def test_a_caller_may_replace_keys_and_values():
    cache, states = filled(5)
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[:, :, :3], layer.values[:, :, :3]
    assert cache.get_seq_length() == 3
    got, _ = cache.update(distinct(2, 3, 1, 4), distinct(2, 3, 1, 4), 0)
    assert torch.equal(got[:, :, :3], states[0][0][:, :, :3]) and got.shape[2] == 4


def test_a_wider_number_format_widens_the_layer():
    cache = DynamicCache()
    cache.update(torch.ones(1, 1, 2, 2).bfloat16(), torch.ones(1, 1, 2, 2).bfloat16(), 0)
    keys, _ = cache.update(torch.full((1, 1, 1, 2), 1 / 3), torch.ones(1, 1, 1, 2), 0)
    assert keys.dtype == torch.float32 and keys[0, 0, -1, 0] == torch.tensor(1 / 3)


OPERATIONS = st.one_of(
    st.tuples(st.just("update"), st.integers(1, 6)),
    st.tuples(st.just("crop"), st.integers(-9, 0)),
    st.tuples(st.just("reorder"), st.integers(0, 5)),
    st.tuples(st.just("repeat"), st.integers(1, 2)),
    st.tuples(st.just("copy"), st.just(0)),
    st.tuples(st.just("reset"), st.just(0)),
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(OPERATIONS, max_size=25))
def test_any_sequence_of_operations_equals_a_plain_list(operations):
    """The oracle: a list of rows, each a list of token numbers."""
    cache, rows, number = DynamicCache(), [[], []], 0
    for name, value in operations:
        if name == "update":
            new = [[number + row * value + i for i in range(value)] for row in range(len(rows))]
            number += len(rows) * value
            states = torch.tensor(new, dtype=torch.float64)[:, None, :, None].expand(-1, 2, -1, 3)
            rows = [row + more for row, more in zip(rows, new, strict=True)]
            assert cache.get_mask_sizes(value, 0) == (len(rows[0]), 0)
            cache.update(states, -states, 0)
        elif name == "crop":
            cache.crop(value)
            rows = [row[: max(len(row) + value, 0)] for row in rows]
        elif name == "reorder" and cache.is_initialized:
            order = [(i * value) % len(rows) for i in range(len(rows))]
            cache.reorder_cache(torch.tensor(order))
            rows = [list(rows[i]) for i in order]
        elif name == "repeat" and cache.is_initialized and len(rows) < 8:
            cache.batch_repeat_interleave(value)
            rows = [list(row) for row in rows for _ in range(value)]
        elif name == "copy":
            cache = copy.deepcopy(cache)
        elif name == "reset":
            cache.reset()
            rows = [[], []]
        held = len(rows[0])
        assert cache.get_seq_length() == held and cache.positions() == list(range(held))
        if cache.is_initialized:
            assert (
                cache.layers[0].keys[:, 1, :, 2].tolist() == rows
                and (cache.layers[0].values == -cache.layers[0].keys).all()
            )
            assert cache.nbytes(used=True) == 2 * len(rows) * 2 * 3 * held * 8


def test_a_refused_first_update_leaves_no_layer_behind():
    cache = DynamicCache()
    for keys, values in ((torch.zeros(2, 3), torch.zeros(2, 3)), (distinct(2, 1, 1, 4), distinct(3, 1, 1, 4))):
        with pytest.raises(ValueError):
            cache.update(keys, values, 4)
        assert len(cache) == 0
    with pytest.raises(ValueError, match="config=model.config"):
        DynamicCache(config={})


def test_rows_may_be_a_slice_or_none_at_all():
    cache, states = filled(5, batch=3)
    cache.batch_select_indices(slice(1, 3))
    assert torch.equal(cache.layers[0].keys, states[0][0][1:])
    cache.batch_select_indices([])
    assert cache.layers[0].keys.shape[0] == 0


def test_what_can_not_be_held_together_is_refused_before_anything_changes():
    cache = DynamicCache()
    keys = torch.ones(1, 2, 3, 4)
    cache.update(keys, keys.to(torch.float8_e4m3fn), 0)
    for new, message in ((keys, "no common type"), (keys.numpy(), "must be a tensor"), (None, "must be a tensor")):
        with pytest.raises(ValueError, match=message):
            cache.update(keys, new, 0)
        assert cache.layers[0].keys.shape == cache.layers[0].values.shape == (1, 2, 3, 4)
