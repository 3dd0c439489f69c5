"""What one forward moves and multiplies: bytes of weights, bytes of cache, products.

A clock says how long a forward took on one machine, on one day. These counts say why, and are the same everywhere.
"""

from contextlib import contextmanager
from dataclasses import dataclass

from torch.nn import Embedding


@dataclass(frozen=True)
class Forward:
    """One forward pass, counted."""

    positions: int  # token positions sent through the layers, batch x tokens
    weight_bytes: int  # bytes of weights that it used, each weight once, however many tokens used it
    cache_bytes: int  # bytes of keys and values that its attention looked at, its own included; 0 without a cache
    products: int  # weights times the positions that each was multiplied with

    @property
    def read_bytes(self):
        """Bytes that had to come from memory: the weights and the cache."""
        return self.weight_bytes + self.cache_bytes


@contextmanager
def count_reads(model, cache=None):
    """Count what each forward of `model` reads and multiplies. Gives a list with one `Forward` a pass.

    >>> with count_reads(model, cache) as forwards: ...

    `cache`: the cache that the model is given, so that its tokens are counted too (full-attention layers, where a step
    looks at all that is held). The table of embeddings is looked up, a row a token, and not counted; where it serves as
    the last layer as well (tied weights), it is read there and counted there.
    """
    forwards, weights, products = [], [], []

    def used(layer, args, out):
        own = list(layer.parameters(recurse=False))
        weights.append(sum(weight.nbytes for weight in own))
        products.append(sum(weight.numel() for weight in own) * args[0].shape[:-1].numel())

    def done(model, args, kwargs, out):
        ids = args[0] if args else kwargs["input_ids"]
        held = 0 if cache is None else cache.nbytes(used=True)
        forwards.append(Forward(ids.numel(), sum(weights), held, sum(products)))
        weights.clear()
        products.clear()

    layers = [layer for layer in model.modules() if not isinstance(layer, Embedding)]
    hooks = [layer.register_forward_hook(used) for layer in layers if list(layer.parameters(recurse=False))]
    hooks.append(model.register_forward_hook(done, with_kwargs=True))
    try:
        yield forwards
    finally:
        for hook in hooks:
            hook.remove()
