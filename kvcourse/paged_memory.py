"""Keys and values of many requests in one tensor, read by the slots that a `BlockPool` has given out.

Reading copies here, and a server has a kernel that reads keys where they lie. What a request computes is the same.
"""

import torch

from .containers import DynamicCache


class PagedMemory:
    """Keys and values of all requests, slot by slot: one tensor (layers, 2, kv_heads, slots, head_dim).

    Bytes: 2 x layers x kv_heads x head_dim x slots x itemsize, however many requests there are.
    `like`: a filled cache of one sequence, all of whose layers have the same heads.
    """

    def __init__(self, pool, like):
        states = self._stacked(like)
        slots = len(pool.users) * pool.size
        self.size, self.states = pool.size, states.new_zeros(*states.shape[:3], slots, states.shape[-1])

    def write(self, cache, slots):
        """Put the last `len(slots)` tokens of a cache into these slots."""
        self.states[:, :, :, slots] = self._stacked(cache)[:, :, :, -len(slots) :]

    def read(self, slots):
        """A cache with the tokens of these slots, in this order. A server's kernel would read them where they lie."""
        return DynamicCache([tuple(layer[:, None, :, slots]) for layer in self.states])

    def copy(self, block, copy):
        """What `BlockPool.append` asks for: the tokens of one block into another."""
        old, new = (torch.arange(self.size) + each * self.size for each in (block, copy))
        self.states[:, :, :, new] = self.states[:, :, :, old]

    @staticmethod
    def _stacked(cache):
        return torch.stack([torch.stack([layer.keys[0], layer.values[0]]) for layer in cache.layers])


@torch.no_grad()
def step(model, pool, memory, name, token):
    """Feed one token, (1, 1), to one request. Returns the token that the model puts behind it, (1, 1)."""
    cache = memory.read(pool.slots(name))
    copied = pool.append(name)
    if copied:
        memory.copy(*copied)
    logits = model(token, cache=cache).logits
    memory.write(cache, pool.slots(name)[-1:])
    return logits[:, -1:].argmax(-1)
