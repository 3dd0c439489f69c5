"""The environment's life: what counts as ready, what an interruption leaves, what is asked of pip."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvcourse.setup import ROOT, SetupError, environment, install

SOURCES = [Path(ROOT, "kvcourse/__main__.py"), *sorted(Path(ROOT, "kvcourse/setup").glob("*.py"))]


@pytest.fixture
def venv(tmp_path):
    """A folder that looks like an environment just made: a Python, and nothing of ours."""
    python = Path(environment.venv_python(str(tmp_path / ".venv")))
    python.parent.mkdir(parents=True)
    python.touch()
    return str(tmp_path / ".venv")


def test_the_life_of_an_environment(venv):
    assert environment.state(venv + "x", want="a") == "missing"
    assert environment.state(venv, want="a") == "bare"
    environment.begin(venv)
    assert environment.state(venv, want="a") == "unfinished"
    environment.finish(venv, want="a")
    assert environment.state(venv, want="a") == "ready"
    assert environment.state(venv, want="b") == "older"
    environment.begin(venv)  # pip is about to bring b
    assert environment.state(venv, want="a") == environment.state(venv, want="b") == "unfinished"


def test_an_interrupted_install_never_looks_ready(venv, monkeypatch):
    environment.begin(venv)
    with monkeypatch.context() as patch:
        patch.setattr(environment.os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            environment.finish(venv, want="a")
    assert environment.state(venv, want="a") == "unfinished"
    environment.finish(venv, want="a")
    assert environment.state(venv, want="a") == "ready"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"wanted": null}'])
def test_a_damaged_stamp_is_not_ready(venv, text):
    Path(venv, "kvcourse-stamp.json").write_text(text)
    assert environment.state(venv, want="a") in ("bare", "older")
    assert environment.kept_torch(venv) == ""


def test_an_environment_whose_python_was_removed_is_missing(venv):
    environment.finish(venv, want="a")
    python = Path(environment.venv_python(venv))
    python.unlink()
    python.symlink_to("/nowhere/python3.11")
    assert environment.state(venv, want="a") == "missing"


def test_the_stamp_follows_the_lock_and_the_project_file_but_not_line_ends(tmp_path):
    lock, project = tmp_path / "lock", tmp_path / "pyproject.toml"

    def stamp(lock_text, project_text):
        lock.write_bytes(lock_text)
        project.write_bytes(project_text)
        return environment.wanted(str(tmp_path), str(lock))

    first = stamp(b"six==1\n", b"[project]\n")
    assert first == stamp(b"six==1\r\n", b"[project]\r\n")
    others = {stamp(b"six==2\n", b"[project]\n"), stamp(b"six==1\n", b"[tool]\n"), stamp(b"six==1\n[pro", b"ject]\n")}
    assert len(others) == 3 and first not in others


def test_a_kept_torch_is_remembered(venv):
    environment.finish(venv, want="a", kept_torch="2.12.0+cu130")
    assert environment.kept_torch(venv) == "2.12.0+cu130"


def test_a_ready_environment_starts_nothing(monkeypatch, capsys):
    monkeypatch.setattr(environment, "_complete_elsewhere", lambda: False)
    monkeypatch.setattr(environment, "state", lambda: "ready")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("started a program"))
    assert environment.ensure() == environment.venv_python()
    assert capsys.readouterr().out == ""


def distribution(folder, name, url=None):
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    if url:
        (info / "direct_url.json").write_text(json.dumps({"url": url, "dir_info": {"editable": True}}))


def test_an_install_from_another_clone_does_not_count(tmp_path):
    for name in ("this", "other"):
        (tmp_path / name).mkdir()
    distribution(tmp_path / "a", "kvcourse", (tmp_path / "other").as_uri())
    distribution(tmp_path / "b", "kvcourse", (tmp_path / "this").as_uri())
    distribution(tmp_path / "c", "kvcourse")
    this = str(tmp_path / "this")
    assert not environment.installed_from(this, [str(tmp_path / "a")])
    assert environment.installed_from(this, [str(tmp_path / "b")])
    assert not environment.installed_from(this, [str(tmp_path / "c")])


@pytest.fixture
def pip(monkeypatch):
    """`install.packages` over an empty environment, with what it would have done written down in order."""
    done = []
    monkeypatch.setattr(install, "_present", lambda python: {"inside": {}, "editable": False})
    monkeypatch.setattr(install, "_torch_build", lambda *_: "cpu")
    monkeypatch.setattr(install, "_pip", lambda command: done.append(command))
    monkeypatch.setattr(install.platforms, "free_mb", lambda folder: 50_000)
    return done


def test_pip_gets_the_lock_as_constraint_and_a_short_patience(pip, capsys):
    install.packages("python", begin=lambda: pip.append("begin"))
    begin, command = pip
    assert begin == "begin"
    assert command[command.index("-c") + 1].endswith("requirements.lock") and command[-2:] == ["-e", ".[test]"]
    assert command[command.index("--retries") + 1] == "2" and command[command.index("--timeout") + 1] == "20"
    assert "50,000 MB free, 2,500 MB needed" in capsys.readouterr().out


def test_nothing_is_marked_as_begun_when_the_index_or_the_disk_says_no(pip, monkeypatch):
    monkeypatch.setattr(install.platforms, "free_mb", lambda folder: 120)
    with pytest.raises(SetupError, match="needs 2500 MB in .*, 120 free"):
        install.packages("python", begin=lambda: pip.append("begin"))
    monkeypatch.setattr(install, "_torch_build", lambda *_: (_ for _ in ()).throw(SetupError("no index")))
    with pytest.raises(SetupError, match="no index"):
        install.packages("python", begin=lambda: pip.append("begin"))
    assert pip == []


def test_pip_is_not_asked_when_nothing_is_missing(pip, monkeypatch):
    pins = install.lockfile.pins()
    monkeypatch.setattr(install, "_present", lambda python: {"inside": pins, "editable": True})
    install.packages("python", begin=lambda: pip.append("begin"))
    assert pip == []
    monkeypatch.setattr(install, "_present", lambda python: {"inside": pins, "editable": False})
    install.packages("python", begin=lambda: pip.append("begin"))
    assert len(pip) == 2


def test_a_kept_torch_is_never_asked_of_pip(pip, monkeypatch):
    monkeypatch.setattr(install, "_constraint", lambda version: f"constraint with torch {version}")
    install.packages("python", kept_version="2.12.0")
    inside, rest = pip
    assert not [word for word in inside + rest if word.startswith("torch==")]
    assert "--ignore-installed" in inside and "numpy==" + install.lockfile.pins()["numpy"] in inside
    assert rest[rest.index("-c") + 1] == "constraint with torch 2.12.0"


@pytest.mark.parametrize(
    "versions, system, build",
    [
        (["2.15.0", "2.13.0+cpu", "2.13.0"], "linux", "cpu"),
        (["2.15.0", "2.13.0"], "linux", "cuda"),
        (["2.13.0"], "darwin", "cpu"),
        (["2.13.0"], "win32", "cpu"),
        (["2.13.0+cu130"], "linux", "cuda"),
        (["2.15.0", "2.12.0+cpu", "2.13.0.post1"], "linux", None),
    ],
)
def test_which_torch_comes(versions, system, build):
    assert install.torch_build(versions, "2.13.0", system) == build


def test_the_large_build_is_announced_before_it_is_fetched(capsys, monkeypatch):
    monkeypatch.setattr(install.platforms, "free_mb", lambda folder: 50_000)
    install.announce([("torch", "2.13.0", None)], "cuda")
    assert "NVIDIA" in (said := capsys.readouterr().out) and "--keep-torch" in said and "9,000 MB needed" in said
    install.announce([("torch", "2.13.0", None)], "cpu")
    assert "NVIDIA" not in capsys.readouterr().out


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_old_pythons_can_read_the_file_and_so_print_the_sentence(path):
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 7))


def without_packages(code, **env):
    """Run `code` in a Python that sees the standard library and this folder alone."""
    script = f"import sys; sys.path.insert(0, {ROOT!r})\n{code}"
    return subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, env=env or None)


def test_set_up_needs_nothing_but_the_standard_library():
    names = ", ".join("kvcourse.setup." + path.stem for path in SOURCES[1:] if path.stem != "__init__")
    done = without_packages(
        f"import kvcourse, kvcourse.__main__, {names}\n"
        "own = {name.split('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)\n"
        "print(sorted(name for name in own if not name.startswith('__')))"
    )
    assert done.stderr == "" and done.stdout.strip() == "['kvcourse']"


def test_doctor_runs_before_anything_is_installed(tmp_path):
    done = without_packages(
        "from kvcourse.__main__ import main; sys.exit(main(['doctor', '--here']))",
        KVCOURSE_HOME=str(tmp_path),
        PATH="",
    )
    lines = {line[6:18].strip(): line for line in done.stdout.splitlines()}
    assert done.returncode == 1 and done.stderr == ""
    assert lines["packages"].startswith("fail") and "torch missing" in lines["packages"]
    assert lines["model"].startswith("fail") and lines["Python"].startswith("ok")
    assert lines["C++ compiler"].startswith("note")
