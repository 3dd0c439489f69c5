"""How a task is written down: cases, a reference, known mistakes; all the rest is done here.

A task is a function that plays the learner's answer and raises `Wrong` at the first thing that is not right, or
returns what is worth saying when all is right. `task` turns it into a check that never raises.

Most tasks are a list of cases. A case plays an answer and writes down what it sees, by name. The same case played with
the reference tells what should have been seen; played with each known mistake it tells which mistake this looks like.
So a diagnosis never looks at the text of the answer, only at what it does.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

from ..logbook import note
from .runner import Stopped
from .verdict import Verdict
from .words import LAYOUT, Phrase, difference, same, words

TASKS = {}  # "02a" -> its check


class Wrong(Exception):
    """The answer is not right yet. Keywords: tested, expected, came, likely; those that are empty are left out."""

    def __init__(self, **lines):
        super().__init__(lines.get("likely") or lines.get("came"))
        self.lines = {label: sentence for label, sentence in lines.items() if sentence}


class Unfinished(Exception):
    """The answer was not begun; the message says what is missing."""


@dataclass(frozen=True)
class Case:
    """One thing to try. `play(answer, seen)` puts what it sees into the dict `seen`, label -> value."""

    what: str
    play: Callable
    explain: Callable | None = None  # (label, expected, came) -> the likely mistake in words, or None


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that people give, and the sentence that helps them."""

    likely: str
    answer: object


def task(key, about):
    """Make a check of `body(answer, ...) -> {label: sentence}`. `about`: what is about to be tested, in one line."""

    def wrap(body):
        def verdict(answer, *args, **kwargs):
            """The check's result, without printing."""
            try:
                if answer is ...:
                    raise Unfinished("put your answer in place of the dots, then run the cell again")
                if answer is None:
                    raise Unfinished("None came. Hand over your answer; a function or class itself, without calling it")
                return Verdict(key, "passed", tuple(body(answer, *args, **kwargs).items()))
            except Unfinished as missing:
                return Verdict(key, "unfinished", (("to do", str(missing)),))
            except Stopped as stop:
                return _stopped(key, stop)
            except Wrong as wrong:
                return Verdict(key, "wrong", tuple(wrong.lines.items()))
            except Exception as error:  # the check's own code stumbled over what the answer handed it
                came = f"something that the check could not read ({type(error).__name__}: {error})"
                return Verdict(key, "wrong", (("came", came), ("likely", "compare the kind of answer with the card")))

        @functools.wraps(body)
        def check(answer, *args, **kwargs):
            print(f"Task {key} tests {about}.", flush=True)
            result = verdict(answer, *args, **kwargs)
            result.show()
            if result.passed:
                note("tasks", key)

        check.key, check.about, check.verdict = key, about, verdict
        TASKS[key] = check
        return check

    return wrap


def choices(answer, names, allowed):
    """`answer`, a dict with one of the words `allowed` for each of `names`; Unfinished or Wrong where it is not.

    Capital letters and blanks around a word do not matter; what is returned is spelled as in `names` and `allowed`.
    """
    if not isinstance(answer, dict):
        example = f'{{"{names[0]}": "{allowed[0]}", ...}}'
        raise Wrong(expected=f"a dict such as {example}", came=f"an object of type {type(answer).__name__}")
    spelled = {_loose(word): word for word in (*names, *allowed)}
    answer = {spelled.get(_loose(name), name): word for name, word in answer.items()}
    missing = [str(name) for name in names if answer.get(name, ...) is ...]
    if missing:
        raise Unfinished(f"a word for {', '.join(missing)}, one of: {', '.join(allowed)}")
    chosen = {name: spelled.get(_loose(answer[name])) for name in names}
    for name, word in chosen.items():
        if word not in list(allowed):
            raise Wrong(tested=str(name), came=words(answer[name]), likely=f"choose one of: {', '.join(allowed)}")
    return chosen


def _loose(word):
    return str(word).strip().casefold()


def compare(answer, reference, cases, mistakes=(), tolerance=0.0, layout=LAYOUT):
    """Play every case with the answer and with the reference; raise Wrong at the first difference.

    `layout`: how the axes of the tensors are called, see `words.difference`."""
    for case in cases:
        expected, came = observe(case, reference), observe(case, answer)
        label = next((name for name in expected if not same(expected[name], came.get(name), tolerance)), None)
        if label is None:
            continue
        if label not in came and STOP not in came:  # it returned something else than was asked for
            label = next((name for name in came if name not in expected), label)
            expected.setdefault(label, Phrase("what the card asks for")), came.setdefault(label, Phrase("nothing"))
        if label in came:
            want, got = difference(expected[label], came[label], tolerance, layout)
            likely = case.explain and case.explain(label, expected[label], came[label])
            likely = likely or diagnose(answer, reference, cases, case, label, mistakes, tolerance)
            raise Wrong(tested=case.what, expected=f"{label}: {want}", came=got, likely=likely)
        stop = came[STOP]
        if stop.kind == "unfinished":
            raise stop
        likely = (
            None if stop.kind == "endless" else diagnose(answer, reference, cases, case, label, mistakes, tolerance)
        )
        if not stop.where and "not callable" in stop.what:
            likely = "hand the function itself to the check, not its result"
        want = f"{label}: {words(expected[label], layout)}"
        raise Wrong(tested=case.what, expected=want, came=str(stop), likely=likely)


STOP = "where it stopped"


def observe(case, answer):
    """What a case sees of an answer: label -> value, and under STOP the Stopped that ended it early, if one did."""
    seen = {}
    try:
        case.play(answer, seen)
    except Stopped as stop:
        seen[STOP] = stop
    return seen


def diagnose(answer, reference, cases, case, label, mistakes, tolerance=0.0):
    """What a difference under `label` of `case` looks like, in words; None when it looks like nothing known.

    The known mistake that does the same in this case up to `label`; among several the one that does the same in the
    most cases.
    """
    came = {other.what: observe(other, answer) for other in cases}
    if came[case.what].get(label, ...) is None:
        return "nothing was returned: is the `return` missing?"
    a_value = label in came[case.what] and not isinstance(came[case.what][label], Phrase)
    if a_value and _constant(came) and len({str(observe(other, reference)) for other in cases}) > 1:
        return "every case gets the same answer: what is handed over is not used"
    best, likely = 0, None
    for mistake in mistakes:
        seen = {other.what: observe(other, mistake.answer) for other in cases}
        if _alike(came[case.what], seen[case.what], label, tolerance):
            agreeing = sum(_alike(came[what], seen[what], None, tolerance) for what in came)
            if likely is None or agreeing > best:
                best, likely = agreeing, mistake.likely
    return likely


def _constant(came):
    """Whether every case saw the same, and something: nothing at all (0, an empty list) has other causes."""
    one, *rest = (list(seen.values()) for seen in came.values())
    empty = all(isinstance(value, (int, float, list, tuple, str)) and not value for value in one)
    return bool(rest) and not empty and all(same(one, other) for other in rest)


def _alike(came, seen, label, tolerance):
    """Whether two observations agree up to `label` (None: to the end), or end there with the same error."""
    for name, value in came.items():
        if name == STOP:
            return STOP in seen and seen[STOP].what == value.what
        if name not in seen or not same(value, seen[name], tolerance):
            return False
        if name == label:
            return True
    return STOP not in seen


def _stopped(key, stop):
    if stop.kind == "unfinished":
        place = f" ({stop.where})" if stop.where else ""
        return Verdict(key, "unfinished", (("to do", f"write your code in place of NotImplementedError{place}"),))
    return Verdict(key, "wrong", (("came", str(stop)),))
