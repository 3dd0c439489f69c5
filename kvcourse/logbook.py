"""What you have done so far: a small table, kept on this machine and only if you ask for it.

`kv.progress(on=True)` begins, `kv.progress()` shows, `kv.progress(on=False)` stops and deletes. It keeps which
questions were revealed and which tasks were passed, in one JSON file in the course's home folder. Nothing is sent.
"""

import json
import os
import re

from .models import home

NAME = "progress.json"


def progress(on=None):
    """Show the table of lessons: questions revealed, tasks passed. `on=True` begins to keep it, `on=False` deletes."""
    path = home() / NAME
    if on is False:
        path.unlink(missing_ok=True)
        print("Nothing is kept any more, and what was kept is deleted.")
        return
    if on and not path.exists():
        _write({"questions": [], "tasks": []})
    done = _read()
    if done is None:
        print("Nothing is kept. Call progress(on=True) once, and this table fills as you go; it stays on this machine.")
        return
    print(_table(done))


def note(kind, key):
    """Remember that a question or task was done, if the reader wants that. `kind`: "questions" or "tasks"."""
    done = _read()
    if done is not None and key not in done[kind]:
        done[kind] = sorted([*done[kind], key])
        _write(done)


def _table(done):
    from .check import TASKS

    lessons = sorted({key[:2] for key in (*TASKS, *done["questions"])})
    rows = ["lesson  questions  tasks"]
    for lesson in lessons:
        questions = sum(key.startswith(lesson) for key in done["questions"])
        passed = sum(key.startswith(lesson) for key in done["tasks"])
        rows.append(f"{lesson:8}{questions:9}  {passed} of {sum(key.startswith(lesson) for key in TASKS)}")
    return "\n".join(rows)


def _read():
    """What was done, or None where nothing is kept. A damaged file is put aside, and a new one begun."""
    path = home() / NAME
    try:
        done = json.loads(path.read_text(encoding="utf-8"))
        lists = [done["questions"], done["tasks"]]
        if all(isinstance(keys, list) and all(re.match(r"\d\d", key) for key in keys) for keys in lists):
            return {"questions": lists[0], "tasks": lists[1]}
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError):
        pass
    aside = path.with_suffix(".damaged.json")
    os.replace(path, aside)
    print(f"The file of your progress could not be read. It was put aside as {aside.name}, and a new one begins.")
    done = {"questions": [], "tasks": []}
    _write(done)
    return done


def _write(done):
    path = home() / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(f".{os.getpid()}.tmp")  # written aside, so that a power cut leaves the old one
    beside.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
    os.replace(beside, path)
