"""Task 09c: send the new tokens home, and nothing else."""

import torch

from .crossing_09 import WriteCounter
from .playing import states
from .positions import where
from .runner import run
from .task import Case, Mistake, compare, task
from .words import Phrase

HEADS, HEAD_DIM, SPARE = 2, 4, 5
A_TOKEN = 2 * HEADS * HEAD_DIM * 4  # bytes of a key and a value in float32


class Side:
    """One layer on one side of the link: `keys` and `values`, (batch, kv_heads, slots, head_dim), and its `length`."""

    def __init__(self, keys, values, length):
        self.keys, self.values, self.length = keys, values, length


def two_sides(tokens, new, spare=SPARE):
    """A layer on the device, where `new` tokens were just added, and on the host, which has the `tokens` before."""
    keys, values = states(1, HEADS, tokens + new, HEAD_DIM)
    shape = 1, HEADS, tokens + new + spare, HEAD_DIM
    device, host = (Side(torch.full(shape, empty), torch.full(shape, empty), 0) for empty in (0.25, 0.0))
    _fill(device, keys, values), _fill(host, keys[:, :, :tokens], values[:, :, :tokens])
    return device, host


def _fill(side, keys, values):
    start, end = side.length, side.length + keys.shape[2]
    side.keys[:, :, start:end], side.values[:, :, start:end], side.length = keys, values, end


def bringing(what, tokens, *chunks):
    """A case: after each of `chunks` new tokens on the device, what crossed to the host, and what the host then has.

    Then the device gives the layer's memory to another one, and the host is looked at again.
    """

    def play(answer, seen):
        given = states(1, HEADS, tokens + sum(chunks), HEAD_DIM)
        device, host = two_sides(tokens, 0, spare=sum(chunks) + SPARE)
        for turn, new in enumerate(chunks, 1):
            after = f" after write-back {turn}" if len(chunks) > 1 else ""
            _fill(device, *(part[:, :, device.length : device.length + new] for part in given))
            before, old = _copies(device), _copies(host)
            with WriteCounter((host.keys, host.values)) as counter:
                run(answer, answer, device, host)
            seen[f"tokens on the device{after}"] = device.length
            seen[f"the device's keys and values are what they were{after}"] = all(map(_equal, _copies(device), before))
            seen[f"tokens on the host{after}"] = host.length
            seen[f"bytes that crossed{after}"] = 4 * (counter.elements + _anew(host, device, counter))
            seen[f"slots of the host that were written{after}"] = _changed(old, host)
            _look(seen, after, host, given)
        for part in (device.keys, device.values):
            part.fill_(-1)
        _look(seen, ", once the device's memory was used for another layer", host, given)

    return Case(what, play, explain_the_way)


def explain_the_way(label, expected, came):
    """Where the copy went the wrong way, or to the wrong slots."""
    if "device's keys" in label or label.startswith("tokens on the device"):
        return "the device was changed: the way home is from the device to the host, `host... = device...`"
    if label.startswith("slots") and isinstance(came, list) and came and came[0] > 0:
        return "the new tokens belong behind the old ones: from slot host.length, as it was before, to device.length"
    return None


def _copies(side):
    return [part.clone() if isinstance(part, torch.Tensor) else part for part in (side.keys, side.values)]


def _equal(one, other):
    return isinstance(one, torch.Tensor) and one.shape == other.shape and bool(one.equal(other))


def _anew(host, device, counter):
    """Elements of the tensors that were put in the place of the host's buffers, those of the device itself left out."""
    own = [part.untyped_storage()._cdata for part in (device.keys, device.values)]
    parts = [part for part in (host.keys, host.values) if isinstance(part, torch.Tensor) and part not in counter]
    return sum(part.numel() for part in parts if part.untyped_storage()._cdata not in own)


def _changed(old, host):
    """Slots in which the host's keys or values are others than before."""
    slots = set()
    for before, now in zip(old, (host.keys, host.values), strict=True):
        if not isinstance(now, torch.Tensor) or now.shape != before.shape:
            return Phrase("none: keys and values are no longer the buffers that they were")
        slots.update((before != now).any(-1).any(1).any(0).nonzero().flatten().tolist())
    return sorted(slots)


def _look(seen, when, host, given):
    """Write down which tokens lie in the host's slots: the last 8 of those that should be there."""
    for part, origin in zip(("keys", "values"), given, strict=True):
        held, end = getattr(host, part), int(host.length)
        first = max(0, end - 8)
        name = f"{part} in the host's slots {first} to {end - 1}{when}"
        if not isinstance(held, torch.Tensor) or held.ndim != 4:
            seen[name] = Phrase("no longer a tensor of (batch, kv_heads, slots, head_dim)")
        else:
            seen[name] = where(held[:, :, first:end], origin)
            seen[f"whether all {part} are right{when}"] = bool(held[:, :, :end].equal(origin[:, :, :end]))


BRINGING = [
    bringing("one new token after 100", 100, 1),
    bringing("one new token after 1,000", 1_000, 1),
    bringing("three new tokens after 20", 20, 3),
    bringing("one new token after 6, then two more, then one", 6, 1, 2, 1),
]


def brought(start=lambda host, device: host.length, end=lambda host, device: device.length, at=None, counts=True):
    """The right answer, with the lines that go wrong as parameters."""

    def write_back(device, host):
        first, last = start(host, device), end(host, device)
        place = first if at is None else at(host, device)
        host.keys[:, :, place : place + last - first] = device.keys[:, :, first:last]
        host.values[:, :, place : place + last - first] = device.values[:, :, first:last]
        if counts:
            host.length = device.length

    return write_back


def never(device, host):
    host.length = device.length


def borrows(device, host):
    host.keys, host.values, host.length = device.keys, device.values, device.length


def copies_all(device, host):
    host.keys, host.values, host.length = device.keys.clone(), device.values.clone(), device.length


def joins(device, host):
    old, new = slice(0, host.length), slice(host.length, device.length)
    host.keys = torch.cat([host.keys[:, :, old], device.keys[:, :, new]], dim=2)
    host.values = torch.cat([host.values[:, :, old], device.values[:, :, new]], dim=2)
    host.length = device.length


def keys_alone(device, host):
    new = slice(host.length, device.length)
    host.keys[:, :, new], host.length = device.keys[:, :, new], device.length


def one_head(device, host):
    new = slice(host.length, device.length)
    host.keys[0, 0, new], host.values[0, 0, new] = device.keys[0, 0, new], device.values[0, 0, new]
    host.length = device.length


WHOLE = "the whole layer was copied: the host has the old tokens already, and they did not change on the device"
BRINGING_MISTAKES = [
    Mistake(WHOLE, brought(start=lambda host, device: 0)),
    Mistake(WHOLE, copies_all),
    Mistake(WHOLE, joins),
    Mistake(
        "empty slots were sent along: copy up to device.length, not to the end of the buffer",
        brought(end=lambda host, device: device.keys.shape[2]),
    ),
    Mistake(
        "the new tokens were never sent, though the host counts them. Is the slice empty? The slots are axis 2, "
        "`[:, :, start:end]`, and host.length has to be read before it is changed",
        never,
    ),
    Mistake(
        "written at index 0, over the first tokens: the new ones belong behind the old, from host.length on",
        brought(at=lambda host, device: 0),
    ),
    Mistake(
        "the first tokens of the device were taken; the new ones are those from host.length on",
        brought(
            start=lambda host, device: 0,
            end=lambda host, device: device.length - host.length,
            at=lambda host, device: host.length,
        ),
    ),
    Mistake("host.length is still the old one, so the host does not know that it has more", brought(counts=False)),
    Mistake(
        "nothing was sent: host.length and the host's buffers are the old ones. (`host = ...` only gives the name "
        "another meaning: write into host.keys and host.values)",
        lambda device, host: None,
    ),
    Mistake(
        "one token only: several can be new, all from host.length on",
        brought(start=lambda host, device: device.length - 1),
    ),
    Mistake(
        "one token too many: the last one that the host had was sent again",
        brought(start=lambda host, device: host.length - 1),
    ),
    Mistake("the keys went home and the values not", keys_alone),
    Mistake("one head alone was sent, and each head has a key and a value of a token: `[:, :, start:end]`", one_head),
    Mistake(
        "the host was given the device's own tensor, not a copy: when the device uses that memory for another layer, "
        "the tokens are gone",
        borrows,
    ),
]


@task("09c", "write_back: what crosses for new tokens after 20, 100 and 1,000, and what the host then has")
def task_09c(function):
    """`function(device, host)`: brings a `Side` on the host up to date with its counterpart on the device."""
    compare(function, brought(), BRINGING, BRINGING_MISTAKES)
    return {
        "host": "equal to the device in all four cases, also after the device forgot the layer",
        "cost": f"{A_TOKEN} bytes a new token, after 100 tokens as after 1,000; the whole layer would be "
        f"{101 * A_TOKEN:,} and {1_001 * A_TOKEN:,}",
    }
