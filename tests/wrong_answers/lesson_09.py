"""Lesson 09: prefetch one layer ahead, the time of a step, the way back."""

import copy
import math
from fractions import Fraction

import torch

# 09a


def step(link, x):
    """Right."""
    coming = link.fetch(0)
    for layer in range(link.layers):
        link.wait(coming)
        if layer + 1 < link.layers:
            coming = link.fetch(layer + 1)
        x = link.compute(layer, x)
        link.evict(layer)
    return x


def step_fetching_first(link, x):
    """Right: the next fetch is asked for before the wait, in a list of handles."""
    handles = [link.fetch(0)]
    for layer in range(link.layers):
        if layer < link.layers - 1:
            handles.append(link.fetch(layer + 1))
        link.wait(handles[layer])
        x = link.compute(layer, x)
        link.evict(layer)
    return x


def one_after_the_other(link, x):
    for layer in range(link.layers):
        link.wait(link.fetch(layer))
        x = link.compute(layer, x)
        link.evict(layer)
    return x


def fetch_after_compute(link, x):
    coming = link.fetch(0)
    for layer in range(link.layers):
        link.wait(coming)
        x = link.compute(layer, x)
        if layer + 1 < link.layers:
            coming = link.fetch(layer + 1)
        link.evict(layer)
    return x


def no_wait(link, x):
    link.fetch(0)
    for layer in range(link.layers):
        if layer + 1 < link.layers:
            link.fetch(layer + 1)
        x = link.compute(layer, x)
        link.evict(layer)
    return x


def waits_once(link, x):
    link.wait(link.fetch(0))
    for layer in range(link.layers):
        if layer + 1 < link.layers:
            link.fetch(layer + 1)
        x = link.compute(layer, x)
        link.evict(layer)
    return x


def waits_at_once(link, x):
    link.wait(link.fetch(0))
    for layer in range(link.layers):
        if layer + 1 < link.layers:
            link.wait(link.fetch(layer + 1))
        x = link.compute(layer, x)
        link.evict(layer)
    return x


def evicts_too_early(link, x):
    coming = link.fetch(0)
    for layer in range(link.layers):
        link.wait(coming)
        if layer + 1 < link.layers:
            coming = link.fetch(layer + 1)
        link.evict(layer)
        x = link.compute(layer, x)
    return x


def evicts_the_next(link, x):
    coming = link.fetch(0)
    for layer in range(link.layers):
        link.wait(coming)
        if layer + 1 < link.layers:
            coming = link.fetch(layer + 1)
        x = link.compute(layer, x)
        if layer + 1 < link.layers:
            link.evict(layer + 1)
    return x


def never_evicts(link, x):
    coming = link.fetch(0)
    for layer in range(link.layers):
        link.wait(coming)
        if layer + 1 < link.layers:
            coming = link.fetch(layer + 1)
        x = link.compute(layer, x)
    return x


def evicts_late(link, x):
    coming = link.fetch(0)
    for layer in range(link.layers):
        link.wait(coming)
        if layer + 1 < link.layers:
            coming = link.fetch(layer + 1)
        x = link.compute(layer, x)
        if layer > 0:
            link.evict(layer - 1)
    link.evict(link.layers - 1)
    return x


def two_ahead(link, x):
    coming = {n: link.fetch(n) for n in range(min(2, link.layers))}
    for layer in range(link.layers):
        link.wait(coming[layer])
        if layer + 2 < link.layers:
            coming[layer + 2] = link.fetch(layer + 2)
        x = link.compute(layer, x)
        link.evict(layer)
    return x


def all_at_once(link, x):
    handles = [link.fetch(layer) for layer in range(link.layers)]
    for layer, handle in enumerate(handles):
        link.wait(handle)
        x = link.compute(layer, x)
        link.evict(layer)
    return x


def beyond_the_last(link, x):
    coming = link.fetch(0)
    for layer in range(link.layers):
        link.wait(coming)
        coming = link.fetch(layer + 1)
        x = link.compute(layer, x)
        link.evict(layer)
    return x


def in_a_circle(link, x):
    coming = link.fetch(0)
    for layer in range(link.layers):
        link.wait(coming)
        if link.layers > 1:
            coming = link.fetch((layer + 1) % link.layers)
        x = link.compute(layer, x)
        link.evict(layer)
    return x


def no_last_layer(link, x):
    coming = link.fetch(0)
    for layer in range(link.layers - 1):
        link.wait(coming)
        coming = link.fetch(layer + 1)
        x = link.compute(layer, x)
        link.evict(layer)
    return x


def waits_for_the_one_just_asked_for(link, x):
    coming = link.fetch(0)
    for layer in range(link.layers):
        if layer + 1 < link.layers:
            coming = link.fetch(layer + 1)
        link.wait(coming)
        x = link.compute(layer, x)
        link.evict(layer)
    return x


def x_is_not_passed_on(link, x):
    coming = link.fetch(0)
    for layer in range(link.layers):
        link.wait(coming)
        if layer + 1 < link.layers:
            coming = link.fetch(layer + 1)
        y = link.compute(layer, x)
        link.evict(layer)
    return y


def x_is_not_assigned(link, x):
    coming = link.fetch(0)
    for layer in range(link.layers):
        link.wait(coming)
        if layer + 1 < link.layers:
            coming = link.fetch(layer + 1)
        link.compute(layer, x)
        link.evict(layer)
    return x


def returns_the_clock(link, x):
    step(link, x)
    return link.clock


def two_names(link, x):
    coming = link.fetch(0)
    for layer in range(link.layers):
        link.wait(coming)
        if layer + 1 < link.layers:
            following = link.fetch(layer + 1)
        x = link.compute(layer, x)
        link.evict(layer)
        coming = following
    return x


def two_names_that_are_set(link, x):
    """Right."""
    coming, following = link.fetch(0), None
    for layer in range(link.layers):
        link.wait(coming)
        if layer + 1 < link.layers:
            following = link.fetch(layer + 1)
        x = link.compute(layer, x)
        link.evict(layer)
        coming = following
    return x


def waits_for_a_number(link, x):
    for layer in range(link.layers):
        link.fetch(layer)
        link.wait(layer)
    return x


def step_waiting_at_the_end(link, x):
    """Right: the wait for the next layer ends the turn."""
    link.wait(link.fetch(0))
    for layer in range(link.layers):
        coming = link.fetch(layer + 1) if layer + 1 < link.layers else None
        x = link.compute(layer, x)
        link.evict(layer)
        if coming:
            link.wait(coming)
    return x


def no_return(link, x):
    step(link, x)


# 09b


def step_ms(layers, compute_ms, nbytes, bandwidth):
    """Right."""
    fetch_ms = 1_000 * nbytes / bandwidth
    return fetch_ms + (layers - 1) * max(compute_ms, fetch_ms) + compute_ms


def step_by_clock(layers, compute_ms, nbytes, bandwidth):
    """Right: layer by layer."""
    arrived = now = 0
    for _ in range(layers):
        arrived = arrived + nbytes / bandwidth * 1_000
        now = max(now, arrived) + compute_ms
    return now


def knee(compute_ms, bytes_of_a_token, bandwidth):
    """Right."""
    return int(compute_ms / 1_000 * bandwidth / bytes_of_a_token)


def step_in_whole_milliseconds(*numbers):
    """Right."""
    return round(step_ms(*numbers))


def step_as_a_tensor(layers, compute_ms, nbytes, bandwidth):
    """Right."""
    fetch_ms = torch.tensor(1e3 * nbytes / bandwidth, dtype=torch.float64)
    return fetch_ms + compute_ms + (layers - 1) * torch.clamp(fetch_ms, min=compute_ms)


def step_as_a_race(layers, compute_ms, nbytes, bandwidth):
    """Right: either the cable or the computing never stops."""
    fetch_ms = nbytes * 1_000 / bandwidth
    return max(fetch_ms + layers * compute_ms, layers * fetch_ms + compute_ms)


def knee_as_a_fraction(compute_ms, bytes_of_a_token, bandwidth):
    """Right."""
    return Fraction(math.floor(Fraction(compute_ms) * bandwidth / 1_000 / bytes_of_a_token))


def knee_by_int(compute_ms, bytes_of_a_token, bandwidth):
    """Right."""
    return int(compute_ms * 1e-3 * bandwidth / bytes_of_a_token)


def knee_by_two_quotients(compute_ms, bytes_of_a_token, bandwidth):
    """Right."""
    return compute_ms // (1_000 * bytes_of_a_token / bandwidth)


def knee_in_a_tensor(compute_ms, bytes_of_a_token, bandwidth):
    """Right."""
    return torch.tensor(compute_ms * bandwidth / bytes_of_a_token / 1_000).floor()


def knee_with(end):
    """The right formula, ended in another way."""
    return lambda compute_ms, bytes_of_a_token, bandwidth: end(compute_ms / 1_000 * bandwidth / bytes_of_a_token)


def knee_rounded(compute_ms, bytes_of_a_token, bandwidth):
    """Right."""
    return int(bandwidth * compute_ms // (1_000 * bytes_of_a_token))


def the_sum(layers, compute_ms, nbytes, bandwidth):
    return layers * (compute_ms + 1_000 * nbytes / bandwidth)


def the_minimum(layers, compute_ms, nbytes, bandwidth):
    return layers * min(compute_ms, 1_000 * nbytes / bandwidth)


def no_first_fetch(layers, compute_ms, nbytes, bandwidth):
    return layers * max(compute_ms, 1_000 * nbytes / bandwidth)


def with_turns(turn):
    """A step by a formula of (layers, compute, fetch), all in milliseconds."""
    return lambda layers, compute_ms, nbytes, bandwidth: turn(layers, compute_ms, 1_000 * nbytes / bandwidth)


def free(layers, compute_ms, nbytes, bandwidth):
    return layers * compute_ms


def the_cable_alone(layers, compute_ms, nbytes, bandwidth):
    return layers * 1_000 * nbytes / bandwidth


def in_seconds(*numbers):
    return step_ms(*numbers) / 1_000


def mixed_units(layers, compute_ms, nbytes, bandwidth):
    return step_ms(layers, compute_ms, nbytes / 1_000, bandwidth)


def knee_in_bytes(compute_ms, bytes_of_a_token, bandwidth):
    return compute_ms / 1_000 * bandwidth


def knee_in_milliseconds(compute_ms, bytes_of_a_token, bandwidth):
    return compute_ms * bandwidth / bytes_of_a_token


def knee_without_compute(compute_ms, bytes_of_a_token, bandwidth):
    return bandwidth / bytes_of_a_token


def knee_upside_down(compute_ms, bytes_of_a_token, bandwidth):
    return bytes_of_a_token / (compute_ms / 1_000 * bandwidth)


def knee_with_1024(compute_ms, bytes_of_a_token, bandwidth):
    return compute_ms / 1_024 * bandwidth / bytes_of_a_token


def knee_rounded_up(compute_ms, bytes_of_a_token, bandwidth):
    return -int(-compute_ms * bandwidth // (1_000 * bytes_of_a_token))


def knee_and_one(compute_ms, bytes_of_a_token, bandwidth):
    return knee(compute_ms, bytes_of_a_token, bandwidth) + 1


def knee_of_two_parts(compute_ms, bytes_of_a_token, bandwidth):
    return knee(compute_ms, 2 * bytes_of_a_token, bandwidth)


def knee_in_whole_seconds(compute_ms, bytes_of_a_token, bandwidth):
    return int(compute_ms * bandwidth / bytes_of_a_token)


def knee_as_a_list(compute_ms, bytes_of_a_token, bandwidth):
    return [compute_ms, bytes_of_a_token, bandwidth]


def knee_to_come(compute_ms, bytes_of_a_token, bandwidth):
    raise NotImplementedError()


def knee_doubled(compute_ms, bytes_of_a_token, bandwidth):
    return compute_ms / 1_000 * bandwidth / (2 * bytes_of_a_token)


# 09c


def write_back(device, host):
    """Right."""
    start, end = host.length, device.length
    host.keys[:, :, start:end] = device.keys[:, :, start:end]
    host.values[:, :, start:end] = device.values[:, :, start:end]
    host.length = end


def write_back_by_token(device, host):
    """Right."""
    while host.length < device.length:
        for name in ("keys", "values"):
            getattr(host, name)[:, :, host.length].copy_(getattr(device, name)[:, :, host.length])
        host.length += 1


def write_back_by_slot_numbers(device, host):
    """Right: the slots in a tensor, as in 08a."""
    slots = torch.arange(host.length, device.length)
    host.keys[:, :, slots] = device.keys[:, :, slots]
    host.values[:, :, slots] = device.values[:, :, slots]
    host.length = device.length


def write_back_by_index_copy(device, host):
    """Right."""
    slots = torch.arange(host.length, device.length)
    host.keys.index_copy_(2, slots, device.keys.index_select(2, slots))
    host.values.index_copy_(2, slots, device.values.index_select(2, slots))
    host.length = device.length


def write_back_a_clone(device, host):
    """Right: the new slots are copied once on the device before they cross."""
    start, count = host.length, device.length - host.length
    for there, here in ((host.keys, device.keys), (host.values, device.values)):
        there.narrow(2, start, count).copy_(here[:, :, start : start + count].clone())
    host.length += count


def write_back_a_list(device, host):
    """Right."""
    new = list(range(host.length, device.length))
    host.keys[..., new, :], host.values[..., new, :] = device.keys[..., new, :], device.values[..., new, :]
    host.length = device.length


def whole_layer(device, host):
    host.keys.copy_(device.keys)
    host.values.copy_(device.values)
    host.length = device.length


def clones_one_after_the_other(device, host):
    host.keys = device.keys.clone()
    host.values = device.values.clone()
    host.length = device.length


def the_first_head(device, host):
    start, end = host.length, device.length
    host.keys[0][0][start:end] = device.keys[0][0][start:end]
    host.values[0][0][start:end] = device.values[0][0][start:end]
    host.length = end


def clones(device, host):
    host.keys, host.values = device.keys.clone(), device.values.clone()
    host.length = device.length


def concatenates(device, host):
    start, end = host.length, device.length
    host.keys = torch.cat([host.keys[:, :, :start], device.keys[:, :, start:end]], dim=2)
    host.values = torch.cat([host.values[:, :, :start], device.values[:, :, start:end]], dim=2)
    host.length = end


def borrows(device, host):
    host.keys, host.values, host.length = device.keys, device.values, device.length


def only_counts(device, host):
    host.length = device.length


def at_index_zero(device, host):
    new = device.length - host.length
    host.keys[:, :, :new] = device.keys[:, :, host.length : device.length]
    host.values[:, :, :new] = device.values[:, :, host.length : device.length]
    host.length = device.length


def forgets_the_length(device, host):
    start, end = host.length, device.length
    host.keys[:, :, start:end] = device.keys[:, :, start:end]
    host.values[:, :, start:end] = device.values[:, :, start:end]


def newest_alone(device, host):
    n = device.length - 1
    host.keys[:, :, n], host.values[:, :, n] = device.keys[:, :, n], device.values[:, :, n]
    host.length = device.length


def one_too_many(device, host):
    host.length -= 1
    write_back(device, host)


def to_the_end(device, host):
    host.keys[:, :, host.length :] = device.keys[:, :, host.length :]
    host.values[:, :, host.length :] = device.values[:, :, host.length :]
    host.length = device.length


def keys_alone(device, host):
    host.keys[:, :, host.length : device.length] = device.keys[:, :, host.length : device.length]
    host.length = device.length


def the_wrong_way(device, host):
    new = slice(host.length, device.length)
    device.keys[:, :, new], device.values[:, :, new] = host.keys[:, :, new], host.values[:, :, new]
    host.length = device.length


def one_slot_too_far(device, host):
    start, new = host.length + 1, device.length - host.length
    host.keys[:, :, start : start + new] = device.keys[:, :, host.length : device.length]
    host.values[:, :, start : start + new] = device.values[:, :, host.length : device.length]
    host.length = device.length


def into_the_last_slots(device, host):
    new = device.length - host.length
    host.keys[:, :, -new:] = device.keys[:, :, host.length : device.length]
    host.values[:, :, -new:] = device.values[:, :, host.length : device.length]
    host.length = device.length


def the_last_slot(device, host):
    host.keys[:, :, -1:], host.values[:, :, -1:] = device.keys[:, :, -1:], device.values[:, :, -1:]
    host.length = device.length


def one_slot_too_far_on_both_sides(device, host):
    start, end = host.length + 1, device.length + 1
    host.keys[:, :, start:end] = device.keys[:, :, start:end]
    host.values[:, :, start:end] = device.values[:, :, start:end]
    host.length = device.length


def length_first(device, host):
    host.length = device.length
    write_back(device, host)


def on_the_axis_of_heads(device, host):
    start, end = host.length, device.length
    host.keys[:, start:end] = device.keys[:, start:end]
    host.values[:, start:end] = device.values[:, start:end]
    host.length = end


def from_slot_zero(device, host):
    start, end = host.length, device.length
    host.keys[:, :, start:end] = device.keys[:, :, : end - start]
    host.values[:, :, start:end] = device.values[:, :, : end - start]
    host.length = end


def renames_the_host(device, host):
    host = copy.deepcopy(device)
    host.length = device.length


def shortens_the_device(device, host):
    write_back(device, host)
    device.length = 0


def out_of_place(device, host):
    slots = torch.arange(host.length, device.length)
    host.keys = host.keys.index_copy(2, slots, device.keys[:, :, slots])
    host.values = host.values.index_copy(2, slots, device.values[:, :, slots])
    host.length = device.length


def does_nothing(device, host):
    return device.keys[:, :, host.length : device.length]


WRONG = {
    "09a": [
        (two_names, "read it under the same `if`"),
        (one_after_the_other, "ask for the next layer before you compute"),
        (fetch_after_compute, "ask for the next layer before you compute"),
        (waits_at_once, "only when its turn has come"),
        (waits_for_the_one_just_asked_for, "the copy that it has just asked for"),
        (x_is_not_passed_on, "each layer gets what the one before gave"),
        (x_is_not_assigned, "thrown away"),
        (returns_the_clock, "the clock came back"),
        (waits_for_a_number, "takes the handle that fetch() returned"),
        (no_wait, "nobody waits for the copy"),
        (waits_once, "only the first layer is waited for"),
        (evicts_too_early, "it is in use until"),
        (evicts_the_next, "evict the one that has computed"),
        (never_evicts, "nothing was evicted"),
        (evicts_late, "one turn too long"),
        (two_ahead, "two layers ahead is one too many"),
        (all_at_once, "everything was fetched at once"),
        (beyond_the_last, "do not fetch beyond it"),
        (in_a_circle, "for the next token"),
        (no_last_layer, "the last layer was left out"),
        (no_return, "`return` missing"),
    ],
    "09b": [
        ((the_sum, knee), "that is without prefetch"),
        ((the_minimum, knee), "the slower of the two sets the pace"),
        ((no_first_fetch, knee), "the first fetch is forgotten"),
        ((free, knee), "the computing alone"),
        ((the_cable_alone, knee), "only the cable"),
        ((in_seconds, knee), "milliseconds were asked for"),
        ((mixed_units, knee), "are seconds"),
        ((with_turns(lambda n, c, f: f + n * max(c, f) + c), knee), "too many turns"),
        ((with_turns(lambda n, c, f: f + n * max(c, f)), knee), "too many turns"),
        ((with_turns(lambda n, c, f: c + n * max(c, f)), knee), "too many turns"),
        ((with_turns(lambda n, c, f: (n + 1) * max(c, f)), knee), "too many turns"),
        ((with_turns(lambda n, c, f: c + f + (n - 2) * max(c, f)), knee), "one turn too few"),
        ((with_turns(lambda n, c, f: f + (n - 1) * max(c, f)), knee), "the last computation is forgotten"),
        ((with_turns(lambda n, c, f: max(f + n * c, n * f)), knee), "the last computation is forgotten"),
        ((with_turns(lambda n, c, f: (n - 1) * max(c, f) + c), knee), "the first fetch is forgotten"),
        ((with_turns(lambda n, c, f: (n - 1) * max(c, f)), knee), "neither has anything beside it"),
        ((with_turns(lambda n, c, f: f + (n - 1) * c + c), knee), "a slow cable is waited for"),
        ((with_turns(lambda n, c, f: 1.14 * (f + (n - 1) * max(c, f) + c)), knee), "84.36"),
        ((with_turns(lambda n, c, f: [n, c, f]), knee), "not a number"),
        ((with_turns(lambda n, c, f: None), knee), "`return` missing"),
        ((lambda *_: 74.0, knee), "every case gets the same answer"),
        ((step_ms, knee_in_bytes), "bytes, not tokens"),
        ((step_ms, knee_in_milliseconds), "divide by 1,000"),
        ((step_ms, knee_without_compute), "the computing time is missing"),
        ((step_ms, knee_upside_down), "upside down"),
        ((step_ms, knee_doubled), "has the key and the value already"),
        ((step_ms, knee_of_two_parts), "has the key and the value already"),
        ((step_ms, knee_in_whole_seconds), "divide by 1,000"),
        ((step_ms, knee_with(lambda tokens: tokens)), "a part of a token is no token"),
        ((step_ms, knee_with(round)), "`round` goes up"),
        ((step_ms, knee_with(math.ceil)), "rounded up"),
        ((step_ms, knee_with(lambda tokens: int(tokens) - 1)), "one token too few"),
        ((step_ms, knee_with(lambda tokens: math.ceil(tokens) - 1)), "one token too few"),
        ((step_ms, knee_with_1024), "not 1,024"),
        ((step_ms, knee_rounded_up), "round down"),
        ((step_ms, knee_and_one), "round down"),
        ((step_ms, knee_as_a_list), "not a number"),
        ((no_first_fetch, knee_to_come), "the first fetch is forgotten"),
    ],
    "09c": [
        (whole_layer, "the whole layer was copied"),
        (clones, "the whole layer was copied"),
        (clones_one_after_the_other, "the whole layer was copied"),
        (the_first_head, "one head alone"),
        (concatenates, "the whole layer was copied"),
        (borrows, "the device's own tensor"),
        (only_counts, "never sent"),
        (at_index_zero, "written at index 0"),
        (forgets_the_length, "host.length is still the old one"),
        (newest_alone, "several can be new"),
        (one_too_many, "one token too many"),
        (to_the_end, "empty slots were sent along"),
        (keys_alone, "the values not"),
        (does_nothing, "nothing was sent"),
        (renames_the_host, "nothing was sent"),
        (the_wrong_way, "from the device to the host"),
        (shortens_the_device, "the device was changed"),
        (one_slot_too_far, "belong behind the old ones"),
        (into_the_last_slots, "belong behind the old ones"),
        (the_last_slot, "belong behind the old ones"),
        (one_slot_too_far_on_both_sides, "belong behind the old ones"),
        (length_first, "never sent"),
        (on_the_axis_of_heads, "The slots are axis 2"),
        (from_slot_zero, "the first tokens of the device were taken"),
        (out_of_place, "the whole layer was copied"),
    ],
}
RIGHT = {
    "09a": [step, two_names_that_are_set, step_fetching_first, step_waiting_at_the_end],
    "09b": [
        (step_ms, knee),
        (step_by_clock, knee_rounded),
        (step_in_whole_milliseconds, knee_as_a_fraction),
        (step_as_a_tensor, knee_by_int),
        (step_as_a_race, knee),
        (step_ms, knee_by_two_quotients),
        (step_ms, knee_in_a_tensor),
        (step_ms, knee_with(math.floor)),
    ],
    "09c": [
        write_back,
        write_back_by_token,
        write_back_by_slot_numbers,
        write_back_by_index_copy,
        write_back_a_clone,
        write_back_a_list,
    ],
}
