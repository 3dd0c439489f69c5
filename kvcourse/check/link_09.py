"""For task 09a: a small link to a host, whose clock is computed. Nothing waits in earnest."""

from dataclasses import dataclass

import torch

from ..offload.link import Event


@dataclass(frozen=True)
class Handle:
    """A copy on its way: what `fetch` returns and `wait` takes."""

    layer: int
    arrives: float


class SlowLink:
    """A host that has the keys and values of `layers` layers, and a cable to a device. Nothing waits in earnest.

    `clock` counts simulated milliseconds. The cable carries one layer after the other, `fetch_ms` each, while the
    device computes, `compute_ms` a layer. On the device a layer that has not arrived yet holds zeros.
    """

    def __init__(self, layers, fetch_ms, compute_ms):
        self.layers, self.fetch_ms, self.compute_ms = layers, fetch_ms, compute_ms
        self.clock = 0
        self.most = 0  # layers on the device at the fullest moment, those on their way included
        self.fetched = []  # layers in the order of their fetches
        self.beside = {}  # layer -> the layers on the device while it computed
        self.timeline = []  # what happened, as the package writes it down
        self._arrival = {}  # layer on the device -> when it has arrived
        self._cable_free = 0

    def fetch(self, layer):
        """Make room on the device and begin to copy a layer into it. Returns a handle at once."""
        if layer not in range(self.layers):
            raise IndexError(f"there is no layer {layer!r}; the model has 0 to {self.layers - 1}")
        if layer in self._arrival:
            raise RuntimeError(f"layer {layer} is on the device already, or on its way")
        start = max(self.clock, self._cable_free)
        self._arrival[layer] = self._cable_free = start + self.fetch_ms
        self.fetched.append(layer)
        self.most = max(self.most, len(self._arrival))
        self._record(layer, "fetch", start, self._cable_free)
        return Handle(layer, self._cable_free)

    def wait(self, handle):
        """Stand still until the copy has arrived."""
        if not isinstance(handle, Handle):
            raise TypeError("wait() takes the handle that fetch() returned")
        self.clock = max(self.clock, handle.arrives)

    def compute(self, layer, x):
        """Send `x` through a layer with whatever of it is on the device; returns the new `x`."""
        if layer not in self._arrival:
            raise RuntimeError(f"layer {layer} is not on the device; it cannot compute")
        keys, values = self._states(layer, arrived=self._arrival[layer] <= self.clock)
        self.beside[layer] = self.on_device
        start, self.clock = self.clock, self.clock + self.compute_ms
        self._record(layer, "compute", start, self.clock)
        return x + (x @ keys.T).softmax(-1) @ values

    def evict(self, layer):
        """Give the layer's room on the device to others. The host still has it."""
        if layer not in self._arrival:
            raise RuntimeError(f"layer {layer} is not on the device; it cannot be evicted")
        del self._arrival[layer]

    @property
    def on_device(self):
        """Layers on the device now, those on their way included."""
        return sorted(self._arrival)

    def _states(self, layer, arrived):
        numbers = torch.sin(torch.arange(24, dtype=torch.float64) * (layer + 1)).view(2, 3, 4)  # 3 tokens, 4 channels
        return numbers if arrived else torch.zeros_like(numbers)

    def _record(self, layer, kind, start, end):
        self.timeline.append(Event(layer, kind, start / 1_000, end / 1_000))
