"""doctor, lab and test: what they report, what they start, and that no failure is lost."""

import configparser
import json
import re
import sys
from pathlib import Path

import pytest

from kvcourse.setup import ROOT, SetupError, doctor, environment, jobs, lockfile


@pytest.fixture
def healthy(monkeypatch):
    """A machine on which every check passes, so that a test can break one."""
    monkeypatch.setattr(lockfile, "installed", lambda path=None: dict(lockfile.pins(), another="1.0"))
    monkeypatch.setattr("kvcourse.models.status", lambda: (True, "the model is ready in X"))
    monkeypatch.setattr(doctor, "memory_mb", lambda: 16_000)
    monkeypatch.setattr(doctor.platforms, "free_mb", lambda folder: 50_000)
    monkeypatch.setattr(environment, "kept_torch", lambda: "")
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)


def report():
    lines = []
    code = doctor.main(say=lines.append)
    return code, lines


def test_doctor_is_content_with_a_healthy_machine(healthy):
    code, lines = report()
    assert code == 0 and not [line for line in lines if line.startswith("fail")]
    assert [line.split()[0] for line in lines if "C++" in line or "accelerator" in line] == ["note", "note"]


@pytest.mark.parametrize(
    "break_it, name, words, fix",
    [
        (lambda m: m.setattr(lockfile, "installed", lambda path=None: without("torch")),
         "packages", "torch missing", "lab"),
        (lambda m: m.setattr(lockfile, "installed", lambda path=None: {}), "packages", "torch missing", "lab"),
        (lambda m: m.setattr(lockfile, "installed", lambda path=None: dict(without("nbval"), nbval="0.10")),
         "packages", "nbval 0.10 instead of 0.11.0", "lab"),
        (lambda m: m.setattr("kvcourse.models.status", lambda: (False, "it is damaged; run: x")),
         "model", "damaged", "model"),
        (lambda m: m.setattr(doctor, "memory_mb", lambda: 1_500), "memory", "1,500 MB", "tiny"),
        (lambda m: m.setattr(doctor.platforms, "free_mb", lambda folder: 150), "disk", "150 MB free", "make room"),
        (lambda m: m.setattr("kvcourse.models.status", lambda: 1 / 0), "model", "ZeroDivisionError", "lab"),
    ],
)  # fmt: skip
def test_doctor_names_the_fault_and_the_fix(healthy, monkeypatch, break_it, name, words, fix):
    break_it(monkeypatch)
    code, lines = report()
    (bad,) = [index for index, line in enumerate(lines) if line.startswith("fail")]
    assert code == 1 and lines[bad][6:].startswith(name) and words in lines[bad]
    assert fix in lines[bad + 1].split("->")[1]


def without(name):
    pins = lockfile.pins()
    del pins[name]
    return pins


def test_doctor_accepts_the_torch_that_was_kept(healthy, monkeypatch):
    monkeypatch.setattr(lockfile, "installed", lambda path=None: dict(lockfile.pins(), torch="2.12.0"))
    assert report()[0] == 1
    monkeypatch.setattr(environment, "kept_torch", lambda: "2.12.0")
    monkeypatch.setattr(environment, "running_in", lambda python: True)
    code, lines = report()
    assert code == 0 and any("torch 2.12.0 kept" in line for line in lines)


def test_memory_is_a_plausible_number_of_megabytes():
    assert 500 < doctor.memory_mb() < 10**8


def test_lab_opens_the_copy_of_the_first_lesson_and_the_learners_options_win(tmp_path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / jobs.FIRST).touch()
    command = jobs.lab_command(["--port", "8900"], str(tmp_path), root_user=False)
    assert command[:3] == [sys.executable, "-m", "jupyterlab"] and f"--ServerApp.root_dir={tmp_path}" in command
    assert command[-3:] == ["--port", "8900", str(tmp_path / "notebooks" / jobs.FIRST)]
    assert "--LabApp.news_url=None" in command and "--allow-root" not in command
    assert "--allow-root" in jobs.lab_command([], str(tmp_path), root_user=True)


def test_the_first_lesson_has_the_name_that_lab_opens():
    assert Path(ROOT, "notebooks", jobs.FIRST).exists()


def test_a_model_that_cannot_be_had_is_one_sentence(monkeypatch):
    monkeypatch.setattr("kvcourse.models.status", lambda: (False, "missing"))
    monkeypatch.setattr("kvcourse.models.ensure", lambda **_: (_ for _ in ()).throw(RuntimeError("no network; run: x")))
    with pytest.raises(SetupError, match="^the model: no network; run: x$"):
        jobs.model()


def test_a_model_from_a_file_is_taken_even_when_one_is_there(monkeypatch):
    asked = []
    monkeypatch.setattr("kvcourse.models.status", lambda: (True, "ready"))
    monkeypatch.setattr("kvcourse.models.ensure", lambda **options: asked.append(options))
    assert jobs.model() == 0 and asked == []
    assert jobs.model("stick/x.whl") == 0 and asked == [{"source": "stick/x.whl"}]


@pytest.fixture
def steps(monkeypatch):
    """What `test` starts: {step: command}; `steps.fail` names those that fail. 7 code cells, all collected."""
    monkeypatch.setattr(jobs, "model", lambda: 0)
    monkeypatch.setattr(jobs, "code_cells", lambda paths: 7)
    monkeypatch.setattr(jobs, "collected", lambda report: 7)
    monkeypatch.setattr(jobs, "_there", list)
    monkeypatch.chdir(ROOT)

    class Steps(dict):
        fail = ()

    started = Steps()

    def step(name, command):
        started[name] = command
        return name, name not in started.fail, 1.0

    monkeypatch.setattr(jobs, "_step", step)
    return started


def test_the_whole_run_is_style_unit_tests_and_lessons(steps, capsys):
    assert jobs.test() == 0
    assert list(steps) == ["style", "format", "unit tests", "lessons"]
    assert "--check" in steps["format"] and steps["unit tests"][-1] == "tests"
    assert "--nbval" in steps["lessons"] and steps["lessons"][-2:] == ["notebooks", "solutions"]
    assert [line.split()[0] for line in capsys.readouterr().out.split("\n") if line] == ["ok"] * 4


@pytest.mark.parametrize("bad", ["style", "format", "unit tests", "lessons"])
def test_one_failure_fails_the_run_and_the_other_steps_still_run(steps, capsys, bad):
    steps.fail = (bad,)
    assert jobs.test() == 1
    assert len(steps) == 4
    assert [line[6:18].strip() for line in capsys.readouterr().out.split("\n") if line.startswith("FAIL")] == [bad]


@pytest.mark.parametrize("cells, seen", [(0, 0), (7, 6), (7, 0)])
def test_lessons_that_were_not_collected_fail_even_when_nbval_is_content(steps, monkeypatch, cells, seen):
    monkeypatch.setattr(jobs, "code_cells", lambda paths: cells)
    monkeypatch.setattr(jobs, "collected", lambda report: seen)
    assert jobs.test() == 1


def test_fast_and_paths_run_a_part(steps):
    assert jobs.test(["-x"], fast=True) == 0
    assert list(steps) == ["unit tests"] and steps["unit tests"][-2:] == ["-x", "tests"]
    steps.clear()
    jobs.test(["tests/test_lock.py", "-k", "lock"])
    assert list(steps) == ["unit tests"] and steps["unit tests"][-3:] == ["-k", "lock", "tests/test_lock.py"]
    steps.clear()
    jobs.test(["notebooks/" + jobs.FIRST])
    assert list(steps) == ["lessons"] and steps["lessons"][-1] == "notebooks/" + jobs.FIRST


def test_cells_and_results_are_counted(tmp_path):
    cells = [{"cell_type": kind} for kind in ("code", "markdown", "code", "raw")]
    for name in ("a.ipynb", "deep/b.ipynb"):
        path = tmp_path / "books" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"cells": cells}))
    assert jobs.code_cells([str(tmp_path / "books")]) == 4
    assert jobs.code_cells([str(tmp_path / "books/a.ipynb")]) == 2
    xml = tmp_path / "report.xml"
    assert jobs.collected(str(xml)) == 0
    xml.write_text("<testsuites><testsuite><testcase/><testcase><skipped/></testcase></testsuite></testsuites>")
    assert jobs.collected(str(xml)) == 2


def test_children_see_one_thread_and_no_hub(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    env = jobs.child_environment(str(tmp_path))
    assert env["OMP_NUM_THREADS"] == env["HF_HUB_OFFLINE"] == env["HF_HUB_DISABLE_PROGRESS_BARS"] == "1"
    assert env["PYTHONUTF8"] == "1" and "PATH" in env and env["IPYTHONDIR"] == str(tmp_path)


def test_the_sanitize_file_hides_what_says_nothing_and_no_more():
    rules = configparser.ConfigParser()
    rules.read(Path(ROOT, "tests/nbval_sanitize.cfg"), encoding="utf-8")

    def clean(text):
        for section in rules.sections():
            text = re.sub(rules[section]["regex"], rules[section]["replace"], text)
        return text

    assert clean("<object at 0x7f12ab34cd56>") == clean("<object at 0x55d0aaaa0000>")
    assert clean("saved " + "/" + "tmp/tmpab12/x.bin, 9 bytes") == "saved TEMPORARY, 9 bytes"
    for told in ("290 positions with 24", "5,391,360 bytes", "0x1f", "2.0 s", "temporary", "row/tmpl"):
        assert clean(told) == told
