"""Models for the course: a real one that is fetched once, a random one, two trained toys, and any other by its name.

`load` gives a model and its tokenizer. `ensure`, `status` and `home` look after the real one and need the
standard library alone; torch and transformers are imported when a model is loaded.
"""

from functools import partial
from pathlib import Path

from . import bundled
from .bundled import ensure, status
from .store import REPAIR, ModelError, explain, home, problem

__all__ = ["KNOWN", "ModelError", "ensure", "home", "load", "status"]


def load(name="smollm2-135m", *, layer_types=None, sliding_window=None, dtype=None, device=None, threads=1, **options):
    """Return (model, tokenizer), the model in evaluation mode.

    name: a name in KNOWN, a folder, or a hub id such as "owner/model".
    layer_types, sliding_window: the same weights with sliding layers (`variants.windowed_config`);
        sliding_window alone makes every layer slide.
    dtype, device: float32 on the CPU, bfloat16 spread by accelerate where there is CUDA or a like device.
        A Mac's GPU is used only when named (device="mps"), so that the lessons' numbers compare.
    threads: torch's thread count, because short steps on several threads wait more than they compute
        (None leaves it as it is).
    options: handed to `from_pretrained`, for example attn_implementation="eager" to get attention weights.
    ValueError for an unknown name or option values that don't fit, ModelError when the model can't be had.
    """
    import torch

    place = _check_name(name)
    if threads is not None:
        torch.set_num_threads(threads)
    if device in (None, "auto"):
        here = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        device = "auto" if here and here.type != "mps" else "cpu"
    on_cpu = str(device) == "cpu"
    options["dtype"] = dtype or (torch.float32 if on_cpu else torch.bfloat16)
    options["device_map"] = None if on_cpu else device
    window = (layer_types, sliding_window)
    if place is None:
        model, tokenizer = KNOWN[name](window, options)
    else:
        from .pretrained import pretrained

        model, tokenizer = pretrained(place, window, options)
    # a folder of this machine must not show when a notebook prints one of the two
    model.config._name_or_path = model.name_or_path = tokenizer.name_or_path = str(name)
    return model.eval(), tokenizer


def _check_name(name):
    """None for a known name, a Path for a folder, a str for a hub id; ValueError for anything else."""
    if name in KNOWN:
        return None
    folder = Path(name).expanduser()
    if str(name) and folder.is_dir():
        return folder
    if isinstance(name, str) and name.count("/") == 1 and name[0] not in "./~":
        return name
    known = ", ".join(map(repr, KNOWN))
    raise ValueError(f"There is no model {str(name)!r}; known are {known}, and any folder or hub id (owner/name)")


def _smollm2(window, options):
    """The real model: made when it is missing, refused when it was damaged."""
    folder = home() / bundled.NAME
    try:
        found = problem(folder, bundled.RECIPE)
    except OSError as error:
        raise explain(error, folder) from error
    if found and found.kind == "damaged":
        raise ModelError(f"{found.what}; to repair the model run: {REPAIR}")
    if found:
        ensure()
    from .pretrained import pretrained

    return pretrained(folder, window, dict(options, local_files_only=True))


def _tiny(window, options):
    """A random model, the same each time; nothing is read from disk."""
    from .tiny import tiny_model, tiny_tokenizer

    print("tiny is a random model: it works like a real one, but its words are nonsense.")
    return tiny_model(window, **options), tiny_tokenizer()


def _toy(name, window, options):
    """A small model that was trained for the course; its files come with the package."""
    from .toys import load_toy

    return load_toy(name, window, options)


# name -> function(window, options) that returns (model, tokenizer)
KNOWN = {
    bundled.NAME: _smollm2,
    "tiny": _tiny,
    "toy-t5": partial(_toy, "toy-t5"),
    "toy-mamba": partial(_toy, "toy-mamba"),
}
