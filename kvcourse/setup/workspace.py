"""`work/`: the learner's own copies of lessons, exercises and solutions, with outputs cleared.

A copy that the learner changed is never overwritten. When the original has moved on since, the newer version is laid
beside the copy, once: `02_bytes.new.ipynb`. What was laid is remembered in work/.kvcourse/manifest.json as hashes:
{"notebooks/02_bytes.ipynb": {"copy": hash, "beside": hash}}.
"""

import hashlib
import json
import os

from . import ROOT

FOLDERS = ("notebooks", "exercises", "solutions")  # solutions too: exercises link to ../solutions/
WORK = os.path.join(ROOT, "work")


def cleared(path):
    """Bytes of the file as a learner gets it: a notebook without outputs and counts, anything else as it is."""
    with open(path, "rb") as file:
        data = file.read()
    if not path.endswith(".ipynb"):
        return data
    notebook = json.loads(data.decode("utf-8"))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = []
            cell["execution_count"] = None
            cell.get("metadata", {}).pop("execution", None)  # times of the run that wrote the outputs
    notebook.get("metadata", {}).pop("widgets", None)
    return (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode("utf-8")


def sources(root=ROOT):
    """Relative paths, with forward slashes, of all that is copied; caches and hidden files are not."""
    found = []
    for top in FOLDERS:
        for folder, folders, files in os.walk(os.path.join(root, top)):
            folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
            for name in sorted(files):
                if not name.startswith(".") and not name.endswith(".pyc"):
                    found.append(os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/"))
    return found


def lay_out(root=ROOT, work=WORK, say=print):
    """Bring `work` up to date with the originals in `root`.

    Returns {"new": n, "updated": n, "kept": n, "beside": n}: files written, replaced, left as the learner
    changed them, and newer versions laid beside those.
    """
    manifest_path = os.path.join(work, ".kvcourse", "manifest.json")
    manifest = _read(manifest_path)
    count = {"new": 0, "updated": 0, "kept": 0, "beside": 0}
    for name in sources(root):
        data = cleared(os.path.join(root, *name.split("/")))
        copy = os.path.join(work, *name.split("/"))
        entry = manifest.setdefault(name, {})
        now, original = _hash_of(copy), _hash(data)
        if now is None:
            _write(copy, data)
            count["new"] += 1
        elif now == original:
            pass
        elif now == entry.get("copy"):
            _write(copy, data)
            count["updated"] += 1
        else:
            count["kept"] += 1
            if original not in (entry.get("copy"), entry.get("beside")):
                beside = _free_name(copy, entry.get("beside"))
                _write(beside, data)
                entry["beside"] = original
                count["beside"] += 1
                say(f"  {name}: you changed your copy, it stays; the newer version is {os.path.basename(beside)}")
            continue
        entry["copy"] = original
        entry.pop("beside", None)
    _write(manifest_path, (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode("utf-8"))
    return count


def _free_name(copy, laid):
    """A name beside `copy` that is unused, or holds a newer version which we laid and nobody touched since."""
    stem, ending = os.path.splitext(copy)
    number = 1
    while True:
        name = "{}.new{}{}".format(stem, number if number > 1 else "", ending)
        if _hash_of(name) in (None, laid):
            return name
        number += 1


def _hash(data):
    """Hash of what a person could have changed: JupyterLab writes other metadata when it only opens a notebook."""
    try:
        notebook = json.loads(data.decode("utf-8"))
        cells = [
            {part: cell.get(part) for part in ("cell_type", "outputs", "execution_count")}
            | {"source": "".join(cell["source"])}
            for cell in notebook["cells"]
        ]
        data = json.dumps(cells, sort_keys=True).encode("utf-8")
    except (ValueError, KeyError, TypeError, AttributeError):
        pass  # not a notebook
    return hashlib.sha256(data).hexdigest()


def _hash_of(path):
    """Hash of a file, or None when there is none."""
    try:
        with open(path, "rb") as file:
            return _hash(file.read())
    except FileNotFoundError:
        return None


def _read(path):
    """The manifest; an unreadable one counts as empty, which makes every differing copy a changed one."""
    try:
        with open(path, encoding="utf-8") as file:
            manifest = json.load(file)
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _write(path, data):
    """Write aside, then rename: a copy is whole or not there."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part = path + ".part"
    with open(part, "wb") as file:
        file.write(data)
    os.replace(part, path)
