"""What the checks of several lessons stand on: small models, positions read off numbers, choices; against oracles."""

import pytest
import torch
from wrong_answers.lesson_04 import layer, mask, window

import kvcourse as kv
from kvcourse.check.clocks_03 import FakeClock
from kvcourse.check.masks_04 import live
from kvcourse.check.playing import cache_of, in_model, states, tiny
from kvcourse.check.positions import check_held, where
from kvcourse.check.small_models_01 import FOUR
from kvcourse.check.task import Case, Unfinished, Wrong, choices, compare
from kvcourse.check.words import Phrase, difference, words
from kvcourse.check.writing_01 import kept, nothing_kept
from kvcourse.models.twins import with_windows


@pytest.mark.parametrize("prompt", [[2], [7, 4, 11, 11, 14], list(range(26))])
def test_the_model_of_one_head_writes_the_same_with_and_without_kept_keys(prompt):
    cached, plain = kv.check.OneHead(), kv.check.OneHead()
    text = kept(cached, prompt, 20)
    assert text == nothing_kept(plain, prompt, 20)
    assert cached.positions == len(prompt) + 19 and plain.positions == sum(len(prompt) + step for step in range(20))
    assert len(set(text)) > 5  # a loop of one letter would hide mistakes


def test_it_refuses_lists_that_do_not_fit():
    model = kv.check.OneHead()
    q, k, v = model.read([1, 2, 3], 0)
    with pytest.raises(ValueError, match="3 keys and 2 values"):
        model.next_token(q[-1], list(k), list(v[:2]))
    with pytest.raises(ValueError, match="give one query"):
        model.next_token(q, list(k), list(v))


def test_the_four_models_differ_in_what_they_show_alone():
    text = [3, 1, 4, 1, 5, 9]
    assert all(torch.equal(model.keys(text)[0], FOUR["causal"].keys(text)[0]) for model in FOUR.values())
    assert FOUR["encoder"].mask(5).all() and FOUR["causal"].mask(5).equal(torch.ones(5, 5).tril().bool())
    assert FOUR["prefix-LM"].mask(6).sum() == 16 + 5 + 6 and FOUR["window"].mask(6).sum(1).tolist() == [
        1,
        2,
        3,
        3,
        3,
        3,
    ]


def test_positions_are_read_off_the_numbers():
    given = states(2, 3, 6, 4)[0]
    assert where(given[:, :, [4, 5, 0]], given) == [4, 5, 0]
    assert where(torch.cat([given[:, :, 2:3], -given[:, :, :1]], 2), given) == [2, "?"]
    assert where(given[:, :1], given) == "a tensor of shape (2, 1, 6, 4) = (batch, kv_heads, kv_len, head_dim)"


def test_a_window_mask_is_what_a_windowed_model_does():
    model = tiny(window=4)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model(torch.arange(4, 16)[None], use_cache=False, output_attentions=True).attentions[0]
    assert mask(torch.arange(12), 12, 0, 4).equal(weights[0, 0] > 0)
    assert [live(position) for position in (0, 7, 8, 17)] == [[0], list(range(8)), [8], [16, 17]]


def test_a_windowed_layer_goes_where_the_window_is():
    mixed = with_windows(kv.load("tiny")[0], ["sliding_attention", "full_attention"], 4)
    cache = cache_of(layer(window), mixed)
    assert [type(one).__name__ for one in cache.layers] == ["Adapter", "DynamicLayer"]
    assert cache.layers[0].layer.window == 4
    assert in_model(layer(window), mixed).startswith("1 layers of yours")


def test_what_is_held_is_counted_by_the_storage():
    check_held(layer(window), 8, [4])
    with pytest.raises(Wrong) as caught:
        check_held(layer(window), 2, [4])
    assert caught.value.lines["came"] == "room for 3"


def test_a_fake_clock_moves_with_the_steps_alone():
    clock = FakeClock()
    tokens = clock.tokens([2.0, 0.5])
    start = clock()
    assert clock() == start and next(tokens) == 0 and clock() == start + 2 and list(tokens) == [1]
    assert clock() == start + 2.5


def test_choices_names_what_is_missing_or_unknown():
    assert choices({"a": "x", "b": "y"}, ["a", "b"], ("x", "y")) == {"a": "x", "b": "y"}
    with pytest.raises(Unfinished, match="a word for b, one of: x, y"):
        choices({"a": "x", "b": ...}, ["a", "b"], ("x", "y"))
    for answer in ({"a": "z"}, {"a": ["x"]}, {"a": None}, 3):
        with pytest.raises(Wrong):
            choices(answer, ["a"], ("x", "y"))


def test_an_answer_of_another_kind_is_shown_as_it_is():
    def play(answer, seen):
        seen["mask" if isinstance(answer, str) else "rows"] = Phrase("no mask") if isinstance(answer, str) else answer

    with pytest.raises(Wrong) as caught:
        compare("text", [1], [Case("one", play), Case("two", play)])
    assert caught.value.lines["came"] == "no mask" and "not used" not in str(caught.value.lines)


def test_differences_within_the_tolerance_are_passed_over():
    expected, came = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.000001, 3.0]])
    assert difference(expected, came, 1e-3) == ("2 at [0, 1]", "3 there")
    assert words(list(range(30))) == "[0, 1, 2, 3, 4, 5, 6, 7, ... 29], 30 in all"
