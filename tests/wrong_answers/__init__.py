"""Answers as learners give them: for each task wrong ones, with the words that must be said, and right ones.

A file for each lesson, `lesson_NN.py`, with two dicts: WRONG, task -> [(answer, words), ...], and RIGHT, task ->
[answer, ...]. An answer in several parts, such as two functions, is a tuple. They are written as a learner would, not
taken from the checks. What no task may ever accept is in CONSTANTS.
"""

from importlib import import_module
from pathlib import Path

import torch


class SameAlways:
    """A layer that returns the same two tensors whatever it is given."""

    def update(self, keys, values):
        return torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2)


class Nothing:
    def update(self, keys, values):
        pass


CONSTANTS = [
    SameAlways,
    Nothing,
    SameAlways(),
    lambda *_: 0,
    lambda *_: None,
    lambda *_: True,
    0,
    1.5,
    True,
    "",
    [],
    {},
]
CONSTANTS += [
    lambda *_: float("nan"),
    print,
    None,
    ...,
    dict.fromkeys("ABCDEF", "right"),
    dict.fromkeys("ABCDEF", None),
    torch.zeros(2),
    object(),
]


def judge(check, answer):
    """The verdict on an answer; a tuple is an answer in several parts, each handed over by itself."""
    return check.verdict(*answer) if isinstance(answer, tuple) else check.verdict(answer)


def bank(name):
    """WRONG or RIGHT of all lessons, task -> entries."""
    files = sorted(Path(__file__).parent.glob("lesson_*.py"))
    merged = {}
    for file in files:
        merged |= getattr(import_module(f"{__name__}.{file.stem}"), name)
    return merged
