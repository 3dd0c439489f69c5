"""Feedback for the exercises: one function a task, `kv.check.task_02a(answer)`.

Each runs the learner's code and says what was tested, what was expected, what came, and which mistake that looks like.
It never raises and never hangs. `kv.check.task_02a.verdict(answer)` gives the same as an object, without printing.
"""

from .bytes_02 import FAULTS, FORMULAS, task_02c, task_02d
from .layers_02 import task_02a, task_02b
from .playing import cache_of, moved
from .task import TASKS
from .verdict import Verdict

__all__ = [
    "FAULTS",
    "FORMULAS",
    "TASKS",
    "Verdict",
    "cache_of",
    "moved",
    "task_02a",
    "task_02b",
    "task_02c",
    "task_02d",
]
