"""predict and reveal: fixed output without a guess, never a traceback for the reader."""

import pytest
import torch

from kvcourse import guesses as module
from kvcourse.guesses import predict, reveal

BELIEFS = {
    20: "only the new tokens pass through.",
    25: "each token passes through once.",
    100: "only the prompt is read again.",
    290: "every step reads the text from the start.",
}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(module, "_questions", {})
    monkeypatch.setattr(module, "_guesses", {})


def said(capsys, call, *args, **kwargs):
    assert call(*args, **kwargs) is None  # nothing for a notebook to display besides the text
    return capsys.readouterr().out


def test_no_guess_prints_the_same_lines_each_time(capsys):
    asked = said(capsys, predict, "01-a", options=BELIEFS)
    told = said(capsys, reveal, "01-a", 290)
    assert (
        asked == "No guess yet. Options: 20, 25, 100, 290.\nPut one of them in place of None and run this cell again.\n"
    )
    assert told == (
        "Measured: 290.\nNo guess this time. The idea behind 290: every step reads the text from the start.\n"
    )
    assert said(capsys, predict, "01-a", options=BELIEFS) == asked
    assert said(capsys, reveal, "01-a", 290) == told


@pytest.mark.parametrize("guess", [20, 25, 100])
def test_a_wrong_guess_is_told_the_belief_behind_it_and_no_other(capsys, guess):
    predict("01-a", guess, BELIEFS)
    capsys.readouterr()
    told = said(capsys, reveal, "01-a", 290)
    assert told.splitlines()[0] == "Measured: 290."
    assert f"Your guess: {guess}. Not this time" in told and "Right" not in told
    assert [belief for belief in BELIEFS.values() if belief in told] == [BELIEFS[guess]]
    assert said(capsys, reveal, "01-a", 290) == told


def test_a_right_guess(capsys):
    assert "Your guess: 290." in said(capsys, predict, "01-a", 290, BELIEFS)
    told = said(capsys, reveal, "01-a", 290)
    assert "Your guess: 290. Right." in told and BELIEFS[290] in told


def test_a_guess_that_is_no_option_lists_them_and_does_not_count(capsys):
    predict("01-a", 100, BELIEFS)
    capsys.readouterr()
    said_no = said(capsys, predict, "01-a", 7, BELIEFS)
    assert "7 is none of the options" in said_no and "20, 25, 100, 290" in said_no
    assert "No guess this time" in said(capsys, reveal, "01-a", 290)  # the 100 of before is gone too


def test_taking_a_guess_back_gives_the_fixed_output_again(capsys):
    predict("01-a", options=BELIEFS)
    without = capsys.readouterr().out
    predict("01-a", 20, BELIEFS)
    capsys.readouterr()
    assert said(capsys, predict, "01-a", None, BELIEFS) == without


def test_a_value_that_is_no_option_is_said_so(capsys):
    predict("01-a", 20, BELIEFS)
    capsys.readouterr()
    told = said(capsys, reveal, "01-a", 291)
    assert "Measured: 291, which is none of the options." in told and "Not this time" in told
    predict("01-b", None, BELIEFS)
    capsys.readouterr()
    assert "none of the options" in said(capsys, reveal, "01-b", 291)


def test_reveal_without_the_question_is_one_kind_sentence(capsys):
    told = said(capsys, reveal, "never-asked", 1024)
    assert (
        told == "Measured: 1,024.\nThe question for it stands in a cell above: run that one first and make a guess.\n"
    )


def test_questions_do_not_mix(capsys):
    predict("a", 20, BELIEFS)
    predict("b", 25, BELIEFS)
    capsys.readouterr()
    assert "Your guess: 20" in said(capsys, reveal, "a", 290)
    assert "Your guess: 25" in said(capsys, reveal, "b", 290)


@pytest.mark.parametrize(
    "given", [1024, 1024.0, "1024", "1,024", " 1_024 ", torch.tensor(1024), torch.tensor([1024.0])]
)
def test_the_same_number_in_other_clothes(capsys, given):
    options = {1: "one.", 16: "sixteen.", 1024: "a token each."}
    predict("k", given, options)
    assert "Your guess: 1,024." in capsys.readouterr().out
    assert "Your guess: 1,024. Right. The idea behind 1,024: a token each." in said(capsys, reveal, "k", given)


def test_text_options_ignore_case_and_spaces_and_true_is_not_one(capsys):
    options = {"All layers": "it all changes.", "layer 0": "only one.", 1: "once."}
    predict("k", "  all  LAYERS", options)
    assert "Your guess: All layers." in capsys.readouterr().out
    options = {"yes": "a.", 0: "b.", 1: "c."}
    predict("k", True, options)
    assert "True is none of the options" in capsys.readouterr().out
    assert "Measured: True, which is none" in said(capsys, reveal, "k", True)


def test_numbers_are_written_for_readers(capsys):
    options = {0.5: "half.", 1234567: "many.", "a": "text."}
    predict("k", None, options)
    assert "Options: 0.5, 1234567, 'a'." in capsys.readouterr().out
    assert "Measured: 0.3333, which" in said(capsys, reveal, "k", 1 / 3)


@pytest.mark.parametrize(
    "options", [None, {}, {1: "a.", 2: "b."}, dict.fromkeys(range(5), "x."), {1: "a.", 2: "b.", 3: " "}, [1, 2, 3]]
)
def test_a_question_without_three_or_four_beliefs_is_refused(options):
    with pytest.raises(ValueError, match="question 'k'"):
        predict("k", None, options)
    assert module._questions == {}
