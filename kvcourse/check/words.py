"""Compare what was expected with what came, and say the first difference in words."""

import torch

AXES = {4: ("batch", "kv_heads", "kv_len", "head_dim")}  # the layout of the course
PLACES = {4: ("sequence", "head", "token", "channel")}  # and what one index along each axis is


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
    if isinstance(expected, bool) or isinstance(came, bool) or not isinstance(expected, (int, float)):
        return type(expected) is type(came) and expected == came
    if not isinstance(came, (int, float)):
        return False
    return abs(expected - came) <= tolerance * max(1, abs(expected))


def difference(expected, came, tolerance=0.0):
    """(expected, came) in words, cut down to the first place where they differ; `tolerance` as in `same`."""
    expected, came = _plain(expected), _plain(came)
    if not (isinstance(expected, torch.Tensor) and isinstance(came, torch.Tensor)):
        return words(expected), words(came)
    if expected.shape != came.shape:
        return words(expected), words(came)
    if expected.dtype != came.dtype:
        return f"numbers of type {expected.dtype}", f"numbers of type {came.dtype}"
    apart = ~torch.isclose(expected, came, rtol=tolerance, atol=tolerance) if tolerance else expected != came
    place = tuple(apart.nonzero()[0].tolist())
    names = PLACES.get(expected.ndim, [""] * expected.ndim)
    at = ", ".join(f"{name} {index}".strip() for name, index in zip(names, place, strict=True))
    at = at if expected.ndim in PLACES else f"index {at}" if expected.ndim == 1 else f"[{at}]"
    return f"{expected[place].item():g} at {at}", f"{came[place].item():g} there"


class Phrase(str):
    """A value that is a description already: shown as it is, without quotes."""


def words(value):
    """A value as a short phrase."""
    value = _plain(value)
    if isinstance(value, Phrase):
        return str(value)
    if isinstance(value, torch.Tensor):
        layout = f" = ({', '.join(AXES[value.ndim])})" if value.ndim in AXES else ""
        return f"a tensor of shape {tuple(value.shape)}{layout}"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:,}"
    if value is None or isinstance(value, (bool, str)):
        return repr(value)
    if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, list) and len(value) > 16:
        return f"[{', '.join(map(words, value[:8]))}, ... {words(value[-1])}], {len(value)} in all"
    text = repr(value)
    return text if len(text) < 80 and " at 0x" not in text else f"an object of type {type(value).__name__}"


def _plain(value):
    """The Python number in a tensor or array of one number without axes; anything else as it is."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value
