"""Tensors that a cache may keep: memory of its own, which it can write to whenever it likes."""

import torch


def ordinary(shape, like, dtype=None):
    """An uninitialised tensor of `shape` on `like`'s device that may be written from any mode later.

    A tensor made under `torch.inference_mode()` can never be changed outside of it. A cache that was
    filled there would be frozen for good, so buffers are always made outside. Pinned like `like`: an
    offloaded layer stays in memory that the device reads directly when it grows.
    """
    dtype = dtype or like.dtype
    pin = like.device.type == "cpu" and torch.cuda.is_available() and like.is_pinned()
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():  # a compiled step can't ask
        return torch.empty(shape, dtype=dtype, device=like.device, pin_memory=pin)
    with torch.inference_mode(False):
        return torch.empty(shape, dtype=dtype, device=like.device, pin_memory=pin)


def trimmed(tensor):
    """An independent copy of a view: no gradient, no spare capacity, no shared memory."""
    with torch.no_grad():
        return ordinary(tensor.shape, tensor).copy_(tensor.detach())


def owned(tensor):
    """A copy that belongs to the cache alone; it stays part of the graph where autograd follows."""
    return tensor.clone() if tracks(tensor) else trimmed(tensor)


def frozen(tensor):
    """Whether a tensor can't be written now: it was made in inference mode, by a compiled step, a load or a caller."""
    if torch.compiler.is_compiling():
        return False
    return tensor.is_inference() and not torch.is_inference_mode_enabled()


def tracks(*tensors):
    """Whether autograd follows an operation on these tensors."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def lies_on(tensor, device):
    """Whether a tensor lies on `device`, where "cuda" names every CUDA device and None every device."""
    if device is None:
        return True
    try:
        device = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"no device is called {device!r}: {error}") from None
    return tensor.device.type == device.type and device.index in (None, tensor.device.index)
