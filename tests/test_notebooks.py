"""House style of the notebooks: executed, quiet, short cells, a sentence between them, links that lead somewhere."""

import ast
import json
import re
import statistics

import nbformat
import pytest

from notebooks import ROOT

LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SOLUTIONS = sorted((ROOT / "solutions").glob("*.ipynb"))
EXERCISES = sorted((ROOT / "exercises").glob("*.ipynb"))
IGNORED = "nbval-ignore-output"


def each(*groups):
    """A test runs once for each notebook of these groups; a folder without notebooks fails instead of being skipped."""
    paths = [path for group in groups for path in group]
    return pytest.mark.parametrize("path", paths, ids=lambda path: f"{path.parent.name}/{path.stem}")


def cells(path, kind=None):
    """(number, cell), counted from 1; all, or the "code" or "markdown" cells alone."""
    found = nbformat.read(path, as_version=4).cells
    return [(number, cell) for number, cell in enumerate(found, 1) if kind in (None, cell.cell_type)]


def tags(cell):
    return cell.metadata.get("tags", [])


def texts(path):
    """(cell number, text) of all that a reader could see: sources, and outputs that are text."""
    for number, cell in cells(path):
        yield number, cell.source
        for output in cell.get("outputs", ()):
            yield number, output.get("text", "")
            yield from ((number, str(data)) for kind, data in output.get("data", {}).items() if "image/png" not in kind)


def test_there_are_notebooks_of_all_three_kinds():
    assert LESSONS and SOLUTIONS and EXERCISES


@each(LESSONS, SOLUTIONS, EXERCISES)
def test_the_file_is_valid_small_and_in_its_normal_form(path):
    text = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size < 2_000_000
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert set(notebook.metadata) == {"kernelspec", "language_info"} and notebook.metadata.kernelspec.name == "python3"
    assert text == json.dumps(json.loads(text), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


@each(LESSONS, SOLUTIONS)
def test_every_code_cell_was_executed_in_order_and_quietly(path):
    code = cells(path, "code")
    assert [cell.execution_count for _, cell in code] == list(range(1, len(code) + 1))
    for number, cell in code:
        for output in cell.outputs:
            assert output.output_type != "error" and output.get("name") != "stderr", f"cell {number}"


@each(EXERCISES)
def test_exercises_carry_no_outputs(path):
    assert all(not cell.outputs and cell.execution_count is None for _, cell in cells(path, "code"))


PLACES = re.compile(r"(?<![\w.])/(home|root|tmp|Users|private|mnt|work)/|\b[A-Z]:\\|ipykernel_\d")
HOSTS = re.compile(r"pypi\.org|pythonhosted\.org|anaconda\.(org|com)|npmjs\.(org|com)|--(extra-)?index-url", re.I)


@each(LESSONS, SOLUTIONS, EXERCISES)
def test_nothing_tells_of_a_machine_or_a_package_index(path):
    for number, text in texts(path):
        for pattern in (PLACES, HOSTS):
            found = pattern.search(text)
            assert not found, f"cell {number}: {found.group()}"


@each(LESSONS, SOLUTIONS)
def test_code_cells_are_short(path):
    lengths = {number: len(cell.source.splitlines()) for number, cell in cells(path, "code")}
    assert not {number: length for number, length in lengths.items() if length > 25}
    assert path in SOLUTIONS or statistics.median(lengths.values()) <= 7


def prose(markdown):
    """The visible text, then each folded part: what a reader takes in at one go. Tables and fenced code don't count."""
    text = re.sub(r"^```.*?^```", "", markdown, flags=re.S | re.M)
    text = re.sub(r"<pre>.*?</pre>", "", text, flags=re.S)
    text = re.sub(r"^\|.*$", "", text, flags=re.M)
    folded = re.findall(r"<details>.*?</details>", text, flags=re.S)
    return [re.sub(r"<details>.*?</details>", "", text, flags=re.S), *folded]


def count_words(text):
    return len(re.sub(r"</?\w+[^>]*>|[*#`]+", " ", text).split())


@each(LESSONS, SOLUTIONS)
def test_prose_is_short(path):
    for number, cell in cells(path, "markdown"):
        for part in prose(cell.source):
            assert count_words(part) <= (200 if number == 1 else 150), f"cell {number}: {count_words(part)} words"


@each(LESSONS, SOLUTIONS, EXERCISES)
def test_between_two_code_cells_stands_a_sentence(path):
    kinds = [cell.cell_type for _, cell in cells(path)]
    assert kinds[0] == "markdown"
    together = [
        number for number, pair in enumerate(zip(kinds, kinds[1:], strict=False), 1) if pair == ("code", "code")
    ]
    assert not together, f"cells {together} are followed by another code cell"
    assert all(re.search(r"\w", cell.source) for _, cell in cells(path))


@each(LESSONS)
def test_a_lesson_has_a_figure(path):
    images = [
        output for _, cell in cells(path, "code") for output in cell.outputs if "image/png" in output.get("data", {})
    ]
    assert images


@each(LESSONS, SOLUTIONS, EXERCISES)
def test_imports_stand_in_the_set_up_cell_alone(path):
    (first, setup), *others = cells(path, "code")
    assert "setup" in tags(setup), f"cell {first}, the first code cell, is to be tagged setup"
    for number, cell in others:
        code = "\n".join(line for line in cell.source.splitlines() if not line.lstrip().startswith(("%", "!")))
        found = [node for node in ast.walk(ast.parse(code)) if isinstance(node, (ast.Import, ast.ImportFrom))]
        assert not found, f"cell {number}"


@each(LESSONS)
def test_the_header_says_what_where_and_how_long(path):
    lessons = [lesson.name for lesson in LESSONS]
    place, header = lessons.index(path.name), cells(path)[0][1].source
    rows = dict(re.findall(r"^\| *([A-Z]\w+) *\| *(.+?) *\|$", header, flags=re.M))
    assert header.startswith(f"# {path.name[:2]} · ")
    goals = re.search(r"\*\*You will be able to\*\*\n\n?((?:[-*] .+\n)+)", header)
    assert goals and len(re.findall(r"^[-*] \*\w+\*", goals.group(1), flags=re.M)) == 3, (
        "three goals, each with a *verb*"
    )
    assert {"Minutes", "Track", "Needs", "Assumed", "Mirrors"} <= set(rows)
    assert re.fullmatch(r"\d+", rows["Minutes"]) and rows["Track"] in ("core", "speed", "memory", "models")
    for name, neighbour in (("Previous", place - 1), ("Next", place + 1)):
        if 0 <= neighbour < len(lessons):
            assert f"]({lessons[neighbour]})" in rows.get(name, ""), f"{name} is {lessons[neighbour]}"
        else:
            assert name not in rows or "(coming)" in rows[name]
    assert not (ROOT / "exercises" / path.name).exists() or f"](../exercises/{path.name})" in header


@each(SOLUTIONS)
def test_an_exercise_says_what_it_trains_and_how_long(path):
    header = cells(path)[0][1].source
    assert header.startswith(f"# {path.name[:2]} · ")
    for link in (f"](../notebooks/{path.name})", f"](../solutions/{path.name})"):
        assert link in header
    tasks = [card_minutes for _, cell in cells(path, "markdown") for card_minutes in re.findall(CARD, cell.source)]
    assert minutes(path) == sum(map(int, tasks)), "the minutes of an exercise are those of its tasks"


def minutes(path):
    return int(re.search(r"^\| Minutes \| (\d+) \|$", cells(path)[0][1].source, flags=re.M).group(1))


def test_the_hours_that_are_promised_are_the_sums():
    core = [path.name for path in LESSONS if "| Track | core |" in cells(path)[0][1].source]
    sums = [
        sum(minutes(path) for path in books if not only or path.name in only) / 60
        for books, only in ((LESSONS, core), (SOLUTIONS, core), (LESSONS + SOLUTIONS, None))
    ]
    lessons, exercises, everything = map(round, sums)
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"about {lessons} hours of lessons and {exercises} of exercises" in readme
    assert f"everything takes about {everything} hours" in readme
    assert any(f"{lessons} hours of lessons, {exercises} of exercises" in text for _, text in texts(LESSONS[0]))


CARD = r"(?m)^\| (?:build|find the fault|predict, then verify) \| [123] of 3 \| (\d+) \| .+ \|$"
KINDS = "build|find the fault|predict, then verify"


@each(SOLUTIONS)
def test_every_task_has_a_card_three_hints_a_check_on_its_last_line_and_an_analysis(path):
    book = [cell for _, cell in cells(path)]
    checks = [place for place, cell in enumerate(book) if cell.cell_type == "code" and "kv.check.task_" in cell.source]
    assert checks
    for place in checks:
        call = re.fullmatch(r"kv\.check\.task_(\w+)\(.+\)", book[place].source.splitlines()[-1])
        assert call, f"cell {place + 1} ends with its check"
        starts = [n for n in range(place) if book[n].source.startswith(f"## {call.group(1)} · ")]
        assert len(starts) == 1, f"one card for {call.group(1)}"
        card = "\n".join(cell.source for cell in book[starts[0] : place] if cell.cell_type == "markdown")
        assert re.search(rf"^\| ({KINDS}) \| [123] of 3 \| \d+ \| .+ \|$", card, flags=re.M)
        hints = re.findall(r"<details><summary>Hint ([123]): (.+?)</summary>", card)
        assert f"](../solutions/{path.name})" in card
        assert hints == [("1", "a nudge"), ("2", "the idea"), ("3", "almost the code")]
        after = book[place + 1]
        assert after.cell_type == "markdown" and "solution-only" in tags(after), f"an analysis follows {call.group(1)}"


@each(LESSONS, SOLUTIONS, EXERCISES)
def test_relative_links_lead_to_files(path):
    for number, cell in cells(path, "markdown"):
        lines = [line for line in cell.source.splitlines() if "(coming)" not in line]
        for target in re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", "\n".join(lines)):
            target = (target[0] or target[1]).split("#")[0]
            if target and not re.match(r"[a-z]+:", target):
                assert (path.parent / target).exists(), f"cell {number}: {target}"


@each(LESSONS, SOLUTIONS)
def test_what_is_not_compared_stands_beside_what_is(path):
    code = [cell for _, cell in cells(path, "code")]
    for place, cell in enumerate(code):
        if IGNORED in tags(cell):
            beside = code[max(place - 1, 0) : place] + code[place + 1 : place + 2]
            assert any(IGNORED not in tags(other) and (other.outputs or "assert" in other.source) for other in beside)
