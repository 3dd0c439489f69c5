"""Making an object of a learner's class, whatever its methods are called; and the toy models to put it into."""

import functools

from ..models.toys import load_toy
from .runner import run
from .task import Wrong
from .words import words


def object_of(answer, *methods, arguments=()):
    """An object of the class `answer`, which must have these methods; `arguments` go to its constructor."""
    wanted = " and ".join(f"`{name}`" for name in methods)
    if not isinstance(answer, type):
        raise Wrong(
            expected=f"a class with {wanted}",
            came=words(answer),
            likely="hand the class itself to the check, not an object of it and not a result",
        )
    missing = [name for name in methods if not callable(getattr(answer, name, None))]
    if missing:
        raise Wrong(expected=f"a class with {wanted}", came=f"the class {answer.__name__} without `{missing[0]}`")
    return run(answer, answer, *arguments)


@functools.cache
def toy(name):
    """(model, tokenizer) of a toy in float32, so that rounding stays far below what a mistake does."""
    model, tokenizer = load_toy(name)
    return model.float().eval(), tokenizer
