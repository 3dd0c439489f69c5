"""Falling back when memory runs out: try with the cache on the device, and once more with it on the host."""

import copy
import gc
import inspect
import logging
from contextlib import contextmanager

import torch

from .cache import Cache
from .offload import Offloader
from .own_cache import generate_with, own_cache, setting

log = logging.getLogger(__name__)

CACHE_NAMES = ("cache", "past_key_values", "cache_params")  # today's name of the argument, and the older ones
RETRIES = {"dynamic": "offloaded", "static": "offloaded_static", "quantized": "quantized"}  # the others are offloaded


def resilient_generate(model, *args, **kwargs):
    """`model.generate(*args, **kwargs)`; if the device's memory runs out, once more with the cache offloaded.

    Takes what `generate` takes and returns what it returns. The cache is made here: a `DynamicCache`, or the kind that
    `cache_implementation` names. Only `torch.OutOfMemoryError` is retried; any other error passes, and so does a second
    one for lack of memory. The retry starts from an unwritten cache and the same random state, so that it gives the
    tokens that more memory would have given; a streamer gets no token twice. With `use_cache=False`, with an offloaded
    `cache_implementation` and for models that keep no `Cache`, there is nothing to offload and nothing is retried.

    A cache of the caller's is copied first, which takes its bytes once more. After a success it holds the text, as
    after `generate`, and stays offloaded if that was needed; after an error it is as it was. It has to be one of this
    package (ValueError).

    What happened is logged on the logger "kvcourse.resilient", at level INFO. Source: the guide to cache strategies of
    transformers, whose example this completes.
    """
    given = [name for name in CACHE_NAMES if kwargs.get(name) is not None]
    if given:
        return _with_callers_cache(model, args, kwargs, given[0])
    kind = setting(model, args, kwargs, "cache_implementation") or "dynamic"
    if setting(model, args, kwargs, "use_cache") is False or not _keeps_cache(model):
        return model.generate(*args, **kwargs)
    if kind.startswith("offloaded"):
        return generate_with(model, args, kwargs, own_cache(model, args, kwargs, kind, offloading=True))
    return _twice(
        model,
        args,
        kwargs,
        lambda: own_cache(model, args, kwargs, kind, offloading=False),
        lambda: own_cache(model, args, kwargs, RETRIES.get(kind, kind), offloading=True),
    )


def _keeps_cache(model):
    """Whether `generate` may hand a cache to this model: some models keep a state of their own, or nothing at all."""
    prepares = inspect.signature(model.prepare_inputs_for_generation).parameters
    passes_on = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in prepares.values())  # a wrapper
    takes_one = passes_on or any(name in prepares for name in CACHE_NAMES)
    return takes_one and getattr(model, "_supports_default_dynamic_cache", lambda: True)()


def _twice(model, args, kwargs, first, second):
    """Generate with the cache that `first()` makes, and if memory runs out, with the one that `second()` makes."""
    streamer = kwargs.get("streamer")
    if streamer is not None:
        kwargs = kwargs | {"streamer": _NothingTwice(streamer)}
    random_state = _random_state()
    try:
        return generate_with(model, args, kwargs, first())
    except torch.OutOfMemoryError as error:
        reason = str(error)
    # Only here, outside of the except block, is the error gone, and with it the frames that hold the tensors.
    log.info("out of memory: %s. Trying again with an offloaded cache", reason)
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    _restore_random_state(random_state)
    if streamer is not None:
        kwargs["streamer"].begin_again()
    output = generate_with(model, args, kwargs, second())
    log.info("the offloaded cache was enough")
    return output


# A cache of the caller's


def _with_callers_cache(model, args, kwargs, name):
    cache = kwargs[name]
    if not isinstance(cache, Cache):
        raise ValueError(
            f"resilient_generate may have to offload the {type(cache).__name__} given as {name}, and can do so with "
            "caches of this package: give one of those, as kvcourse.DynamicCache(config=model.config), or none"
        )
    kwargs = {key: value for key, value in kwargs.items() if key != name}
    with _undone_by_errors(cache) as as_it_was:
        part = getattr(cache, "self_attention_cache", cache)
        if part.offloading:
            return generate_with(model, args, kwargs, cache)

        def offloaded():
            _put_back(cache, copy.deepcopy(as_it_was))
            Offloader.take_over(part)
            return cache

        return _twice(model, args, kwargs, lambda: cache, offloaded)


@contextmanager
def _undone_by_errors(cache):
    as_it_was = copy.deepcopy(cache)
    try:
        yield as_it_was
    except BaseException:
        _put_back(cache, as_it_was)
        raise


def _put_back(cache, state):
    """Make `cache`, which others know by name, hold what `state` holds."""
    for name, value in vars(state).items():
        if isinstance(value, Cache):
            _put_back(vars(cache)[name], value)
        else:
            vars(cache)[name] = value


# What a second attempt would repeat


class _NothingTwice:
    """A streamer that passes on, in a second attempt, only what the first one had not yet delivered."""

    def __init__(self, streamer):
        self._streamer = streamer
        self._delivered = self._seen = 0

    def put(self, value):
        self._seen += 1
        if self._seen > self._delivered:
            self._delivered = self._seen
            self._streamer.put(value)

    def end(self):
        self._streamer.end()

    def begin_again(self):
        self._seen = 0


def _random_state():
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None


def _restore_random_state(state):
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state_all(state[1])
