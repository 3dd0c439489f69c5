"""`.venv`: made when it is missing or older than the lock, by pip from requirements.lock.

The life of an environment: nothing -> unfinished (pip is at work, a marker lies in it) -> ready (a stamp names the
lock it was made from) -> older (the lock changed; pip brings the difference). What was interrupted is
made anew: half a package can't be told from a whole one. pip's own store keeps the downloads.
"""

import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import urllib.parse
import urllib.request

from . import LOCK, ROOT, SetupError, call, install, lockfile, platforms

VENV = os.path.join(ROOT, ".venv")
_STAMP = "kvcourse-stamp.json"
_UNFINISHED = "kvcourse-unfinished"


def venv_python(venv=VENV):
    """Path of the environment's Python, whether or not it is there."""
    return os.path.join(venv, "Scripts", "python.exe") if os.name == "nt" else os.path.join(venv, "bin", "python")


def wanted(root=ROOT, lock=LOCK):
    """One hash over the lock and pyproject.toml: what an environment has to be made from."""
    digest = hashlib.sha256()
    for path in (lock, os.path.join(root, "pyproject.toml")):
        with open(path, "rb") as file:
            digest.update(file.read().replace(b"\r\n", b"\n") + b"\0")
    return digest.hexdigest()


def state(venv=VENV, want=None):
    """`missing`, `unfinished`, `bare` (not stamped by us), `older` or `ready`; looks at files only."""
    if not os.path.exists(venv_python(venv)):  # also a link to a Python that was removed since
        return "missing"
    if os.path.exists(os.path.join(venv, _UNFINISHED)):
        return "unfinished"
    try:
        with open(os.path.join(venv, _STAMP), encoding="utf-8") as file:
            stamp = json.load(file)
    except (OSError, ValueError):
        return "bare"
    return "ready" if isinstance(stamp, dict) and stamp.get("wanted") == (want or wanted()) else "older"


def begin(venv=VENV):
    """Mark `venv` as unfinished and take its stamp away; before pip changes anything."""
    with open(os.path.join(venv, _UNFINISHED), "w", encoding="utf-8"):
        pass
    if os.path.exists(os.path.join(venv, _STAMP)):
        os.remove(os.path.join(venv, _STAMP))


def finish(venv=VENV, want=None, kept_torch=""):
    """Stamp `venv` as made from `want`: written aside, then renamed, and only then is the marker removed."""
    stamp = os.path.join(venv, _STAMP)
    with open(stamp + ".part", "w", encoding="utf-8") as file:
        json.dump({"wanted": want or wanted(), "kept_torch": kept_torch}, file)
    os.replace(stamp + ".part", stamp)
    if os.path.exists(os.path.join(venv, _UNFINISHED)):
        os.remove(os.path.join(venv, _UNFINISHED))


def kept_torch(venv=VENV):
    """Version of the torch that was kept instead of the lock's, or an empty string."""
    try:
        with open(os.path.join(venv, _STAMP), encoding="utf-8") as file:
            return json.load(file).get("kept_torch", "")
    except (OSError, ValueError, AttributeError):
        return ""


def running_in(python):
    """Whether this very process runs in the environment of `python`."""
    if python == sys.executable:
        return True
    return os.path.realpath(sys.prefix) == os.path.realpath(os.path.dirname(os.path.dirname(python)))


def usable_python():
    """The environment's Python if it is there, else this one. Changes nothing."""
    return sys.executable if state() == "missing" or _complete_elsewhere() else venv_python()


def installed_from(root, path):
    """Whether the kvcourse found in the folders `path` is installed from `root` (and so follows its files)."""
    for dist in importlib.metadata.distributions(name="kvcourse", path=path):
        try:
            url = json.loads(dist.read_text("direct_url.json") or "{}").get("url", "")
        except ValueError:
            continue
        place = urllib.request.url2pathname(urllib.parse.urlsplit(url).path)
        if url and os.path.realpath(place) == os.path.realpath(root):
            return True
    return False


def _complete_elsewhere():
    """Whether this Python is a conda or virtual environment of the person's own that has all of the lock."""
    own = sys.prefix != sys.base_prefix or os.path.isdir(os.path.join(sys.prefix, "conda-meta"))
    if not own or os.path.realpath(sys.prefix) == os.path.realpath(VENV):
        return False
    path = [folder for folder in sys.path if os.path.realpath(folder or os.curdir) != os.path.realpath(ROOT)]
    return installed_from(ROOT, path) and not lockfile.differences(lockfile.pins(), lockfile.installed(path))


def ensure(keep_torch=False, here=False):
    """Path of a Python that has all of the lock; makes or mends `.venv` when there is none.

    `here` takes this Python as it is. `keep_torch` leaves out the download of torch when this Python has one that
    pyproject.toml's range admits. SetupError, in one sentence, when it can't be done.
    """
    if not os.path.exists(os.path.join(ROOT, "pyproject.toml")):
        raise SetupError("lab and test need the whole course, not the installed package alone: start them in a clone.")
    if here or _complete_elsewhere():
        return sys.executable
    found = state()
    if found == "ready":
        return venv_python()
    platforms.refuse_intel_mac()
    kept = _torch_here() if keep_torch else None
    print(f"kvcourse: setting up the environment in {VENV} ({found})")
    print(f"  platform  {platforms.describe()}")
    remake = found in ("missing", "unfinished") or not _runs()
    version = kept[0] if kept else "" if remake else kept_torch()
    if remake:
        platforms.refuse_missing_venv()
        platforms.refuse_full_disk(ROOT, install.NEED_MB["kept" if kept else "cpu"])
        _make()
    if kept:
        _show_torch(kept[1])
    install.packages(venv_python(), kept_version=version, begin=begin)
    finish(kept_torch=version)
    return venv_python()


def _runs():
    """Whether the environment's Python is new enough and its pip starts."""
    test = f"import sys, pip._internal.cli.main; sys.exit(sys.version_info[:2] < {platforms.OLDEST!r})"
    return subprocess.call([venv_python(), "-I", "-c", test], stderr=subprocess.DEVNULL) == 0


def _make():
    base = getattr(sys, "_base_executable", None) or sys.executable  # an environment can't rebuild itself
    done = subprocess.run([base, "-m", "venv", "--clear", VENV], capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        raise SetupError(
            f"the environment could not be made ({reason[-1]}); remove the folder .venv, then run again:", call("lab")
        )


def _torch_here():
    """(version, folder) of this Python's own torch; SetupError when there is none that will do."""
    try:
        dist = importlib.metadata.distribution("torch")
    except importlib.metadata.PackageNotFoundError:
        raise SetupError(
            f"--keep-torch: {sys.executable} has no torch to keep; leave the option out:", call("lab")
        ) from None
    if not lockfile.accepts("torch", dist.version):
        raise SetupError(
            f"--keep-torch: torch {dist.version} of this Python is outside the course's range; leave the option out:",
            call("lab"),
        )
    return dist.version, str(dist.locate_file(""))


def _show_torch(folder):
    """Let the environment see `folder`, after its own packages: a .pth file, so that a venv's torch works too."""
    answer = subprocess.check_output(
        [venv_python(), "-I", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    )
    with open(os.path.join(answer.strip(), "kvcourse_keep_torch.pth"), "w", encoding="utf-8") as file:
        file.write(folder + "\n")
