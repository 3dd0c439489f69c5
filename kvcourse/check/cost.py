"""What an answer costs: elements copied, elements held."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# make room without reading any tensor's elements
BLANK = ("empty", "zeros", "ones", "full", "new_empty", "new_zeros", "new_ones", "new_full", "empty_strided")
BLANK += ("empty_like", "zeros_like", "ones_like", "full_like", "new_empty_strided")


class CopyCounter(TorchDispatchMode):
    """Count the elements that torch moves from one tensor into another while this context is open.

    Views cost nothing, nor does fresh room (empty, zeros). Writing in place costs the elements written, making a new
    tensor out of others costs the elements read from them, as far as they end up in the result. `elements` has the sum.
    """

    def __init__(self):
        super().__init__()
        self.elements = 0
        self._blank = {}  # address -> storage made but not written yet; kept so that no address is used twice

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        inputs = list(_tensors([*args, *(kwargs or {}).values()]))
        if name in BLANK:
            self._blank[_address(result)] = result.untyped_storage()
        elif function._schema.is_mutable:
            self._count(inputs[1:], inputs[0])
            if name not in ("zero_", "fill_"):
                self._blank.pop(_address(inputs[0]), None)
        else:
            for output in _tensors([result]):
                if _address(output) not in {_address(tensor) for tensor in inputs}:
                    self._count(inputs, output)
        return result

    def _count(self, sources, target):
        read = sum(
            tensor.numel()
            for tensor in sources
            if _address(tensor) not in self._blank and tensor.is_floating_point() == target.is_floating_point()
        )
        self.elements += min(read, target.numel())


def held(thing):
    """Elements in the tensors that an object keeps in its attributes, each storage once and whole."""
    storages = {_address(tensor): tensor for tensor in _tensors([vars(thing)])}
    return sum(tensor.untyped_storage().nbytes() // tensor.element_size() for tensor in storages.values())


def tokens_in(layer, elements):
    """Tokens that a layer keeps, `elements` numbers each: what its tensors show, whatever memory is behind them."""
    shown = {(tensor.data_ptr(), tensor.shape): tensor for tensor in _tensors([vars(layer)])}
    return sum(tensor.numel() for tensor in shown.values() if tensor.is_floating_point()) // elements


def _address(tensor):
    return tensor.untyped_storage()._cdata


def _tensors(values):
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(value.values())
