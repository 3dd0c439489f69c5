"""Feedback for the exercises: one function a task, `kv.check.task_02a(answer)`.

Each runs the learner's code and says what was tested, what was expected, what came, and which mistake that looks like.
It never raises and never hangs. `kv.check.task_02a.verdict(answer)` gives the same as an object, without printing.

The tasks of lesson NN are in the files whose names end in _NN; each is found there and needs no entry here.
"""

import pkgutil
import re
from importlib import import_module

from .bytes_02 import FAULTS, FORMULAS
from .caching_01 import ANSWERS
from .clocks_03 import FakeClock
from .logs_06 import CAUSES, LOGS
from .order_07 import PARTS
from .playing import cache_of, moved
from .small_models_01 import FOUR, OneHead
from .task import TASKS
from .verdict import Verdict
from .windows_05 import CROPS

for _file in pkgutil.iter_modules(__path__):
    if re.search(r"_\d\d$", _file.name):
        import_module(f"{__name__}.{_file.name}")
globals().update({f"task_{_key}": _check for _key, _check in TASKS.items()})

__all__ = ["ANSWERS", "FAULTS", "FORMULAS", "FOUR", "FakeClock", "OneHead", "TASKS", "Verdict", "cache_of", "moved"]
__all__ += ["CAUSES", "CROPS", "LOGS", "PARTS"]
__all__ += [f"task_{_key}" for _key in TASKS]
