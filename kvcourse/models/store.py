"""Where a converted model lives on this computer, and how it gets there whole or not at all.

A model is a folder of files plus `manifest.json`, written last, with the size and checksum of each.
Work happens in a folder beside the final one and is renamed into place at the end, so that a run that
is killed leaves nothing that looks finished. Standard library only.
"""

import errno
import hashlib
import json
import os
import secrets
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..setup import call

REPAIR = call("model")
MANIFEST = "manifest.json"


class ModelError(RuntimeError):
    """The model can't be had; the message is one sentence and the command that helps."""

    def _render_traceback_(self):  # IPython asks for this: a notebook then shows the sentence alone
        return [f"{type(self).__name__}: {self}"]


def home() -> Path:
    """The folder for models: $KVCOURSE_HOME, or `kvcourse` in the user's cache folder. Not created here."""
    if os.environ.get("KVCOURSE_HOME"):
        return Path(os.environ["KVCOURSE_HOME"]).expanduser().absolute()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kvcourse"


def explain(error: OSError, where: Path) -> ModelError:
    """The same error as one sentence and one command."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ModelError(f"The disk that holds {where} is full; make room there, then run: {REPAIR}")
    reason = error.strerror or str(error)
    return ModelError(
        f"{error.filename or where} can't be read or written ({reason}); "
        f"set KVCOURSE_HOME to a folder of your own, then run: {REPAIR}"
    )


def require_space(where: Path, needed: int):
    """Raise ModelError when fewer than `needed` bytes are free on the disk of `where`."""
    free = shutil.disk_usage(where).free
    if free < needed:
        raise ModelError(
            f"The model needs {needed / 1e6:.0f} MB in {where}, {free / 1e6:.0f} MB are free; "
            f"make room or set KVCOURSE_HOME to another disk, then run: {REPAIR}"
        )


def sha256(path: Path) -> str:
    """Checksum of a file in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, recipe: int):
    """Record every file of `folder`; a folder without this record is unfinished."""
    for path in folder.iterdir():
        path.chmod(0o644)  # a folder shared by a room is read by everyone
    files = {p.name: {"size": p.stat().st_size, "sha256": sha256(p)} for p in sorted(folder.iterdir())}
    (folder / MANIFEST).write_text(json.dumps({"recipe": recipe, "files": files}, indent=1), encoding="utf-8")


@dataclass(frozen=True)
class Problem:
    """Why a model folder can't be used. kind: "missing", "old" or "damaged"; what: a clause that names the file."""

    kind: str
    what: str


def problem(folder: Path, recipe: int) -> Problem | None:
    """Compare a model folder with its manifest; None when all is well. OSError when it can't be read.

    Reads all bytes (269 MB take 0.2 to 1 s), so that a file changed without a change of size is found too.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["recipe"] != recipe:
            return Problem("old", f"{folder} was made by another version of the course")
        for name, entry in manifest["files"].items():
            path = folder / name
            if not path.is_file():
                return Problem("damaged", f"{path} is missing")
            if path.stat().st_size != entry["size"]:
                return Problem("damaged", f"{path} has {path.stat().st_size:,} bytes instead of {entry['size']:,}")
            if sha256(path) != entry["sha256"]:
                return Problem("damaged", f"{path} was changed: its checksum differs")
    except FileNotFoundError:
        return Problem("missing", f"there is no finished model in {folder}")
    except (ValueError, KeyError, TypeError, AttributeError):
        return Problem("damaged", f"{folder / MANIFEST} can't be understood")
    return None


@contextmanager
def building(folder: Path, recipe: int):
    """Give a new folder to work in; on success it takes the place of `folder`, on any error it goes.

    To be used with the lock held: then what killed runs have left is ours to remove.
    The work folder has a subfolder `model` (which becomes `folder`); the rest is scratch space.
    """
    prefix = f".{folder.name}-"
    for stale in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(stale, ignore_errors=True)
    work = folder.parent / f"{prefix}{secrets.token_hex(4)}"
    (work / "model").mkdir(parents=True)
    try:
        yield work
        write_manifest(work / "model", recipe)
        if folder.exists():
            os.replace(folder, work / "replaced")  # a folder can't be renamed over one that has files
        os.replace(work / "model", folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
