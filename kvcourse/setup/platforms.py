"""Machines that the course can't run on, refused in one sentence with the way out, and how much room there is."""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys

from . import SetupError, call

OLDEST = (3, 11)
NEWER = ["python3.13", "python3.12", "python3.11", "python3.14"]  # in the order we would advise them


def refuse_old_python(version=None, runs=None):
    """SetupError when `version` (default: of this Python) is below 3.11; names a newer one that is on the PATH."""
    version = tuple(version or sys.version_info)[:2]
    if version >= OLDEST:
        return
    found = next((name for name in NEWER if (runs or _runs)(name)), None)
    sentence = f"this is Python {version[0]}.{version[1]}, the course needs 3.11 or newer; "
    if found:
        sentence += found + " is on this machine, so start the course with it:"
        raise SetupError(sentence, found + " -m kvcourse lab        (or: make lab PYTHON=" + found + ")")
    sentence += "install one from your system's packages, conda-forge or python.org, for example:"
    raise SetupError(sentence, "conda env create -f environment.yml && conda activate kvcourse")


def _runs(name):
    """Whether `name` is a program here that starts; a version manager's stub may exist and start nothing."""
    try:
        return subprocess.call([name, "-c", ""], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def refuse_intel_mac(system=None, machine=None):
    """SetupError on a Mac with an Intel processor: torch has no builds for it since 2.3."""
    if (system or sys.platform) == "darwin" and (machine or platform.machine()) == "x86_64":
        raise SetupError(
            "torch is no longer built for Macs with an Intel processor (or for an Intel Python on Apple silicon: "
            "there, take an arm64 Python); on this Mac the way out is a Linux container, or the course on Binder:",
            'docker run -it --rm -p 8888:8888 -v "$PWD":/course -w /course python:3.12 '
            "make lab ARGS='--ip 0.0.0.0 --no-browser'",
        )


def refuse_missing_venv(find=importlib.util.find_spec):
    """SetupError when Python came without ensurepip, as Debian and Ubuntu ship it."""
    if find("ensurepip") and find("venv"):
        return
    raise SetupError(
        "this Python comes without the parts that make an environment (venv, ensurepip); Debian and Ubuntu keep "
        "them in a package of their own:",
        f"sudo apt-get install python{sys.version_info[0]}.{sys.version_info[1]}-venv",
    )


def free_mb(folder):
    """Free disk space in MB at `folder` or the nearest parent that exists."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return shutil.disk_usage(folder).free // 10**6


def refuse_full_disk(folder, need, free=None):
    """SetupError when fewer than `need` MB are free at `folder`."""
    free = free_mb(folder) if free is None else free
    if free < need:
        raise SetupError(
            f"the environment needs {need} MB in {folder}, {free} free; make room, or take a larger disk, then:",
            call("lab"),
        )


def describe():
    """One line: system, processor, Python."""
    return f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
