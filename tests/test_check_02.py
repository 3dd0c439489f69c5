"""Every check against the answers that learners give: wrong ones are named, right ones pass, nothing else does."""

import pytest
from wrong_answers import CONSTANTS, bank, judge
from wrong_answers.report import name_of

import kvcourse as kv

WRONG, RIGHT = bank("WRONG"), bank("RIGHT")
TASKS = sorted(kv.check.TASKS)


def entries(answers):
    return [
        pytest.param(task, entry, id=f"{task}-{number}-{name_of(entry[0] if isinstance(entry, tuple) else entry):.40}")
        for task in sorted(answers)
        for number, entry in enumerate(answers[task], 1)
    ]


@pytest.mark.parametrize(("task", "entry"), entries(WRONG))
def test_a_wrong_answer_is_told_what_is_wrong(task, entry):
    answer, words = entry
    verdict = judge(kv.check.TASKS[task], answer)
    assert verdict.state == "wrong"
    assert words in str(verdict)
    assert verdict["came"]


@pytest.mark.parametrize(("task", "answer"), entries(RIGHT))
def test_a_right_answer_passes_however_it_is_written(task, answer):
    verdict = judge(kv.check.TASKS[task], answer)
    assert verdict.passed, verdict


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("number", range(len(CONSTANTS)))
def test_a_constant_never_passes(task, number):
    assert not kv.check.TASKS[task].verdict(CONSTANTS[number]).passed


def test_each_task_has_at_least_four_wrong_answers_and_a_right_one():
    assert sorted(WRONG) == sorted(RIGHT) == TASKS
    assert all(len(answers) >= 4 for answers in WRONG.values())
    assert all(RIGHT.values())


@pytest.mark.parametrize("task", TASKS)
def test_the_first_line_says_what_is_about_to_be_tested(task, capsys):
    assert kv.check.TASKS[task](...) is None
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first == f"Task {task} tests {kv.check.TASKS[task].about}."
    assert second == f"{task}: not finished yet"
    assert getattr(kv.check, f"task_{task}") is kv.check.TASKS[task]


def test_the_real_model_reads_a_learners_layers(real):
    verdict = kv.check.task_02a.verdict(RIGHT["02a"][0], real[0])
    assert verdict.passed, verdict
    assert "30 layers of yours" in verdict["model"]


def test_copies_are_counted_to_the_token():
    assert kv.check.moved(RIGHT["02a"][0], 40) == 40 * 41 // 2 - 1 + 1  # 1 by clone, then 2, 3, ... 40
    assert kv.check.moved(RIGHT["02b"][0], 65) == 65 + (1 + 2 + 4 + 8 + 16 + 32 + 64)
