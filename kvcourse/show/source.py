"""Show the code of the package in a lesson, from the file itself, so that the two can't drift apart."""

import ast
import inspect
import textwrap
from dataclasses import dataclass

MOST_LINES = 40


@dataclass(frozen=True, repr=False)
class Source:
    """A piece of source: highlighted in a notebook (a fenced block), plain text elsewhere."""

    text: str

    def _repr_markdown_(self) -> str:
        return f"```python\n{self.text}\n```"

    def __repr__(self) -> str:
        return self.text


def show_source(obj, docstring: bool = True) -> Source:
    """The source of a function, method, property or class, with a first line that says where it stands.

    docstring=False leaves the docstring out. More than 40 lines is a ValueError: a listing that long
    teaches nothing, so show a smaller part.
    """
    if isinstance(obj, property):
        obj = obj.fget
    obj = inspect.unwrap(obj)
    try:
        text = textwrap.dedent(inspect.getsource(obj)).rstrip()
    except (TypeError, OSError):
        raise ValueError(
            f"no Python source for {obj!r}; give a function, method, property or class written in Python"
        ) from None
    if not docstring:
        text = _without_docstring(text)
    where = getattr(obj, "__module__", None)
    lines = text.count("\n") + 1
    if lines > MOST_LINES:
        raise ValueError(
            f"{obj.__qualname__} has {lines} lines, a lesson shows at most {MOST_LINES}; show a part of it"
        )
    return Source(f"# {where}\n{text}" if where else text)


def _without_docstring(text: str) -> str:
    body = getattr(ast.parse(text).body[0], "body", [])
    if ast.get_docstring(ast.parse(text).body[0]) is None or len(body) < 2:
        return text  # none there, or it is all there is
    lines = text.split("\n")
    rest = lines[body[0].end_lineno :]
    while rest and not rest[0].strip():
        rest = rest[1:]
    return "\n".join(lines[: body[0].lineno - 1] + rest)
