"""Progress: nothing is kept unless asked for, a damaged file is put aside, and only real passes count."""

import os

import pytest

import kvcourse as kv
from kvcourse.check.task import TASKS


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("KVCOURSE_HOME", str(tmp_path))
    return tmp_path


def rows(capsys):
    kv.progress()
    return {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}


def test_nothing_is_kept_unless_asked_for(own_home, capsys):
    kv.reveal("01-a", 290)
    kv.progress()
    assert "Nothing is kept" in capsys.readouterr().out
    assert list(own_home.iterdir()) == []


def test_questions_and_passed_tasks_are_counted_once(capsys):
    kv.progress(on=True)
    for _ in range(2):
        kv.reveal("01-a", 290)
        kv.check.task_06a(lambda a, b: len(os.path.commonprefix([a, b])))
    kv.check.task_06a(lambda a, b: 0)
    capsys.readouterr()
    table = rows(capsys)
    count = sum(key.startswith("06") for key in TASKS)
    assert table["06"][1:] == ["1", "of", str(count)] and table["01"][0] == "1" and table["02"][0] == "0"


@pytest.mark.parametrize("damage", ["{", "[]", '{"questions": [1], "tasks": []}', '{"questions": []}', "\x00"])
def test_a_damaged_file_is_put_aside_with_a_word(own_home, capsys, damage):
    (own_home / "progress.json").write_text(damage, encoding="utf-8")
    kv.progress()
    assert "put aside as progress.damaged.json" in capsys.readouterr().out
    assert (own_home / "progress.damaged.json").read_text(encoding="utf-8") == damage
    kv.reveal("01-a", 290)
    capsys.readouterr()
    assert rows(capsys)["01"][0] == "1"


def test_stopping_deletes(own_home, capsys):
    kv.progress(on=True)
    kv.progress(on=False)
    assert "deleted" in capsys.readouterr().out and list(own_home.iterdir()) == []
