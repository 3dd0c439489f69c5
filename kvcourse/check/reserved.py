"""A task that builds a function of the package is not solved by calling it."""

import sys
from contextlib import contextmanager
from importlib import import_module


class Reserved(Exception):
    """The answer called what it should build."""


@contextmanager
def reserved(**modules):
    """Inside, the package's own functions and classes say that they are the task: `reserved(common_prefix="prefix")`.

    Keywords: public name -> the module of the package that defines it.
    """
    package, undo = sys.modules[__package__.rpartition(".")[0]], []
    for name, module in modules.items():
        original = getattr(import_module(f"{package.__name__}.{module}"), name)
        for place in (package, sys.modules[f"{package.__name__}.{module}"]):
            setattr(place, name, _refusing(name))
            undo.append((place, name, original))
    try:
        yield
    finally:
        for place, name, original in undo:
            setattr(place, name, original)


def _refusing(name):
    def refuse(*args, **kwargs):
        raise Reserved(f"{name} of the package does what this task builds; write it with lines of your own")

    return refuse
