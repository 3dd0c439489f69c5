"""work/: what the learner changed is never overwritten, and newer versions still arrive."""

import json

import pytest

from kvcourse.setup import workspace


def notebook(text, output="7\n"):
    """A notebook of one markdown and one executed code cell, as bytes."""
    code = {
        "cell_type": "code",
        "id": "b",
        "metadata": {"tags": ["core"], "execution": {"iopub.execute_input": "now"}},
        "execution_count": 3,
        "source": [text],
        "outputs": [{"output_type": "stream", "name": "stdout", "text": [output]}],
    }
    prose = {"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["┌─┐ Việt"]}
    whole = {"cells": [prose, code], "metadata": {"widgets": {"x": 1}}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole).encode()


@pytest.fixture
def course(tmp_path):
    """A clone with one lesson, one exercise, its solution and a data file; laid out once in work/."""
    for name, text in [("notebooks/00_a.ipynb", "one"), ("exercises/02_b.ipynb", "two"), ("solutions/02_b.ipynb", "3")]:
        path = tmp_path / "clone" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(notebook(text))
    (tmp_path / "clone/exercises/data.csv").write_bytes(b"a,b\r\n")
    (tmp_path / "clone/notebooks/.ipynb_checkpoints").mkdir()
    (tmp_path / "clone/notebooks/.ipynb_checkpoints/00_a.ipynb").write_bytes(b"{}")
    return Course(tmp_path)


class Course:
    def __init__(self, folder):
        self.clone, self.work, self.said = folder / "clone", folder / "work", []
        assert self.lay_out() == {"new": 4, "updated": 0, "kept": 0, "beside": 0}
        self.copy = self.work / "notebooks/00_a.ipynb"
        self.original = self.clone / "notebooks/00_a.ipynb"

    def lay_out(self):
        return workspace.lay_out(str(self.clone), str(self.work), say=self.said.append)

    def beside(self):
        return sorted(path.name for path in self.copy.parent.iterdir() if ".new" in path.name)


def test_copies_are_cleared_and_links_between_them_hold(course):
    cells = json.loads(course.copy.read_text(encoding="utf-8"))["cells"]
    assert cells[0]["source"] == ["┌─┐ Việt"]
    assert cells[1]["outputs"] == [] and cells[1]["execution_count"] is None
    assert cells[1]["metadata"] == {"tags": ["core"]}
    assert "widgets" not in json.loads(course.copy.read_text(encoding="utf-8"))["metadata"]
    assert (course.work / "exercises" / "../solutions/02_b.ipynb").exists()
    assert (course.work / "exercises/data.csv").read_bytes() == b"a,b\r\n"
    assert not (course.work / "notebooks/.ipynb_checkpoints").exists()


def test_originals_are_left_alone(course):
    before = course.original.read_bytes()
    course.lay_out()
    assert course.original.read_bytes() == before == notebook("one")


def test_again_changes_nothing(course):
    before = {path: path.read_bytes() for path in course.work.rglob("*") if path.is_file()}
    assert course.lay_out() == {"new": 0, "updated": 0, "kept": 0, "beside": 0}
    assert {path: path.read_bytes() for path in course.work.rglob("*") if path.is_file()} == before
    assert not course.said


def test_new_outputs_in_the_original_are_no_newer_version(course):
    course.copy.write_text("mine")
    course.original.write_bytes(notebook("one", output="8\n"))
    assert course.lay_out() == {"new": 0, "updated": 0, "kept": 1, "beside": 0}


def test_an_untouched_copy_follows_the_original(course):
    course.original.write_bytes(notebook("one, better"))
    assert course.lay_out() == {"new": 0, "updated": 1, "kept": 0, "beside": 0}
    assert "one, better" in course.copy.read_text(encoding="utf-8") and course.beside() == []


def test_a_changed_copy_stays_and_the_newer_version_lies_beside_it_once(course):
    course.copy.write_text("mine")
    course.original.write_bytes(notebook("one, better"))
    assert course.lay_out() == {"new": 0, "updated": 0, "kept": 1, "beside": 1}
    assert course.copy.read_text() == "mine" and course.beside() == ["00_a.new.ipynb"]
    assert "one, better" in (course.copy.parent / "00_a.new.ipynb").read_text(encoding="utf-8")
    assert len(course.said) == 1 and "00_a.new.ipynb" in course.said[0]
    (course.copy.parent / "00_a.new.ipynb").unlink()  # read and thrown away: it does not come back
    assert course.lay_out() == {"new": 0, "updated": 0, "kept": 1, "beside": 0}
    assert course.beside() == [] and len(course.said) == 1


def test_the_version_beside_is_never_overwritten_either_once_it_was_changed(course):
    course.copy.write_text("mine")
    course.original.write_bytes(notebook("second"))
    course.lay_out()
    course.original.write_bytes(notebook("third"))
    course.lay_out()  # nobody touched the second: the third takes its place
    assert course.beside() == ["00_a.new.ipynb"]
    (course.copy.parent / "00_a.new.ipynb").write_text("mine too")
    course.original.write_bytes(notebook("fourth"))
    course.lay_out()
    assert course.beside() == ["00_a.new.ipynb", "00_a.new2.ipynb"]
    assert (course.copy.parent / "00_a.new.ipynb").read_text() == "mine too"
    assert "fourth" in (course.copy.parent / "00_a.new2.ipynb").read_text(encoding="utf-8")
    assert course.copy.read_text() == "mine"


@pytest.mark.parametrize("damage", ["", "[]", "not json"])
def test_without_a_manifest_a_differing_copy_counts_as_changed(course, damage):
    course.copy.write_text("mine")
    (course.work / ".kvcourse/manifest.json").write_text(damage)
    assert course.lay_out() == {"new": 0, "updated": 0, "kept": 1, "beside": 1}
    assert course.copy.read_text() == "mine"


def test_a_removed_copy_comes_back_and_a_new_lesson_arrives(course):
    course.copy.unlink()
    (course.clone / "notebooks/01_c.ipynb").write_bytes(notebook("new"))
    assert course.lay_out() == {"new": 2, "updated": 0, "kept": 0, "beside": 0}


def test_the_learners_own_files_are_left_alone(course):
    (course.work / "notebooks/my_notes.ipynb").write_text("notes")
    course.lay_out()
    assert (course.work / "notebooks/my_notes.ipynb").read_text() == "notes"


def test_a_write_that_fails_leaves_the_old_copy_whole(course, monkeypatch):
    course.original.write_bytes(notebook("one, better"))
    before = course.copy.read_bytes()
    monkeypatch.setattr(workspace.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        course.lay_out()
    assert course.copy.read_bytes() == before


def test_opening_a_copy_in_jupyterlab_does_not_change_it(course):
    """Lab adds metadata and other spacing when it saves; only cells and outputs count."""
    course.lay_out()
    opened = json.loads(course.copy.read_text(encoding="utf-8"))
    opened["metadata"]["language_info"] = {"name": "python", "version": "3.11.7", "file_extension": ".py"}
    opened["cells"][0]["metadata"]["trusted"] = True
    course.copy.write_text(json.dumps(opened), encoding="utf-8")
    course.original.write_bytes(notebook("two"))
    assert course.lay_out()["updated"] == 1
    assert "two" in course.copy.read_text(encoding="utf-8")
