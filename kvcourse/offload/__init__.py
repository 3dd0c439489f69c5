"""Offloading: layers live on the host and visit the device while they are needed.

`link` is the interface to the wire between the two, and its CUDA implementation; `emulated` is an accelerator for
machines without one; `twin` copies a layer with its tensors somewhere else; `prefetch` decides what visits when.
"""

import torch

from .emulated import EmulatedDevice, active, emulated_device
from .link import CudaLink, Event, Link, stalls
from .prefetch import Offloader

__all__ = ["CudaLink", "EmulatedDevice", "Event", "Link", "Offloader", "active", "emulated_device", "link_to", "stalls"]

_NO_LINK = Link()
_CUDA_LINKS = {}


def link_to(device):
    """What lies between the host and `device` (a torch.device): for "cpu" the emulated accelerator, where one is on."""
    if device.type == "cpu":
        return active[-1] if active else _NO_LINK
    if device.type != "cuda":
        raise ValueError(f"offloading works from CUDA devices and over emulated_device(...) on the CPU; got {device}")
    if device not in _CUDA_LINKS:
        _CUDA_LINKS[device] = CudaLink(device)
    return _CUDA_LINKS[device]


@torch.compiler.disable
def update(cache, layer_idx, key_states, value_states, *args, **kwargs):
    """`Cache.update` where layers are offloaded, or where an emulated device counts bytes."""
    layer = cache.layers[layer_idx]
    link = link_to(key_states.device) if cache.offloading or key_states.device.type == "cpu" else _NO_LINK
    link.arrive(cache)
    if cache.offloading:
        cache.offloader.use(link)
    if cache.offloading and cache.offloader.moves(layer):
        return cache.offloader.update(cache, layer_idx, link, key_states, value_states, *args, **kwargs)
    layer.check_update(key_states, value_states)
    cache.check_room(layer_idx, key_states.shape[-2])
    link.reserve_growth(layer, "update", key_states, value_states, *args, **kwargs)
    states = layer.update(key_states, value_states, *args, **kwargs)
    link.compute(cache.offloader.log if cache.offloading else None, layer_idx, key_states.shape[-2])
    return states


@torch.compiler.disable
def change(cache, layer, method, states, *args, **kwargs):
    """What a model does to a layer's convolution or recurrent state, or its index keys, where bytes are counted.

    These stay on the device, offloaded or not, so nothing crosses the link."""
    link = link_to(states.device) if states.device.type == "cpu" else _NO_LINK
    link.arrive(cache)
    link.reserve_growth(layer, method, states, *args, **kwargs)
    return getattr(layer, method)(states, *args, **kwargs)


def nbytes_on_device(cache, device, used):
    """Bytes of the copies that offloaded layers have on `device` (None: on any); "emulated" names the emulated one.

    What was updated under `emulated_device` and stays there counts as lying there: a resident cache, or the layers of
    an offloaded one that do not move.
    """
    if device == "emulated" and active:
        return active[-1].bytes_of(cache)
    if device == "emulated" and not cache.offloading:
        return 0
    if not cache.offloading or (used and device is None):
        return 0  # each token counts once: on the host
    return cache.offloader.nbytes(cache.layers, device)
