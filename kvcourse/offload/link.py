"""The link between the host, where offloaded layers live, and the device, where they are used.

A link copies in both directions beside the computation, and keeps a timeline of it. `Link` itself is the case without
one: host and device are the same memory. `CudaLink` is a real one; the emulated one has its own file.
"""

import time
from dataclasses import dataclass

import torch

KEPT_EVENTS = 10_000  # a timeline reaches back at least this far


@dataclass(frozen=True)
class Event:
    """One thing that happened in one layer: a "fetch", a "write-back" or a "compute", with its times in seconds."""

    layer: int
    kind: str
    start: float
    end: float
    nbytes: int = 0  # bytes that crossed the link


def stalls(timeline):
    """The gaps between one "compute" and the next, as "stall" events: the time in which the device waited for data."""
    computed = [event for event in timeline if event.kind == "compute"]
    pairs = zip(computed, computed[1:], strict=False)
    return [Event(after.layer, "stall", before.end, after.start) for before, after in pairs if after.start > before.end]


def placed(tensor, device, pin=False, non_blocking=False):
    """A copy on `device` that may be written from any mode later; `pin`: in memory that a device can read directly."""
    with torch.inference_mode(False):
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, device=device, pin_memory=pin)
    return copy.copy_(tensor, non_blocking=non_blocking)


class Link:
    """No link: what keeps and what computes are the same memory. Keeps the books; nothing moves and nobody waits.

    One forward calls, for each offloaded layer: `arrive`, `fetch` if no copy is there, `wait`, `write_back`, `fetch`
    for the layers that come next, `compute`. All times are in seconds.
    """

    crosses = False  # whether tensors have to be copied to be used
    is_open = True  # whether it can still copy
    device = torch.device("cpu")

    def __init__(self):
        self._origin = time.perf_counter()
        self._running = None  # (log, layer, start) of the computation that goes on now

    @property
    def now(self):
        """Seconds since the link was made."""
        return time.perf_counter() - self._origin

    def arrive(self, cache):
        """A layer's new keys and values of `cache` are there: the layer before it has finished computing."""
        if self._running is not None:
            log, layer_idx, start = self._running
            self._record(log, Event(layer_idx, "compute", start, self.now))
            self._running = None

    def reserve(self, nbytes):
        """Make sure that `nbytes` more fit on the device, or raise torch.OutOfMemoryError."""

    def reserve_growth(self, layer, method, *args, **kwargs):
        """Make sure that a layer on the device has room for what `method` will do, or raise torch.OutOfMemoryError."""

    def fetch(self, log, layer_idx, tensors, nbytes, after=0.0):
        """Begin to copy host `tensors` to the device, not before the time `after`. Returns a handle for `wait`."""
        self._record(log, Event(layer_idx, "fetch", self.now, self.now, nbytes))
        return tensors

    def wait(self, handle):
        """The tensors on the device, once they are there. An error of the copying is raised here."""
        return handle

    def write_back(self, log, layer_idx, states):
        """Copy new `states` to the host. Returns them there, and the time from which they can be fetched again."""
        self._record(log, Event(layer_idx, "write-back", self.now, self.now, sum(state.nbytes for state in states)))
        return states, 0.0

    def compute(self, log, layer_idx, query_length):
        """A layer begins to compute with what it was given."""
        self._running = (log, layer_idx, self.now)

    def resolve(self, log):
        """The events of a log, in order of time."""
        return sorted(log, key=lambda event: event.start)

    def _record(self, log, event):
        if log is not None:
            log.append(event)
            if len(log) > 2 * KEPT_EVENTS:
                del log[:KEPT_EVENTS]


class CudaLink(Link):
    """A CUDA device: one stream for each direction, beside the one that computes; host memory is pinned.

    The streams wait for each other by events. The CPU waits as well, once a layer: for the few bytes of the new tokens,
    so that the host's copy is complete whenever someone looks at it. PyTorch keeps freed pinned blocks and hands them
    out again, so that staging costs no allocation after the first steps.
    """

    crosses = True

    def __init__(self, device):
        super().__init__()
        self.device = device
        self._inward, self._outward = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self._epoch = self._mark(self._stream)
        self._arrived = self._fetched = self._epoch

    @property
    def _stream(self):
        return torch.cuda.current_stream(self.device)

    def arrive(self, cache):
        """Mark the moment from which the new states can be copied out; it ends the computation before."""
        self._arrived = self._mark(self._stream)
        if self._running is not None:
            log, layer_idx, start = self._running
            self._record(log, Event(layer_idx, "compute", start, self._arrived))
            self._running = None

    def fetch(self, log, layer_idx, tensors, nbytes, after=0.0):
        """Copy pinned tensors on the inward stream. `torch.OutOfMemoryError` comes from the allocation, at once."""
        with torch.cuda.stream(self._inward):
            start = self._mark(self._inward)
            copies = [placed(tensor, self.device, non_blocking=True) for tensor in tensors]
            done = self._mark(self._inward)
        self._record(log, Event(layer_idx, "fetch", start, done, nbytes))
        return copies, done

    def wait(self, handle):
        """Let the computing stream wait for the copies; their memory is not given away before it has used them."""
        copies, self._fetched = handle
        self._stream.wait_event(self._fetched)
        for tensor in copies:
            tensor.record_stream(self._stream)
        return copies

    def write_back(self, log, layer_idx, states):
        """Copy what is new to pinned memory, beside the computing stream that goes on with the attention."""
        self._outward.wait_event(self._mark(self._stream))  # what is new may have been quantized just now
        with torch.cuda.stream(self._outward):
            start = self._mark(self._outward)
            staged = [placed(state, "cpu", pin=True, non_blocking=True) for state in states]
            done = self._mark(self._outward)
        for state in states:
            state.record_stream(self._outward)
        done.synchronize()
        self._fetched.synchronize()  # the host is about to write into memory that this copy was reading
        self._record(log, Event(layer_idx, "write-back", start, done, sum(state.nbytes for state in states)))
        return staged, 0.0

    def compute(self, log, layer_idx, query_length):
        self._running = (log, layer_idx, self._mark(self._stream))

    def resolve(self, log):
        """The events with their marks read as seconds; waits for the device."""
        torch.cuda.synchronize(self.device)
        seconds = [[self._epoch.elapsed_time(mark) / 1e3 for mark in (event.start, event.end)] for event in log]
        pairs = zip(log, seconds, strict=True)
        return super().resolve([Event(event.layer, event.kind, *span, event.nbytes) for event, span in pairs])

    def _mark(self, stream):
        mark = torch.cuda.Event(enable_timing=True)
        mark.record(stream)
        return mark
