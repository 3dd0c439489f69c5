"""Compare what was expected with what came, and say the first difference in words."""

import numpy as np
import torch

# The layout of the course: each axis, and what one index along it is.
LAYOUT = {"batch": "sequence", "kv_heads": "head", "kv_len": "token", "head_dim": "channel"}


def same(expected, came, tolerance=0.0):
    """Whether two results agree: numbers and tensors within `tolerance` (relative to 1 or to their size)."""
    expected, came = _plain(expected), _plain(came)
    if isinstance(expected, torch.Tensor):
        if not isinstance(came, torch.Tensor) or expected.shape != came.shape or expected.dtype != came.dtype:
            return False
        return torch.allclose(expected, came, rtol=tolerance, atol=tolerance) if tolerance else expected.equal(came)
    if isinstance(expected, (list, tuple)):
        fits = isinstance(came, (list, tuple)) and len(came) == len(expected)
        return fits and all(same(a, b, tolerance) for a, b in zip(expected, came, strict=True))
    if isinstance(came, np.ndarray):
        return False
    if isinstance(expected, bool) or isinstance(came, bool) or not isinstance(expected, (int, float)):
        return type(expected) is type(came) and expected == came
    if not isinstance(came, (int, float)):
        return False
    return abs(expected - came) <= tolerance * max(1, abs(expected))


def difference(expected, came, tolerance=0.0, layout=LAYOUT):
    """(expected, came) in words, cut down to the first place where they differ; `tolerance` as in `same`.

    `layout`: the axes of tensors that have as many, by name, and what one index along each is."""
    expected, came = _plain(expected), _plain(came)
    if not (isinstance(expected, torch.Tensor) and isinstance(came, torch.Tensor)):
        return words(expected, layout), words(came, layout)
    if expected.shape != came.shape:
        return words(expected, layout), words(came, layout)
    if expected.dtype != came.dtype:
        return f"numbers of type {expected.dtype}", f"numbers of type {came.dtype}"
    apart = ~torch.isclose(expected, came, rtol=tolerance, atol=tolerance) if tolerance else expected != came
    place = tuple(apart.nonzero()[0].tolist())
    if expected.ndim == len(layout):
        at = ", ".join(f"{name} {index}" for name, index in zip(layout.values(), place, strict=True))
    else:
        at = f"index {place[0]}" if expected.ndim == 1 else str(list(place))
    return f"{expected[place].item():g} at {at}", f"{came[place].item():g} there"


class Phrase(str):
    """A value that is a description already: shown as it is, without quotes."""


def words(value, layout=LAYOUT):
    """A value as a short phrase; `layout` as in `difference`."""
    value = _plain(value)
    if isinstance(value, Phrase):
        return str(value)
    if isinstance(value, torch.Tensor):
        axes = f" = ({', '.join(layout)})" if value.ndim == len(layout) else ""
        return f"a tensor of shape {tuple(value.shape)}{axes}"
    if isinstance(value, np.ndarray):
        return f"a NumPy array of shape {value.shape}, not a tensor"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:,}"
    if value is None or isinstance(value, (bool, str)):
        return repr(value)
    if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, list) and len(value) > 16:
        return f"[{', '.join(map(words, value[:8]))}, ... {words(value[-1])}], {len(value)} in all"
    if isinstance(value, list) and "?" in value:
        return f'{value!r}, where "?" is none of what was handed over'
    text = repr(value)
    return text if len(text) < 80 and " at 0x" not in text else f"an object of type {type(value).__name__}"


def _plain(value):
    """The Python number in a tensor or array of one number without axes; anything else as it is."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value
