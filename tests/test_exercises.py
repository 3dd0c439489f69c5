"""Exercises: made from the solutions, stopping kindly; and the solutions pass their own checks."""

import nbformat
import pytest
from make_exercises import BEGIN, END, ROOT, differing, main, stubbed

import kvcourse as kv

EXERCISES = sorted((ROOT / "exercises").glob("*.ipynb"))
SOLUTIONS = sorted((ROOT / "solutions").glob("*.ipynb"))


def tasks_of(notebook):
    """Numbers of the tasks whose check a notebook calls."""
    source = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    return [key for key in sorted(kv.check.TASKS) if f"kv.check.task_{key}(" in source]


def run_all(path, monkeypatch, capsys):
    """Run all code cells of a notebook here, with the tiny model in the place of the real one; what they printed."""
    tiny = kv.load("tiny")
    monkeypatch.setitem(vars(kv), "load", lambda *_, **__: tiny)
    capsys.readouterr()
    names = {"__name__": "__main__"}
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            exec(compile(cell.source, path.name, "exec"), names)
    return capsys.readouterr().out.splitlines()


def test_there_are_exercises():
    assert EXERCISES and [path.name for path in EXERCISES] == [path.name for path in SOLUTIONS]


@pytest.mark.parametrize("path", EXERCISES, ids=lambda path: path.name)
def test_every_task_of_an_untouched_exercise_stops_kindly(path, monkeypatch, capsys):
    tasks = tasks_of(nbformat.read(path, as_version=4))
    said = run_all(path, monkeypatch, capsys)
    assert tasks and tasks[0].startswith(path.name[:2])
    assert [line for line in said if line.endswith(": not finished yet")] == [
        f"{key}: not finished yet" for key in tasks
    ]


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.name)
def test_every_solution_passes(path, monkeypatch, capsys):
    tasks = tasks_of(nbformat.read(path, as_version=4))
    said = run_all(path, monkeypatch, capsys)
    assert [line for line in said if line.endswith(": passed")] == [f"{key}: passed" for key in tasks]


def test_exercises_are_what_the_solutions_make():
    assert differing() == []


def test_a_stub_takes_the_place_of_the_answer():
    source = f"def f():\n    {BEGIN}\n    x = 1\n    return x\n    {END}\n\n\nf()\n{BEGIN}\ny = 2\n{END}"
    wanted = "def f():\n    # YOUR CODE HERE\n    raise NotImplementedError()\n\n\nf()\n# YOUR CODE HERE"
    assert stubbed(source) == wanted


@pytest.mark.parametrize("source", [BEGIN, END, f"{BEGIN}\n{BEGIN}\n{END}", f"{END}\n{BEGIN}"])
def test_markers_come_in_pairs(source):
    with pytest.raises(ValueError, match="BEGIN"):
        stubbed(source)


def test_check_mode_sees_a_changed_a_missing_and_a_stray_exercise(tmp_path, capsys):
    (tmp_path / "solutions").mkdir()
    solution = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(f"{BEGIN}\n1\n{END}", id="a"),
            nbformat.v4.new_markdown_cell("why", id="b", metadata={"tags": ["solution-only"]}),
        ]
    )
    nbformat.write(solution, tmp_path / "solutions" / "01_x.ipynb")
    assert main(["--check"], tmp_path) == 1
    assert main([], tmp_path) == 0 and main(["--check"], tmp_path) == 0
    made = tmp_path / "exercises" / "01_x.ipynb"
    assert "why" not in made.read_text()
    made.write_text(made.read_text().replace("YOUR", "MY"))
    assert main(["--check"], tmp_path) == 1
    assert main([], tmp_path) == 0
    made.with_name("02_y.ipynb").write_text(made.read_text())
    assert main(["--check"], tmp_path) == 1
    assert "exercises/02_y.ipynb" in capsys.readouterr().out
