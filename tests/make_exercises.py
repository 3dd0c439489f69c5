"""Make exercises/ from solutions/: the same notebooks without the answers.

    python tests/make_exercises.py            write them
    python tests/make_exercises.py --check    exit code 1 if one differs from what would be written

In a code cell the lines from `### BEGIN SOLUTION` to `### END SOLUTION` become a stub: inside a function
`raise NotImplementedError`, which every check greets kindly; at the left margin only a comment, because there the cell
itself would stop. (nbgrader knows the same markers.) Cells tagged "solution-only" are dropped, outputs are cleared.
"""

import argparse
import sys
from pathlib import Path

import nbformat

from notebooks import ROOT, normalise, text_of

BEGIN, END, DROPPED = "### BEGIN SOLUTION", "### END SOLUTION", "solution-only"
STUB = ("# YOUR CODE HERE", "raise NotImplementedError()")


def stubbed(source):
    """A cell's source with a stub in the place of each solution. ValueError for markers that don't pair."""
    lines, indent = [], None
    for number, line in enumerate(source.split("\n"), 1):
        if line.strip() == BEGIN and indent is None:
            indent = line[: len(line) - len(line.lstrip())]
            lines += [indent + part for part in (STUB if indent else STUB[:1])]
        elif line.strip() == END and indent is not None:
            indent = None
        elif line.strip() in (BEGIN, END):
            raise ValueError(f"line {number}, {line.strip()!r}: markers come in pairs, BEGIN before END")
        elif indent is None:
            lines.append(line)
    if indent is not None:
        raise ValueError(f"{BEGIN} without {END}")
    return "\n".join(lines)


def exercise(solution):
    """The notebook for learners, from the one with the answers."""
    notebook = nbformat.from_dict(solution)
    notebook.cells = [cell for cell in notebook.cells if DROPPED not in cell.metadata.get("tags", ())]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.source, cell.outputs, cell.execution_count = stubbed(cell.source), [], None
    return normalise(notebook)


def expected(root=ROOT):
    """path of each exercise -> the text that belongs there."""
    sources = sorted((root / "solutions").glob("*.ipynb"))
    return {
        root / "exercises" / source.name: text_of(exercise(nbformat.read(source, as_version=4))) for source in sources
    }


def differing(root=ROOT):
    """Paths of exercises that are missing, differ, or have no solution any more."""
    wanted = expected(root)
    wrong = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    return wrong + [path for path in sorted((root / "exercises").glob("*.ipynb")) if path not in wanted]


def main(argv=None, root=ROOT):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args(argv)
    if options.check:
        wrong = differing(root)
        for path in wrong:
            print(f"{path.relative_to(root).as_posix()} is not what python tests/make_exercises.py makes")
        return 1 if wrong else 0
    for path, text in expected(root).items():
        path.parent.mkdir(exist_ok=True)
        Path(path).write_text(text, encoding="utf-8", newline="\n")
        print(f"wrote {path.relative_to(root).as_posix()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
