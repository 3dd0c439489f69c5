"""Run notebooks in place and store their outputs in a form that is the same on every run.

    python tests/notebooks.py                                      all of notebooks/ and solutions/
    python tests/notebooks.py notebooks/02_dynamic_cache.ipynb     some of them
    python tests/notebooks.py --from lesson.py notebooks/02_dynamic_cache.ipynb
                                                                   written anew from a jupytext percent script, then run

A cell that ends in an error or writes to stderr is named, its notebook is left as it was, and the exit code is 1.
"""

import argparse
import contextlib
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "PYTHONUTF8": "1"}
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
WIDGET = "application/vnd.jupyter.widget-view+json"


class Failed(Exception):
    """A notebook that does not run cleanly; the message names the cell."""


def execute(notebook, folder, timeout=300):
    """Run every cell in the kernel of this Python, outputs stored in the notebook. Returns (seconds, cell) of the
    slowest cell. Raises Failed at the first error, and after the run if a cell wrote to stderr."""
    begin, seconds = {}, {}

    def started(cell, cell_index, **_):
        begin[cell_index] = time.perf_counter()

    def ended(cell, cell_index, **_):
        seconds[cell_index] = time.perf_counter() - begin[cell_index]

    client = NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        store_widget_state=False,
        extra_arguments=["--log-level=ERROR"],  # else each kernel warns that it listens on TCP
        on_cell_start=started,
        on_cell_executed=ended,
    )
    with tempfile.TemporaryDirectory() as scratch:  # nobody's IPython start-up files
        try:
            client.execute(env=dict(os.environ, **ENVIRONMENT, IPYTHONDIR=scratch))
        except (CellExecutionError, CellTimeoutError) as error:
            index = max(begin)
            raise Failed(f"{name_of(notebook, index)}\n{without_colour(str(error))}") from None
    for index, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", ()):
            if output.output_type == "error" or output.get("name") == "stderr":
                text = output.get("text") or "\n".join(output.get("traceback", ()))
                raise Failed(f"{name_of(notebook, index)} wrote to stderr:\n{without_colour(text)}")
    return max((spent, index) for index, spent in seconds.items()) if seconds else (0, 0)


def name_of(notebook, index):
    """A cell as a reader would look for it: its place and its first line."""
    source = notebook.cells[index].source.strip()
    return f"cell {index + 1}, `{source.splitlines()[0] if source else ''}`"


def normalise(notebook):
    """Drop or fix all that changes from run to run or machine to machine and says nothing."""
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict(METADATA)
    ids = [cell.get("id") for cell in notebook.cells]
    keep_ids = None not in ids and len(set(ids)) == len(ids)
    widgets = 0
    for number, cell in enumerate(notebook.cells, 1):
        if not keep_ids:
            cell["id"] = f"cell-{number:02}"
        for key in ("execution", "lines_to_next_cell", "lines_to_end_of_cell_marker"):
            cell.metadata.pop(key, None)  # times of a run, traces of a conversion
        if cell.cell_type != "code":
            cell.pop("attachments", None)
            continue
        cell.outputs = merged(cell.outputs)
        for output in cell.outputs:
            if WIDGET in output.get("data", {}):
                widgets += 1
                output.data[WIDGET]["model_id"] = f"widget-{widgets:02}"  # a random number otherwise
    return notebook


def merged(outputs):
    """Neighbouring pieces of one stream as one: where the kernel cut them is chance."""
    result = []
    for output in outputs:
        last = result[-1] if result else {}
        if output.output_type == "stream" and last.get("name") == output.name:
            last["text"] += output.text
        else:
            result.append(output)
    return result


def from_script(script):
    """A notebook from a jupytext percent script. Tags and other metadata stand in its `# %%` markers."""
    import jupytext

    notebook = jupytext.read(script, fmt="py:percent")
    for number, cell in enumerate(notebook.cells, 1):
        cell["id"] = f"cell-{number:02}"  # jupytext would choose random ones
    return notebook


def without_colour(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def text_of(notebook):
    """A valid notebook as the text of its file: keys sorted, one trailing newline."""
    nbformat.validate(notebook)
    return nbformat.writes(notebook, version=4).rstrip("\n") + "\n"


def write(notebook, path):
    """Store it, never half of it."""
    part = path.with_suffix(".part")
    part.write_text(text_of(notebook), encoding="utf-8", newline="\n")
    part.replace(path)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="script", metavar="SCRIPT", help="write the one notebook anew from this script")
    parser.add_argument("--timeout", type=int, default=300, help="seconds for a cell")
    parser.add_argument("paths", nargs="*", type=Path)
    options = parser.parse_args(argv)
    paths = options.paths or sorted([*ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("solutions/*.ipynb")])
    if options.script and len(options.paths) != 1:
        parser.error("--from needs exactly one notebook to write")
    failed = 0
    for path in paths:
        begin = time.perf_counter()
        try:
            notebook = from_script(options.script) if options.script else nbformat.read(path, as_version=4)
            slowest, index = execute(normalise(notebook), path.resolve().parent, options.timeout)
            write(normalise(notebook), path)
        except Failed as error:
            failed += 1
            print(f"FAIL  {path}: {error}", flush=True)
            continue
        took = time.perf_counter() - begin
        print(f"ok    {path}: {took:.0f} s, the slowest cell {slowest:.1f} s ({name_of(notebook, index)})", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(encoding="utf-8")
    sys.exit(main())
