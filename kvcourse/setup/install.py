"""What pip is asked for, what it will cost, and what it says when it fails."""

import json
import os
import re
import subprocess
import sys
import time

from . import LOCK, ROOT, SetupError, call, lockfile, pip_errors, platforms

# MB on the disk while installing (downloads, then files), and MB to download: measured, rounded up
NEED_MB = {"cpu": 2500, "cuda": 9000, "kept": 1500}
FETCH_MB = {"cpu": 350, "cuda": 2500, "kept": 150}
# one quick answer instead of minutes of retries; no questions: there may be nobody to answer
_PIP = ["-m", "pip", "--disable-pip-version-check", "--no-input", "--retries", "2", "--timeout", "20"]


def packages(python, kept_version="", begin=lambda: None):
    """Bring the environment of `python` up to the lock. `begin()` is called before anything in it changes.

    `kept_version` is the version of a torch outside, which stays. All else must lie inside, even where the
    same version can be imported from beside that torch: JupyterLab finds its pages only in its own environment.
    """
    pins = lockfile.pins()
    present = _present(python)
    if kept_version:
        pins.pop("torch")
    missing = lockfile.differences(pins, present["inside"])
    if not missing and present["editable"]:
        return  # pyproject.toml changed in something that pip has no part in
    if missing:
        build = "kept" if kept_version else _torch_build(python, pins["torch"], [name for name, _, _ in missing])
        announce(missing, build)
    begin()
    started = time.monotonic()
    install = [python] + _PIP + ["install", "--progress-bar", "off", "-c", _constraint(kept_version)]
    if kept_version and missing:
        _pip(install + ["--no-deps", "--ignore-installed"] + [f"{name}=={version}" for name, version, _ in missing])
    # "compat" puts the clone itself on the path; with a finder, a folder named kvcourse in which Python is started wins
    _pip(install + ["--config-settings", "editable_mode=compat", "-e", ".[test]"])
    print(f"  installed in {time.monotonic() - started:.0f} s")


def announce(missing, build):
    """Say what comes, how large it is and how much room there is; SetupError when there is clearly too little."""
    torch = any(name == "torch" for name, _, _ in missing)
    size, need = (FETCH_MB[build], NEED_MB[build]) if torch or len(missing) > 20 else (100, 300)
    print(f"  fetches   {len(missing)} of {len(lockfile.pins())} packages, {size:,} MB at most")
    if build == "cuda" and torch:
        print(
            "            most of it is torch: the index offers Linux a build for NVIDIA cards. The course runs on the"
        )
        print("            CPU; to save the download stop now (Ctrl-C), then give pip a place with a CPU build")
        print("            (PIP_FIND_LINKS=FOLDER) or keep a torch that you have ({})".format(call("lab --keep-torch")))
    print("  disk      {} MB free, {} MB needed".format(format(platforms.free_mb(ROOT), ","), format(need, ",")))
    platforms.refuse_full_disk(ROOT, need)


def torch_build(versions, pinned, system=None):
    """Which build of torch pip would take of these `versions`: `cpu`, `cuda`, or None when none is the pinned one.

    A local part (`+cpu`) sorts above the plain release, so pip prefers it. The plain one is a CPU build on Windows and
    macOS, and on Linux a build for NVIDIA cards.
    """
    exact = [version for version in versions if lockfile.release(version) == pinned]
    if not exact:
        return None
    return "cpu" if pinned + "+cpu" in exact or (system or sys.platform) != "linux" else "cuda"


def _torch_build(python, pinned, missing):
    """Ask the index: its answer decides what to announce, and shows at once when it can't be reached."""
    if "torch" not in missing:
        return "cpu"
    done = subprocess.run([python] + _PIP + ["index", "versions", "torch"], capture_output=True, text=True)
    listed = re.search(r"Available versions: (.+)", done.stdout)
    if listed:
        build = torch_build([version.strip() for version in listed[1].split(",")], pinned)
        if build:
            return build
        done.stderr = f"No matching distribution found for torch=={pinned} (from versions: {listed[1]})"
    elif not re.search(r"No matching distribution|requirement", done.stdout + done.stderr):
        return "cuda" if sys.platform == "linux" else "cpu"  # a pip that has no such question: assume the larger
    else:
        done.stderr += "\n(from versions: none)"
    raise SetupError(*pip_errors.explain(done.stdout + done.stderr, python=platforms.describe()))


def _present(python):
    """What the environment has, asked of its own Python: {"inside": {name: version}, "editable": bool}."""
    ask = (
        f"import sys, json, sysconfig; sys.path.append({ROOT!r})\n"
        "inside = [sysconfig.get_path('purelib'), sysconfig.get_path('platlib')]\n"
        "from kvcourse.setup import ROOT, environment, lockfile\n"
        "print(json.dumps({'inside': lockfile.installed(inside),"
        " 'editable': environment.installed_from(ROOT, inside)}))"
    )
    return json.loads(subprocess.check_output([python, "-I", "-c", ask], text=True))


def _constraint(kept_version):
    """The lock, or a copy in .venv that pins the torch which is kept."""
    if not kept_version:
        return LOCK
    with open(LOCK, encoding="utf-8") as file:
        text = re.sub(r"(?m)^torch==.*$", "torch==" + kept_version, file.read())
    path = os.path.join(ROOT, ".venv", "kvcourse-constraint.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _pip(command):
    """Run pip and show its large steps as they happen; SetupError when it fails. All it says is in kvcourse-pip.log."""
    env = dict(os.environ, PIP_USER="0", PYTHONUTF8="1")
    lines = []
    pip = subprocess.Popen(
        command,
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    with open(os.path.join(ROOT, ".venv", "kvcourse-pip.log"), "a", encoding="utf-8") as log:
        try:
            for line in pip.stdout:
                lines.append(line)
                log.write(line)
                _show(line, sum(line.startswith("Collecting") for line in lines))
        except BaseException:  # Ctrl-C: pip must not go on alone
            pip.kill()
            raise
        finally:
            code = pip.wait()
    if code:
        raise SetupError(*pip_errors.explain("".join(lines), python=platforms.describe()))


def _show(line, found):
    """One line of pip's output, shown when it tells of a large step; `found` packages were collected so far."""
    large = re.match(r"\s*Downloading .*?([^/\s]+\.whl) (\(\d{2,}(?:\.\d+)? MB\))", line)
    at_hand = re.match(r"\s*Processing .*?(torch-[^/\s]+\.whl)", line)
    if line.startswith("Collecting") and found % 25 == 0:
        print(f"  {found} packages found")
    elif large:
        print(f"  fetching {large[1]} {large[2]}")
    elif at_hand:
        print(f"  taking {at_hand[1]}, a build at hand")
    elif line.startswith("Installing collected packages"):
        print(f"  installing {line.count(',') + 1} packages; this takes a minute or two")
