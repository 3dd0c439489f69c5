"""`doctor`: one line for each thing the course needs, ok or fail, with the fix.

It changes nothing and needs nothing installed. Lines marked `note` are for information.
"""

import os
import platform
import shutil
import subprocess
import sys

from . import ROOT, call, environment, lockfile, platforms

NEED_MEMORY_MB = 2000  # JupyterLab and one kernel with the model after a long prompt take about 1,000


def main(say=print):
    """Print the report; 0 when every line that must be ok is."""
    say(f"kvcourse doctor, for {sys.executable}")
    if not environment.running_in(environment.venv_python()):
        say("(there is no .venv in use: {} makes one)".format(call("lab")))
    failed = 0
    for name, check in CHECKS:
        try:
            mark, text, fix = check()
        except Exception as error:  # a check that breaks is a finding, and the others are still wanted
            mark, text, fix = "fail", f"could not be checked: {type(error).__name__}: {error}", call("lab")
        failed += mark == "fail"
        say(f"{mark:5} {name:12} {text}")
        if fix:
            say(f"{'':20}-> {fix}")
    say("all that must be there is there" if not failed else f"{failed} to mend")
    return 1 if failed else 0


def python_version():
    if sys.version_info[:2] < platforms.OLDEST:
        return "fail", platforms.describe(), "install Python 3.11 or newer"
    return "ok", platforms.describe(), ""


def packages():
    """The lock against what is importable. The torch that was kept on request counts as right."""
    pins = lockfile.pins()
    kept = environment.kept_torch() if environment.running_in(environment.venv_python()) else ""
    if kept:
        pins["torch"] = kept
    wrong = lockfile.differences(pins, lockfile.installed())
    if not wrong:
        return "ok", f"{len(pins)}, as in the lock" + (f" (torch {kept} kept)" if kept else ""), ""
    wrong.sort(key=lambda item: item[0] not in ("torch", "transformers", "jupyterlab"))  # those that say most first
    shown = ", ".join(f"{name} {f'{have} instead of {want}' if have else 'missing'}" for name, want, have in wrong[:4])
    more = "" if len(wrong) <= 4 else f" and {len(wrong) - 4} more"
    return "fail", shown + more, call("lab --prepare-only") + " (brings all of it)"


def model():
    from kvcourse import models

    there, message = models.status()
    return ("ok", message, "") if there else ("fail", message.split("; run:")[0], call("model"))


def memory():
    total = memory_mb()
    if total is None:
        return "note", "size unknown; {} MB are needed".format(format(NEED_MEMORY_MB, ",")), ""
    text = "{} MB, {} needed".format(format(total, ","), format(NEED_MEMORY_MB, ","))
    return ("ok", text, "") if total >= NEED_MEMORY_MB else ("fail", text, "use a larger machine, or kv.load('tiny')")


def memory_mb():
    """Memory that this process may use in MB, a container's limit included; None where it can't be told."""
    if sys.platform == "win32":
        return _windows_memory_mb()
    sizes = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path, encoding="ascii") as file:
                sizes.append(int(file.read()))
        except (OSError, ValueError):  # no such limit, or the word "max"
            pass
    return min(sizes) // 10**6 if sizes else None


def _windows_memory_mb():
    import ctypes

    class Status(ctypes.Structure):
        _fields_ = [("size", ctypes.c_ulong), ("load", ctypes.c_ulong)] + [
            (name, ctypes.c_ulonglong) for name in ("total", "free", "page", "page_free", "own", "own_free", "more")
        ]

    status = Status(size=ctypes.sizeof(Status))
    return status.total // 10**6 if ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)) else None


def disk():
    """Room for what is still to come: the environment and the model, or only the learner's own work."""
    need = 200
    if environment.state() == "missing" and lockfile.differences(lockfile.pins(), lockfile.installed()):
        need += 2500
    free = platforms.free_mb(ROOT)
    text = "{} MB free in {}, {} needed".format(format(free, ","), ROOT, format(need, ","))
    return ("ok", text, "") if free >= need else ("fail", text, "make room")


def threads():
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return "ok", f"{cores}; lessons use one, so that a busy machine does not slow them down", ""


def compiler():
    found = next((name for name in ("c++", "g++", "clang++", "cl") if shutil.which(name)), None)
    if found:
        return "ok", f"{found} (optional)", ""
    return "note", "no C++ compiler; only two optional cells use one (compiled steps, the library's quanto)", ""


def accelerator():
    if shutil.which("nvidia-smi"):
        cards = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=10).stdout.strip()
        if cards:
            return "note", cards.splitlines()[0].split(" (UUID")[0] + " (optional)", ""
    if sys.platform == "darwin" and platform.machine() == "arm64":
        return "note", "Apple GPU; lessons stay on the CPU, so that their numbers are the same everywhere", ""
    return "note", "none; the lessons need none", ""


CHECKS = (
    ("Python", python_version),
    ("packages", packages),
    ("model", model),
    ("memory", memory),
    ("disk", disk),
    ("threads", threads),
    ("C++ compiler", compiler),
    ("accelerator", accelerator),
)
