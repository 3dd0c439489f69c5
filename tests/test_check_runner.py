"""The machinery of the checks: learners' code can't end, hang or fool it, and what it says is the same each time."""

import sys
import textwrap
import time

import numpy as np
import pytest
import torch

from kvcourse.check.cost import CopyCounter
from kvcourse.check.runner import Stopped, run
from kvcourse.check.task import Case, Mistake, Unfinished, Wrong, choices, compare, task
from kvcourse.check.verdict import Verdict
from kvcourse.check.words import difference, same, words


def learner(source):
    """The function `answer` of a notebook with this source: globals of its own, as in a kernel."""
    names = {"__name__": "__main__"}
    exec(compile(textwrap.dedent(source), "cell", "exec"), names)
    return names["answer"]


def stopped(source, *args):
    answer = learner(source)
    with pytest.raises(Stopped) as caught:
        run(answer, answer, *args)
    return caught.value


def test_the_result_comes_back_and_tracing_is_as_before():
    seen = []
    before = sys.gettrace()
    answer = learner("def answer(x, y=1):\n    return x + y")
    assert run(answer, answer, 2, y=3) == 5
    assert sys.gettrace() is before
    assert stopped("def answer():\n    return missing").kind == "error"
    assert sys.gettrace() is before and not seen


@pytest.mark.parametrize(
    "body",
    [
        "while True: pass",
        "while True:\n        try:\n            x = 1 / 0\n        except Exception:\n            pass",
        "x = [i for i in iter(int, 1)]",
        "helper()",
    ],
)
def test_an_endless_loop_is_ended_soon(body):
    start = time.monotonic()
    stop = stopped(f"def helper():\n    while 1:\n        x = 1\ndef answer():\n    {body}")
    assert stop.kind == "endless" and "still running after " in stop.what
    assert time.monotonic() - start < 5


def test_a_loop_of_few_slow_steps_is_ended_by_the_clock(monkeypatch):
    monkeypatch.setattr("kvcourse.check.runner.CPU_SECONDS", 0.1)
    stop = stopped("import torch\ndef answer():\n    while True: torch.ones(99, 99) @ torch.ones(99, 99)")
    assert stop.kind == "endless" and "0.1 seconds" in stop.what
    monkeypatch.setattr("kvcourse.check.runner.WALL_SECONDS", 0.2)
    assert "0.2 seconds" in stopped("import time\ndef answer():\n    while True: time.sleep(0.002)").what


def test_a_long_answer_is_not_an_endless_one():
    counting = learner("def answer(n):\n    held = 0\n    while held < n:\n        held += 1\n    return held")
    assert run(counting, counting, 120_000) == 120_000
    answer = learner("def answer(n):\n    total = 0\n    for i in range(n):\n        total += i\n    return total")
    assert run(answer, answer, 5_000) == 12_497_500
    with pytest.raises(Stopped):
        run(answer, answer, 5_000, steps=10_000)


def test_the_steps_of_a_library_are_not_counted():
    answer = learner("import textwrap\ndef answer():\n    return textwrap.wrap('word ' * 9_000)")
    assert len(run(answer, answer, steps=500)) > 500


def test_an_error_names_the_learners_own_line():
    stop = stopped("import torch\ndef answer(x):\n    y = x\n    return torch.cat([x, y[0]])", torch.zeros(2, 3))
    assert stop.kind == "error"
    assert stop.where == "line 4 of your code"
    assert stop.what.startswith("RuntimeError: ")


def test_the_line_itself_is_quoted_where_the_kernel_keeps_it():
    def answer():
        return [][1]

    with pytest.raises(Stopped) as caught:
        run(answer, answer)
    assert "`return [][1]`" in str(caught.value)


@pytest.mark.parametrize("line", ["raise SystemExit", "exit()", "raise ValueError", "assert False", "answer()"])
def test_nothing_that_a_learner_raises_gets_out(line):
    assert stopped(f"def answer():\n    {line}").kind == "error"


def test_only_the_learners_own_not_implemented_counts_as_a_stub():
    assert stopped("def answer():\n    raise NotImplementedError").kind == "unfinished"
    assert stopped("import torch\ndef answer():\n    torch.nn.Module()(1)").kind == "error"
    of_torch = stopped("import torch\ndef answer():\n    packed = torch.zeros(1)\n    packed[0] |= 1")
    assert of_torch.kind == "error" and "NotImplementedError" in of_torch.what


def double(x):
    return 2 * x


def doubled(*numbers):
    def play(number):
        def body(answer, seen):
            seen["result"] = run(answer, answer, number)

        return body

    return [Case(f"number {number}", play(number)) for number in numbers]


def test_a_mistake_is_known_by_what_it_does_in_most_cases():
    square, plus_two = Mistake("squared", lambda x: x * x), Mistake("added", lambda x: x + 2)
    cases = doubled(2, 3, 5)
    compare(double, double, cases, [square, plus_two])
    for answer, likely in ((lambda x: x**2, "squared"), (lambda x: 2 + x, "added"), (lambda x: 4, "is not used")):
        with pytest.raises(Wrong) as caught:
            compare(answer, double, cases, [square, plus_two])
        assert likely in caught.value.lines["likely"]
        assert caught.value.lines["tested"] == "number 3"  # 2 + 2 = 2 * 2 = 2 ** 2
        assert caught.value.lines["expected"] == "result: 6"


def test_a_constant_of_nothing_and_a_result_in_place_of_the_function():
    for answer, likely in ((lambda x: 0, None), (lambda x: [], None), (4, "its result")):
        with pytest.raises(Wrong) as caught:
            compare(answer, double, doubled(2, 3))
        assert (likely or "") in caught.value.lines.get("likely", "") and bool(likely) == (
            "likely" in caught.value.lines
        )


def test_words_may_be_chosen_in_any_case():
    assert choices({"a": " Always"}, ["A"], ["always", "never"]) == {"A": "always"}
    with pytest.raises(Wrong, match="choose one of: always, never"):
        choices({"A": "perhaps"}, ["A"], ["always", "never"])
    with pytest.raises(Unfinished):
        choices({"B": "always"}, ["A"], ["always", "never"])


def test_an_unknown_mistake_gets_no_guess():
    with pytest.raises(Wrong) as caught:
        compare(lambda x: 7 * x + 1, double, doubled(2, 3), [Mistake("squared", lambda x: x * x)])
    assert caught.value.lines == {"tested": "number 2", "expected": "result: 4", "came": "15"}


def test_a_check_never_raises_whatever_it_meets(capsys):
    @task("99z", "whether nothing gets out")
    def check(answer):
        return {"length": len(answer)}

    from kvcourse.check import TASKS

    del TASKS["99z"]
    check(7)
    assert "could not read" in capsys.readouterr().out


def test_same_is_strict_about_kinds_and_lenient_about_containers():
    assert same(3, torch.tensor(3)) and same((1, 2), [1, 2]) and same(3, 3.0)
    assert not same(1, True) and not same(True, 1) and not same(0, None) and not same(3, "3")
    assert not same(torch.zeros(2), torch.zeros(2, 1)) and not same(torch.zeros(2), torch.zeros(2).double())
    assert same(1.0, 1.001, tolerance=0.01) and not same(1.0, 1.1, tolerance=0.01)
    assert same(torch.ones(2), torch.ones(2) * 1.001, 0.01) and not same(float("nan"), float("nan"))


def test_a_difference_is_shown_at_its_first_place():
    expected = torch.arange(24.0).view(1, 2, 3, 4)
    came = expected.clone()
    came[0, 1, 2, 3] = -1
    assert difference(expected, came) == ("23 at sequence 0, head 1, token 2, channel 3", "-1 there")
    assert difference(expected, expected[:, :1])[1] == words(expected[:, :1])
    assert words(1234567) == "1,234,567" and words(object()) == "an object of type object"
    other = {"batch": "sequence", "heads": "head", "head_dim": "row", "state": "column"}
    assert difference(expected, came, layout=other)[0] == "23 at sequence 0, head 1, row 2, column 3"
    assert words(expected, other) == "a tensor of shape (1, 2, 3, 4) = (batch, heads, head_dim, state)"
    assert words(np.ones(2)) == "a NumPy array of shape (2,), not a tensor" and not same(torch.ones(2), np.ones(2))
    assert "none of what was handed over" in words([1, "?"])


def test_copies_are_counted_and_views_and_fresh_room_are_not():
    x = torch.ones(4, 2)
    for expected, act in (
        (0, lambda: x.view(8)[2:]),
        (0, lambda: torch.zeros_like(x)),
        (8, lambda: x.clone()),
        (8, lambda: torch.cat([x, x.new_zeros(4, 2)])),
        (16, lambda: torch.cat([x, x])),
        (8, lambda: torch.nn.functional.pad(x, (0, 0, 0, 4))),
        (4, lambda: torch.empty(4, 2)[1:3].copy_(x[:2])),
        (6, lambda: x[:3].contiguous().clone()),
        (0, lambda: x.contiguous()),
    ):
        with CopyCounter() as counter:
            act()
        assert counter.elements == expected


def test_a_verdict_is_a_box_in_a_notebook_and_text_elsewhere(capsys):
    verdict = Verdict("02a", "wrong", (("came", "<b> & 3"), ("likely", "`dim`")))
    assert str(verdict) == "02a: not yet\n  came    <b> & 3\n  likely  `dim`"
    page = verdict._repr_html_()
    assert "&lt;b&gt; &amp; 3" in page and "#c62828" in page and "<code>dim</code>" in page
    verdict.show()
    assert capsys.readouterr().out == str(verdict) + "\n"
