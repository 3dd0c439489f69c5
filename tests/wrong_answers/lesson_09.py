"""Lesson 09: prefetch one layer ahead, the time of a step, the way back."""

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
    return compute_ms / 1_000 * bandwidth / bytes_of_a_token


def knee_rounded(compute_ms, bytes_of_a_token, bandwidth):
    """Right."""
    return int(bandwidth * compute_ms // (1_000 * bytes_of_a_token))


def the_sum(layers, compute_ms, nbytes, bandwidth):
    return layers * (compute_ms + 1_000 * nbytes / bandwidth)


def the_minimum(layers, compute_ms, nbytes, bandwidth):
    return layers * min(compute_ms, 1_000 * nbytes / bandwidth)


def no_first_fetch(layers, compute_ms, nbytes, bandwidth):
    return layers * max(compute_ms, 1_000 * nbytes / bandwidth)


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


def whole_layer(device, host):
    host.keys.copy_(device.keys)
    host.values.copy_(device.values)
    host.length = device.length


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


def does_nothing(device, host):
    return device.keys[:, :, host.length : device.length]


WRONG = {
    "09a": [
        (one_after_the_other, "ask for the next layer before you compute"),
        (fetch_after_compute, "ask for the next layer before you compute"),
        (waits_at_once, "only when its turn has come"),
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
        ((free, knee), "only the computing"),
        ((the_cable_alone, knee), "only the cable"),
        ((in_seconds, knee), "milliseconds were asked for"),
        ((mixed_units, knee), "are seconds"),
        ((lambda *_: 74.0, knee), "every case gets the same answer"),
        ((step_ms, knee_in_bytes), "bytes, not tokens"),
        ((step_ms, knee_in_milliseconds), "divide by 1,000"),
        ((step_ms, knee_without_compute), "the computing time is missing"),
        ((step_ms, knee_upside_down), "upside down"),
        ((step_ms, knee_doubled), "has the key and the value already"),
    ],
    "09c": [
        (whole_layer, "the whole layer was copied"),
        (clones, "the whole layer was copied"),
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
    ],
}
RIGHT = {
    "09a": [step, step_fetching_first],
    "09b": [(step_ms, knee), (step_by_clock, knee_rounded)],
    "09c": [write_back, write_back_by_token],
}
