"""The lock, pyproject.toml, environment.yml, .binder/ and CI name the same packages."""

import importlib.metadata
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from kvcourse.setup import LOCK, ROOT, lockfile

TOP = Path(ROOT)
LOCK_NAME = "kvcourse/setup/requirements.lock"


def lock_lines(text):
    """Requirements of a lock as `packaging` reads them."""
    return [Requirement(line) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def disagreements(pyproject, lock, environment):
    """What the three texts say differently, a sentence each; an empty list when they agree."""
    project = tomllib.loads(pyproject)["project"]
    pinned = {canonicalize_name(line.name): str(line.specifier)[2:] for line in lock_lines(lock)}
    found = []
    for text in project["dependencies"] + project["optional-dependencies"]["test"]:
        need = Requirement(text)
        version = pinned.get(canonicalize_name(need.name))
        if version is None:
            found.append(f"{need.name} is not in the lock")
        elif version not in need.specifier:
            found.append(f"{need.name}: the lock has {version}, pyproject.toml wants {need.specifier}")
    conda = yaml.safe_load(environment)
    names = {entry.split("=")[0].strip("<>~ "): entry for entry in conda["dependencies"] if isinstance(entry, str)}
    if set(names) != {"python", "pip", "make"}:
        found.append(f"environment.yml: conda brings {sorted(names)}, not python, pip and make alone")
    if names.get("python", "").split("=")[-1] not in SpecifierSet(project["requires-python"]):
        found.append(f"environment.yml: {names.get('python')} is outside {project['requires-python']}")
    by_pip = [entry for entry in conda["dependencies"] if isinstance(entry, dict)]
    if by_pip != [{"pip": [f"-c {LOCK_NAME}", "-e .[test]"]}]:
        found.append(f"environment.yml: pip is given {by_pip}, not the lock and the project")
    return found


def texts():
    return [(TOP / name).read_text(encoding="utf-8") for name in ("pyproject.toml", LOCK_NAME, "environment.yml")]


def test_the_three_files_agree():
    assert disagreements(*texts()) == []


@pytest.mark.parametrize(
    "file, old, new, word",
    [
        (0, '"torch>=2.9"', '"torch>=3"', "torch"),
        (0, '"nbval>=0.11"', '"nbval>=0.11", "polars>=1"', "polars"),
        (1, "transformers==5.24.0", "transformers==5.25.0", "transformers"),
        (1, "ruff==", "ruffle==", "ruff"),
        (2, LOCK_NAME, "other.lock", "pip is given"),
        (2, "  - make\n", "  - make\n  - numpy\n", "numpy"),
        (2, "python=3.11", "python=3.10", "python=3.10"),
    ],
)
def test_a_planted_disagreement_is_found(file, old, new, word):
    changed = texts()
    assert old in changed[file]
    changed[file] = changed[file].replace(old, new)
    found = disagreements(*changed)
    assert len(found) == 1 and word in found[0]


def test_lock_pins_each_package_once_and_exactly():
    lines = lock_lines(Path(LOCK).read_text(encoding="utf-8"))
    names = [canonicalize_name(line.name) for line in lines]
    assert len(names) == len(set(names))
    for line in lines:
        (pin,) = line.specifier
        assert pin.operator == "==" and "*" not in pin.version and "+" not in pin.version, line


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
@pytest.mark.parametrize("python", [(3, 11), (3, 12), (3, 13)])
def test_our_reader_agrees_with_packaging(monkeypatch, platform, python):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(sys, "version_info", python)
    where = {"sys_platform": platform, "python_version": "{}.{}".format(*python)}
    expected = {
        canonicalize_name(line.name): str(line.specifier)[2:]
        for line in lock_lines(Path(LOCK).read_text(encoding="utf-8"))
        if line.marker is None or line.marker.evaluate(where)
    }
    assert lockfile.pins() == expected
    assert ("appnope" in expected) == (platform == "darwin")
    assert ("pywinpty" in expected) == (platform == "win32") != ("pexpect" in expected)


def test_lock_is_closed():
    """Whatever a pinned package needs here is pinned too, at a version that it admits."""
    pins = lockfile.pins()
    for name in pins:
        for text in importlib.metadata.requires(name) or []:
            need = Requirement(text)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                needed = canonicalize_name(need.name)
                if name == "torch" and needed not in pins:
                    continue  # a CUDA build names its own libraries exactly
                assert needed in pins, f"{name} needs {text}"
                assert need.specifier.contains(pins[needed], prereleases=True), f"{name} needs {text}"


@pytest.mark.parametrize("line", ["torch>=2.9", "torch==2.13.0; os_name == 'nt'", 'six==1; python_version == "3.11"'])
def test_a_line_that_our_reader_does_not_know_is_named(tmp_path, line):
    path = tmp_path / "lock"
    path.write_text(f"# a comment\n\nsix==1.17.0\n{line}\n")
    with pytest.raises(ValueError) as error:
        lockfile.pins(str(path))
    assert repr(line) in str(error.value)


@pytest.mark.parametrize("version", ["2.8.1", "2.9", "2.9.0", "2.9.1+cpu", "2.13.0", "2.21.4+cu130", "3.0.0"])
@pytest.mark.parametrize("spec", [">=2.9", ">=2.9,<2.13", "==2.9.1", "<=2.13.0", ">2.8.1"])
def test_ranges_mean_what_packaging_says(tmp_path, version, spec):
    path = tmp_path / "pyproject.toml"
    path.write_text(f'dependencies = [\n    "numpy>=9",\n    "torch{spec}",\n    "torchvision>=99",\n]\n')
    public = version.split("+")[0]
    assert lockfile.accepts("torch", version, str(path)) == (public in SpecifierSet(spec))
    assert not lockfile.accepts("tensorflow", version, str(path))


def test_differences_ignore_how_a_package_was_built():
    wanted = {"torch": "2.13.0", "numpy": "2.4.6", "ruff": "0.17.6"}
    present = {"torch": "2.13.0+cpu", "numpy": "2.4.5", "extra": "1"}
    assert lockfile.differences(wanted, present) == [("numpy", "2.4.6", "2.4.5"), ("ruff", "0.17.6", None)]


def test_binder_and_ci_use_the_same_lock():
    binder = [
        line
        for line in (TOP / ".binder/requirements.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]
    assert binder == [f"-c ../{LOCK_NAME}", "-e .[test]"]
    runtime = (TOP / ".binder/runtime.txt").read_text(encoding="utf-8").strip().removeprefix("python-")
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert runtime in SpecifierSet(project["requires-python"])
    assert "make test" in (TOP / ".ci/run").read_text(encoding="utf-8")
    assert "-m kvcourse $@" in (TOP / "Makefile").read_text(encoding="utf-8")
