"""Lesson 10: a second attempt when memory runs out, and the memory that beams need."""

import gc

import torch

import kvcourse as kv

# 10a


def cache_for(model, offloading=False):
    return kv.DynamicCache(config=model.config, offloading=offloading)


def anyhow(model, ids, **options):
    """Right."""
    try:
        return model.generate(ids, cache=cache_for(model), **options)
    except torch.OutOfMemoryError as error:
        print("", end=str(error)[:0])
    gc.collect()
    return model.generate(ids, cache=cache_for(model, offloading=True), **options)


def anyhow_with_a_flag(model, ids, **options):
    """Right: the variable is used for the second cache, which frees the first."""
    failed = False
    cache = cache_for(model)
    try:
        text = model.generate(ids, cache=cache, **options)
    except torch.OutOfMemoryError:
        failed = True
    if failed:
        cache = cache_for(model, offloading=True)
        text = model.generate(ids, cache=cache, **options)
    return text


def catches_everything(model, ids, **options):
    try:
        return model.generate(ids, cache=cache_for(model), **options)
    except Exception:
        pass
    return model.generate(ids, cache=cache_for(model, offloading=True), **options)


def catches_bare(model, ids, **options):
    try:
        return model.generate(ids, cache=cache_for(model), **options)
    except:  # noqa: E722
        pass
    return model.generate(ids, cache=cache_for(model, offloading=True), **options)


def catches_runtime_errors(model, ids, **options):
    try:
        return model.generate(ids, cache=cache_for(model), **options)
    except RuntimeError:
        pass
    return model.generate(ids, cache=cache_for(model, offloading=True), **options)


def retries_inside(model, ids, **options):
    try:
        return model.generate(ids, cache=cache_for(model), **options)
    except torch.OutOfMemoryError:
        gc.collect()
        return model.generate(ids, cache=cache_for(model, offloading=True), **options)


def keeps_the_error(model, ids, **options):
    kept = None
    try:
        return model.generate(ids, cache=cache_for(model), **options)
    except torch.OutOfMemoryError as error:
        kept = error
    text = model.generate(ids, cache=cache_for(model, offloading=True), **options)
    print(kept)
    return text


def a_name_holds_it(model, ids, **options):
    first = cache_for(model)
    try:
        return model.generate(ids, cache=first, **options)
    except torch.OutOfMemoryError:
        pass
    second = cache_for(model, offloading=True)
    return model.generate(ids, cache=second, **options)


def half_filled(model, ids, **options):
    cache = cache_for(model)
    try:
        return model.generate(ids, cache=cache, **options)
    except torch.OutOfMemoryError:
        pass
    gc.collect()
    return model.generate(ids, cache=cache, **options)


def resident_again(model, ids, **options):
    try:
        return model.generate(ids, cache=cache_for(model), **options)
    except torch.OutOfMemoryError:
        pass
    return model.generate(ids, cache=cache_for(model), **options)


def never_offloads(model, ids, **options):
    return model.generate(ids, cache=cache_for(model), **options)


def always_offloads(model, ids, **options):
    return model.generate(ids, cache=cache_for(model, offloading=True), **options)


def tries_for_ever(model, ids, **options):
    cache = cache_for(model)
    while True:
        try:
            return model.generate(ids, cache=cache, **options)
        except torch.OutOfMemoryError:
            cache = None
        cache = cache_for(model, offloading=True)


def returns_none(model, ids, **options):
    try:
        return model.generate(ids, cache=cache_for(model), **options)
    except torch.OutOfMemoryError:
        print("", end="")


def forgets_the_options(model, ids, **options):
    try:
        return model.generate(ids, cache=cache_for(model), **options)
    except torch.OutOfMemoryError:
        pass
    return model.generate(ids, cache=cache_for(model, offloading=True))


def gives_no_cache(model, ids, **options):
    try:
        return model.generate(ids, **options)
    except torch.OutOfMemoryError:
        pass
    return model.generate(ids, cache=cache_for(model, offloading=True), **options)


def lets_the_package(model, ids, **options):
    return kv.resilient_generate(model, ids, **options)


# 10b


def budget(a_token, prompt, new, beams, returned):
    """Right."""
    return beams * (prompt + new - 1) * a_token


def one_beam(a_token, prompt, new, beams, returned):
    return (prompt + new - 1) * a_token


def the_returned(a_token, prompt, new, beams, returned):
    return returned * (prompt + new - 1) * a_token


def both(a_token, prompt, new, beams, returned):
    return beams * returned * (prompt + new - 1) * a_token


def prompt_shared(a_token, prompt, new, beams, returned):
    return (prompt + beams * (new - 1)) * a_token


def prompt_shared_and_the_last(a_token, prompt, new, beams, returned):
    return (prompt + beams * new) * a_token


def new_alone(a_token, prompt, new, beams, returned):
    return beams * new * a_token


def the_last_token_too(a_token, prompt, new, beams, returned):
    return beams * (prompt + new) * a_token


def prompt_alone(a_token, prompt, new, beams, returned):
    return beams * prompt * a_token


def in_tokens(a_token, prompt, new, beams, returned):
    return beams * (prompt + new - 1)


def spare(a_token, prompt, new, beams, returned):
    return budget(a_token, prompt, new, beams, returned) * 5 // 4


def two_for_keys_and_values(a_token, prompt, new, beams, returned):
    return 2 * budget(a_token, prompt, new, beams, returned)


WRONG = {
    "10a": [
        (catches_everything, "a bad setting is as bad the second time"),
        (catches_bare, "a bad setting is as bad the second time"),
        (catches_runtime_errors, "not the only one"),
        (retries_inside, "Retry after the block"),
        (keeps_the_error, "the error is alive"),
        (a_name_holds_it, "a variable that names the first cache"),
        (half_filled, "the cache of the first one, half filled"),
        (resident_again, "is not offloaded"),
        (never_offloads, "there is no second attempt"),
        (always_offloads, "that costs time for nothing"),
        (tries_for_ever, "again and again"),
        (returns_none, "nothing was done"),
        (forgets_the_options, "the options did not reach"),
        (gives_no_cache, "got no cache of ours"),
        (lets_the_package, "does what this task builds"),
    ],
    "10b": [
        (one_beam, "the beams are forgotten"),
        (the_returned, "for those that are searched"),
        (both, "were multiplied"),
        (prompt_shared, "the prompt was counted once"),
        (prompt_shared_and_the_last, "the prompt was counted once"),
        (new_alone, "the prompt is forgotten"),
        (the_last_token_too, "a token too many"),
        (prompt_alone, "the new tokens are forgotten"),
        (in_tokens, "multiply by the bytes"),
        (spare, "with a quarter of spare room"),
        (two_for_keys_and_values, "it was doubled"),
        (lambda *_: 245_760, "every case gets the same answer"),
    ],
}
RIGHT = {"10a": [anyhow, anyhow_with_a_flag], "10b": [budget]}
