"""An accelerator for machines without one: a budget of bytes, and a link that takes its time."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from numbers import Real
from threading import Lock
from weakref import WeakSet

import torch

from .link import Event, Link, placed
from .twin import independent, moving_bytes

active = []  # emulated devices in use, the innermost last


@contextmanager
def emulated_device(memory, bandwidth, latency, clock="virtual", compute=0.0):
    """Inside this context the caches of CPU models behave as if an accelerator with little memory held them.

    >>> with kv.emulated_device(memory=100_000, bandwidth=1e9, latency=1e-5, compute=1e-3) as device: ...

    memory      bytes that cache layers may take up; more is a torch.OutOfMemoryError, before the layer has changed.
                Weights and activations are not counted, nor is what `growth` needs while it copies.
    bandwidth   bytes a second, the same in each direction; the directions don't disturb each other
    latency     seconds that each transfer takes beside that
    clock       "virtual": times are computed, nothing waits, every run gives the same timeline.
                "wall": a thread copies, and a copy is not finished before its time has come
    compute     seconds that one layer computes in one forward, for the virtual clock: a number, or a function of
                (layer_idx, query_length). Also settable later as `device.compute_s`

    Yields an `EmulatedDevice`, which tells used and peak bytes, bytes moved, and the timeline.
    """
    device = EmulatedDevice(memory, bandwidth, latency, clock, compute)
    active.append(device)
    try:
        yield device
    finally:
        active.remove(device)
        device.close()


class EmulatedDevice(Link):
    """See `emulated_device`. Bytes are reserved when a copy is issued and released when it is evicted, both in program
    order on the calling thread, so that running out of memory never depends on timing.

    What is used is not a tally but a look at the caches that were updated here and still exist: a cache that was
    dropped or reset gives its bytes back by itself, and what a batch operation added is seen by the next update.
    """

    crosses = True

    def __init__(self, memory, bandwidth, latency, clock="virtual", compute=0.0):
        for name, value in (("memory", memory), ("bandwidth", bandwidth), ("latency", latency)):
            if not (isinstance(value, Real) and value >= 0) or (name == "bandwidth" and value == 0):
                raise ValueError(f"{name}={value!r}: give memory in bytes, bandwidth in bytes/s, latency in seconds")
        if isinstance(compute, Real) and compute < 0:
            raise ValueError(f"compute={compute}: give the seconds of a layer, 0 or more, or a function")
        if clock not in ("virtual", "wall"):
            raise ValueError(f"clock={clock!r}: the known clocks are 'virtual' and 'wall'")
        super().__init__()
        self.memory, self.bandwidth, self.latency, self.clock = memory, bandwidth, latency, clock
        self.compute_s = compute
        self.peak = self.fetched_bytes = self.written_bytes = 0
        self._events = []
        self._caches, self._lock = WeakSet(), Lock()  # threads may bring caches while others count
        self._virtual_now = self._arrived = 0.0
        self._free = {"fetch": 0.0, "write-back": 0.0}  # when each direction of the link is next idle
        self._worker = ThreadPoolExecutor(1) if clock == "wall" else None

    @property
    def now(self):
        """Seconds since the start: simulated, or real for the wall clock."""
        return super().now if self.clock == "wall" else self._virtual_now

    @property
    def timeline(self):
        """Every `Event` so far, of all caches, in order of time."""
        return self.resolve(self._events)

    @property
    def moved_bytes(self):
        """Bytes that crossed the link, both directions together."""
        return self.fetched_bytes + self.written_bytes

    # Memory

    @property
    def used(self):
        """Bytes of cache layers on the device now."""
        with self._lock:
            caches = list(self._caches)
        return sum(map(self.bytes_of, caches))

    def bytes_of(self, cache):
        """Bytes that one cache has on the device: its resident layers, and copies of offloaded ones."""
        if cache not in self._caches:
            return 0
        held = sum(layer.nbytes() for layer in cache.layers)
        if cache.offloading:
            away = [layer for layer in cache.layers if cache.offloader.moves(layer)]
            held += cache.offloader.nbytes(cache.layers, "emulated") - sum(map(moving_bytes, away))
        return held

    def reserve(self, nbytes):
        used = self.used
        if used + nbytes > self.memory:
            raise torch.OutOfMemoryError(
                f"{nbytes:,} more bytes were asked for; the emulated device has {self.memory:,}, of which {used:,} are "
                "used. Give it more memory, make the cache with offloading=True, or use fewer tokens or beams at a time"
            )
        self.peak = max(self.peak, used + nbytes)

    def reserve_growth(self, layer, method, *args, **kwargs):
        """How much a layer will take is its own business: a twin does it first, and the twin is counted."""
        rehearsal = independent(layer)
        getattr(rehearsal, method)(*args, **kwargs)
        self.reserve(rehearsal.nbytes() - layer.nbytes())

    # Time

    def arrive(self, cache):
        with self._lock:
            self._caches.add(cache)
        if self.clock == "wall":
            super().arrive(cache)
        self._arrived = self.now

    def fetch(self, log, layer_idx, tensors, nbytes, after=0.0):
        start, end = self._schedule("fetch", nbytes, max(self.now, after))
        self.fetched_bytes += nbytes
        if self.clock == "wall":
            return self._worker.submit(self._copy_by, end, log, layer_idx, start, tensors, nbytes, _modes())
        copies = self.copy(tensors)
        self._record(log, Event(layer_idx, "fetch", start, end, nbytes))
        return copies, end

    def wait(self, handle):
        if self.clock == "wall":
            return handle.result()
        copies, end = handle
        self._virtual_now = max(self._virtual_now, end)
        return copies

    def write_back(self, log, layer_idx, states):
        nbytes = sum(state.nbytes for state in states)
        start, end = self._schedule("write-back", nbytes, self._arrived)
        self.written_bytes += nbytes
        self._record(log, Event(layer_idx, "write-back", start, end, nbytes))
        return states, end

    def compute(self, log, layer_idx, query_length):
        if self.clock == "wall":
            return super().compute(log, layer_idx, query_length)
        start = self._virtual_now
        seconds = self.compute_s(layer_idx, query_length) if callable(self.compute_s) else self.compute_s
        self._virtual_now = start + seconds
        self._record(log, Event(layer_idx, "compute", start, self._virtual_now))

    def copy(self, tensors):
        """The copying itself."""
        return [placed(tensor, self.device) for tensor in tensors]

    def close(self):
        """Leave the context: the last computation ends, and so does the thread."""
        self.is_open = False
        if self._worker is not None:
            super().arrive(None)
            self._worker.shutdown()

    def _schedule(self, direction, nbytes, earliest):
        start = max(earliest, self._free[direction])
        self._free[direction] = end = start + self.latency + nbytes / self.bandwidth
        return start, end

    def _copy_by(self, deadline, log, layer_idx, start, tensors, nbytes, modes):
        with torch.inference_mode(modes[0]), torch.set_grad_enabled(modes[1]):
            copies = self.copy(tensors)
        time.sleep(max(deadline - self.now, 0.0))
        self._record(log, Event(layer_idx, "fetch", start, self.now, nbytes))
        return copies

    def _record(self, log, event):
        super()._record(log, event)
        super()._record(self._events, event)


def _modes():
    """The caller's modes: a thread starts with its own."""
    return torch.is_inference_mode_enabled(), torch.is_grad_enabled()
