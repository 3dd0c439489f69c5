"""A layer once more, with its tensors somewhere else.

Works for every kind of layer, since it looks at none: a layer is what its attributes hold, and those are numbers,
tensors, and lists and small objects of both.
"""

import weakref

import torch

PACKAGE = __name__.split(".")[0]
READ_ALWAYS = ("_indexer", "_position_ids")  # index keys: every step reads all of them, so they stay on the device


def moving_part(layer):
    """The part of a layer that `update` works on: the attention half of a hybrid layer, otherwise all of it."""
    return getattr(layer, "attention", layer)


def _staying(part):
    return [vars(part)[name] for name in READ_ALWAYS if name in vars(part)]


def moving_bytes(layer):
    """Bytes of a layer that leave the device with it."""
    part = moving_part(layer)
    return part.nbytes() - sum(storage.nbytes() for storage in _staying(part))


def rebuild(part, change):
    """A twin of a layer, or part of one, with `change(tensor)` in place of each tensor that moves."""
    memo = {id(storage): storage for storage in _staying(part)}
    return _rebuilt(part, change, memo)


def independent(layer):
    """A twin of a whole layer that shares no tensor with it, spare room included: to try out what an update takes."""
    return _rebuilt(layer, torch.clone, {})


def _rebuilt(thing, change, memo):
    if id(thing) in memo:
        return memo[id(thing)]
    if isinstance(thing, torch.Tensor):
        twin = change(thing)
    elif type(thing) in (list, tuple):
        twin = type(thing)(_rebuilt(item, change, memo) for item in thing)
    elif type(thing) is dict:
        twin = {key: _rebuilt(item, change, memo) for key, item in thing.items()}
    elif _is_ours(thing):
        twin = object.__new__(type(thing))  # neither __init__ nor the trimming of a copy: every slot stays
        memo[id(thing)] = twin
        vars(twin).update((name, _rebuilt(item, change, memo)) for name, item in vars(thing).items())
    else:
        return thing
    memo[id(thing)] = twin
    return twin


def leaves(part):
    """The tensors of a layer that move, and the numbers beside them: two lists, each in a fixed order."""
    tensors, numbers = [], []
    seen = {id(storage) for storage in _staying(part)}
    waiting = [part]
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, int):
            numbers.append(thing)
        elif id(thing) not in seen:
            seen.add(id(thing))
            if isinstance(thing, torch.Tensor):
                tensors.append(thing)
            elif type(thing) in (list, tuple):
                waiting.extend(thing)
            elif type(thing) is dict:
                waiting.extend(thing.values())
            elif _is_ours(thing):
                waiting.extend(vars(thing).values())
    return tensors, numbers


class Fingerprint:
    """What a layer held at one moment, to see later whether anything was written, replaced or cropped since.

    PyTorch counts the writes to each tensor; a crop changes no tensor but a length. Keeps no tensor alive. Writes to a
    tensor of inference mode are not counted, so what holds one is always taken for changed.
    """

    def __init__(self, part):
        tensors, self._numbers = leaves(part)
        self._tensors = [(weakref.ref(tensor), _writes(tensor)) for tensor in tensors]

    def still_true_of(self, part):
        """Whether the layer holds the same now."""
        tensors, numbers = leaves(part)
        return (
            numbers == self._numbers
            and len(tensors) == len(self._tensors)
            and all(
                before() is now and count is not None and count == _writes(now)
                for (before, count), now in zip(self._tensors, tensors, strict=True)
            )
        )


def _writes(tensor):
    return None if tensor.is_inference() else tensor._version


def _is_ours(thing):
    kinds = () if isinstance(thing, type) or not hasattr(thing, "__dict__") else type(thing).__mro__
    return any(kind.__module__.split(".")[0] == PACKAGE for kind in kinds)
