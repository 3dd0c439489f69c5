"""The right answer to task 10a, and the wrong ones that people give."""

from contextlib import suppress

import torch

from ..containers import DynamicCache
from .task import Mistake


def anyhow(model, ids, **options):
    """The right answer."""
    try:
        return model.generate(ids, cache=DynamicCache(config=model.config), **options)
    except torch.OutOfMemoryError:
        pass
    return model.generate(ids, cache=DynamicCache(config=model.config, offloading=True), **options)


def catching(kind):
    """Catches errors of another kind."""

    def answer(model, ids, **options):
        try:
            return model.generate(ids, cache=DynamicCache(config=model.config), **options)
        except kind:
            pass
        return model.generate(ids, cache=DynamicCache(config=model.config, offloading=True), **options)

    return answer


def same_cache(model, ids, **options):
    cache = DynamicCache(config=model.config)
    try:
        return model.generate(ids, cache=cache, **options)
    except torch.OutOfMemoryError:
        pass
    return model.generate(ids, cache=cache, **options)


def resident_again(model, ids, **options):
    try:
        return model.generate(ids, cache=DynamicCache(config=model.config), **options)
    except torch.OutOfMemoryError:
        pass
    return model.generate(ids, cache=DynamicCache(config=model.config), **options)


def one_attempt(offloading):
    return lambda model, ids, **options: model.generate(
        ids, cache=DynamicCache(config=model.config, offloading=offloading), **options
    )


def for_ever(model, ids, **options):
    offloading = False
    while True:
        try:
            return model.generate(ids, cache=DynamicCache(config=model.config, offloading=offloading), **options)
        except torch.OutOfMemoryError:
            offloading = True


def gives_up(model, ids, **options):
    try:
        return model.generate(ids, cache=DynamicCache(config=model.config), **options)
    except torch.OutOfMemoryError:
        return None


def no_options(model, ids, **options):
    try:
        return model.generate(ids, cache=DynamicCache(config=model.config), **options)
    except torch.OutOfMemoryError:
        pass
    return model.generate(ids, cache=DynamicCache(config=model.config, offloading=True))


def options_in_one(model, ids, **options):
    return model.generate(ids, cache=DynamicCache(config=model.config), options=options)


def first_one_lost(model, ids, **options):
    with suppress(torch.OutOfMemoryError):
        model.generate(ids, cache=DynamicCache(config=model.config), **options)
    return model.generate(ids, cache=DynamicCache(config=model.config, offloading=True), **options)


def no_cache(model, ids, **options):
    try:
        return model.generate(ids, **options)
    except torch.OutOfMemoryError:
        pass
    return model.generate(ids, cache=DynamicCache(config=model.config, offloading=True), **options)


EVERYTHING = "errors of another kind are retried, too: a bad setting is as bad the second time. Catch only {}"
EVERYTHING = EVERYTHING.format("torch.OutOfMemoryError")
MISTAKES = [
    Mistake(EVERYTHING, catching(Exception)),
    Mistake(
        "errors of another kind are retried, too: OutOfMemoryError is a kind of RuntimeError, but not the only one. "
        "Catch torch.OutOfMemoryError",
        catching(RuntimeError),
    ),
    Mistake(
        "MemoryError is caught, too. It says that the host is full, and offloading puts even more there: let it pass",
        catching((torch.OutOfMemoryError, MemoryError)),
    ),
    Mistake(
        "the second attempt got the cache of the first one, half filled: some layers have a token that others lack. "
        "Give it a new one",
        same_cache,
    ),
    Mistake("the second attempt is not offloaded, so it ends as the first one did: offloading=True", resident_again),
    Mistake("there is no second attempt: catch torch.OutOfMemoryError", one_attempt(False)),
    Mistake("offloaded from the start: where memory is enough, that costs time for nothing", one_attempt(True)),
    Mistake("it tries again and again; when the second attempt fails, its error has to pass", for_ever),
    Mistake("the error was caught and nothing was done: try again, offloaded", gives_up),
    Mistake("the options did not reach the second attempt: **options, as in the first", no_options),
    Mistake(
        "options=options hands over one thing of that name; with two stars, **options, each one goes", options_in_one
    ),
    Mistake(
        "the first attempt was good, and there was a second one all the same: `return` what the first one gave",
        first_one_lost,
    ),
    Mistake("the first attempt got no cache of ours: make one, DynamicCache(config=model.config)", no_cache),
]
