"""The prefetcher: which layer is on the device when."""

import operator
from dataclasses import dataclass
from typing import Any

import torch

from .link import placed
from .twin import Fingerprint, leaves, moving_bytes, moving_part, rebuild


@dataclass
class Copy:
    """A layer's tensors on the device, as they are on their way or as they have arrived."""

    source: Fingerprint  # what the host held when the copy was made
    handle: Any  # the link's, while on their way
    tensors: list | None  # once they have arrived, in the order of `leaves`
    nbytes: int


class Offloader:
    """Brings the layers of one cache to the device when it is their turn, and the ones after them ahead of time.

    An offloaded layer lives on the host, always complete, so that whoever asks, crops, reorders, copies or resets it
    need not know. An `update` happens twice: on a twin of the layer, made of the copies on the device, for the
    attention that waits for it; and on the host, for which only what is new has to cross the link.

    On the device at any moment: the layer that computes and the `depth` layers after it, counted in a circle, or fewer
    where a prefetch finds no room. Sliding layers stay there if `only_non_sliding`; so do linear states and index keys.
    The other layers are evicted by the update that brings new ones. A copy whose layer was changed on the host in the
    meantime is of no use, and is fetched anew.

    `depth` may be set at any time. A copy or a pickle is as new: it holds no stream, thread, copy or timeline.
    """

    def __init__(self, depth=1, only_non_sliding=True):
        self.depth, self.only_non_sliding = depth, only_non_sliding
        self.log = []
        self._link = None
        self._copies = {}
        self._written = {}  # layer index -> when its last write-back was over

    def __reduce__(self):
        return Offloader, (self.depth, self.only_non_sliding)

    @classmethod
    def take_over(cls, cache):
        """Offload a cache that was resident so far."""
        cache.offloading, cache.offloader = True, cls(only_non_sliding=cache.only_non_sliding)
        for layer in filter(cache.offloader.moves, cache.layers):
            _at_home(moving_part(layer))

    @property
    def depth(self):
        """How many layers are fetched ahead."""
        return self._depth

    @depth.setter
    def depth(self, depth):
        if operator.index(depth) < 0:
            raise ValueError(f"depth is the number of layers to fetch ahead, 0 or more; got {depth}")
        self._depth = depth

    @property
    def timeline(self):
        """What happened to the layers of this cache, as `Event`s in order of time."""
        return [] if self._link is None else self._link.resolve(self.log)

    def moves(self, layer):
        """Whether a layer lives on the host."""
        return not (layer.is_dummy or layer.is_linear or (layer.is_sliding and self.only_non_sliding))

    def resident(self, layers):
        """{layer index: bytes} of the copies on the device. Those outdated by a change on the host are dropped."""
        for layer_idx, copy in list(self._copies.items()):
            if layer_idx >= len(layers) or not copy.source.still_true_of(moving_part(layers[layer_idx])):
                del self._copies[layer_idx]
        return {layer_idx: copy.nbytes for layer_idx, copy in self._copies.items()}

    def nbytes(self, layers, device=None):
        """Bytes of the copies on `device` (None: on any). 0 where host and device are the same memory."""
        if self._link is None or not self._link.crosses:
            return 0
        here = self._link.device if self._link.device.type != "cpu" else "emulated"
        if device is not None and here != "emulated" and device != "emulated":
            asked = torch.device(device)
            device = here if asked.type == here.type and asked.index in (None, here.index) else asked
        return sum(self.resident(layers).values()) if device in (None, here) else 0

    # The changes

    def update(self, cache, layer_idx, link, key_states, value_states, *args, **kwargs):
        """What `Cache.update` does to an offloaded layer. States as there; what is returned lies on the device."""
        layers, part = cache.layers, moving_part(cache.layers[layer_idx])
        cache.check_room(layer_idx, key_states.shape[-2])
        coming = self._after(layers, layer_idx)
        self._copies = {index: copy for index, copy in self._copies.items() if index in (layer_idx, *coming)}
        copy = self._bring(layers, layer_idx)
        on_device = dict(zip(map(id, leaves(part)[0]), copy.tensors, strict=True))
        twin = rebuild(part, lambda tensor: on_device[id(tensor)]) if link.crosses else part
        twin.check_update(key_states, value_states)
        try:
            states = twin.update(key_states, value_states, *args, **kwargs)
            self._reserve(moving_bytes(twin) - copy.nbytes, layer_idx)  # no room: the host has not changed
            news = part.news(twin, key_states, value_states) if link.crosses else (key_states, value_states)
            news, self._written[layer_idx] = link.write_back(self.log, layer_idx, news)
            if link.crosses:
                part.follow(twin, news)
        except BaseException:
            del self._copies[layer_idx]  # half-written
            raise
        self._copies[layer_idx] = Copy(Fingerprint(part), None, leaves(twin)[0], moving_bytes(twin))
        for index in coming:
            if not self._ahead(layers, index):
                break
        link.compute(self.log, layer_idx, key_states.shape[-2])
        return states

    def prefetch(self, layers, layer_idx, only_non_sliding):
        """Bring the next layer that is offloaded, counted in a circle from `layer_idx`, to the device ahead of time."""
        for index in self._circle(layers, layer_idx if layer_idx < len(layers) else 0):
            if not (only_non_sliding and layers[index].is_sliding):
                if self._link is not None and self._link.is_open:  # before the first update no device is known
                    self._fetch(layers, index, ahead=True)
                return

    def evict(self, layer_idx):
        """Take a layer's copy off the device. The host has it."""
        self._copies.pop(layer_idx, None)

    def use(self, link):
        """Work over `link` from now on. What lay behind another one is forgotten: the host has it all."""
        if link is not self._link:
            self._link, self.log = link, []
            self._copies.clear()
            self._written.clear()

    def _circle(self, layers, start):
        """Indices of the offloaded layers from `start` on, once around."""
        return [i % len(layers) for i in range(start, start + len(layers)) if self.moves(layers[i % len(layers)])]

    def _after(self, layers, layer_idx):
        return [index for index in self._circle(layers, layer_idx + 1) if index != layer_idx][: self.depth]

    def _bring(self, layers, layer_idx):
        """A copy of the layer as it is now, arrived."""
        self._fetch(layers, layer_idx)
        copy = self._copies[layer_idx]
        if copy.tensors is None:
            try:
                copy.tensors, copy.handle = self._link.wait(copy.handle), None
            except BaseException:
                del self._copies[layer_idx]
                raise
        return copy

    def _ahead(self, layers, layer_idx):
        """Fetch a layer before its turn. Where there is no room for it, it has to wait for its turn: False."""
        try:
            self._fetch(layers, layer_idx, ahead=True)
        except torch.OutOfMemoryError:
            return False
        return True

    def _reserve(self, nbytes, layer_idx):
        """Room for the layer whose turn it is; where it is short, layers that were fetched ahead have to go."""
        try:
            return self._link.reserve(nbytes)
        except torch.OutOfMemoryError:
            self._copies = {index: copy for index, copy in self._copies.items() if index == layer_idx}
        self._link.reserve(nbytes)

    def _fetch(self, layers, layer_idx, ahead=False):
        """Begin to fetch the layer, unless a copy of it as it is now is there or on its way."""
        if layer_idx in self.resident(layers):
            return
        part = moving_part(layers[layer_idx])
        tensors, nbytes = _at_home(part), moving_bytes(part)
        self._link.reserve(nbytes) if ahead else self._reserve(nbytes, layer_idx)
        source, handle = Fingerprint(part), None
        if tensors:
            handle = self._link.fetch(self.log, layer_idx, tensors, nbytes, self._written.get(layer_idx, 0.0))
        self._copies[layer_idx] = Copy(source, handle, None if tensors else [], nbytes)


def _at_home(part):
    """The layer's tensors on the host, where early initialization or a caller may not have put them."""
    tensors = leaves(part)[0]
    if any(tensor.device.type != "cpu" for tensor in tensors):
        vars(part).update(vars(rebuild(part, lambda tensor: placed(tensor, "cpu", pin=True))))
        tensors = leaves(part)[0]
    return tensors
