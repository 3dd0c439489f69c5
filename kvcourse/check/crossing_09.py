"""For task 09c: what is written into some buffers, and nothing else that torch copies on the way."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class WriteCounter(TorchDispatchMode):
    """Count the elements that are written into `buffers` in place while this context is open, views of them included.

    What is read, gathered or copied elsewhere costs nothing here. `elements` has the sum.
    """

    def __init__(self, buffers):
        super().__init__()
        self.elements = 0
        self._buffers = list(buffers)  # kept, so that no address is used twice
        self._places = {_place(buffer) for buffer in buffers}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        for number, argument in enumerate(function._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            target = args[number] if number < len(args) else kwargs.get(argument.name)
            if isinstance(target, torch.Tensor) and _place(target) in self._places:
                self.elements += _written(function.overloadpacket.__name__, target, args)
        return function(*args, **kwargs)

    def __contains__(self, tensor):
        """Whether this tensor lies in one of the buffers."""
        return _place(tensor) in self._places


def _place(tensor):
    return tensor.untyped_storage()._cdata


def _written(name, target, args):
    """Elements of `target` that an operation writes: those that its index names, or all."""
    if name == "index_put_":
        return target[tuple(slice(None) if index is None else index for index in args[1])].numel()
    if name in ("index_copy_", "index_add_", "index_fill_"):
        return target.numel() // target.shape[args[1]] * args[2].numel()
    if name in ("scatter_", "scatter_add_"):
        return args[2].numel()
    if name in ("masked_fill_", "masked_scatter_"):
        return int(args[1].expand_as(target).sum())
    return target.numel()
