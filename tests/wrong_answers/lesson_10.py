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


def catches_the_host_too(model, ids, **options):
    try:
        return model.generate(ids, cache=cache_for(model), **options)
    except (torch.OutOfMemoryError, MemoryError):
        pass
    return model.generate(ids, cache=cache_for(model, offloading=True), **options)


def two_tries_and_silence(model, ids, **options):
    for offloading in (False, True):
        try:
            return model.generate(ids, cache=cache_for(model, offloading), **options)
        except torch.OutOfMemoryError:
            print("", end="")


def swallows_the_rest(model, ids, **options):
    try:
        return model.generate(ids, cache=cache_for(model), **options)
    except torch.OutOfMemoryError:
        pass
    except Exception:
        return None
    return model.generate(ids, cache=cache_for(model, offloading=True), **options)


def first_cache_in_a_list(model, ids, **options):
    caches = [cache_for(model), cache_for(model, offloading=True)]
    try:
        return model.generate(ids, cache=caches[0], **options)
    except torch.OutOfMemoryError:
        pass
    return model.generate(ids, cache=caches[1], **options)


def clears_and_retries_inside(model, ids, **options):
    cache = cache_for(model)
    try:
        return model.generate(ids, cache=cache, **options)
    except torch.OutOfMemoryError:
        del cache
        gc.collect()
        return model.generate(ids, cache=cache_for(model, offloading=True), **options)


def forgets_the_first_return(model, ids, **options):
    try:
        text = model.generate(ids, cache=kv.DynamicCache(config=model.config), **options)
    except torch.OutOfMemoryError:
        text = None
    text = model.generate(ids, cache=kv.DynamicCache(config=model.config, offloading=True), **options)
    return text


def hands_over_a_dict(model, ids, **options):
    try:
        return model.generate(ids, cache=kv.DynamicCache(config=model.config), options=options)
    except torch.OutOfMemoryError:
        pass
    return model.generate(ids, cache=kv.DynamicCache(config=model.config, offloading=True), options=options)


def never_asks(model, ids, **options):
    pass


def prints_it(model, ids, **options):
    str(model.generate(ids, cache=cache_for(model), **options))


def anyhow_in_a_loop(model, ids, **options):
    """Right: two tries, and the second error passes."""
    for offloading in (False, True):
        try:
            return model.generate(ids, cache=cache_for(model, offloading), **options)
        except torch.OutOfMemoryError:
            if offloading:
                raise


def anyhow_forgets_the_name(model, ids, **options):
    """Right: the name goes before the retry."""
    cache = cache_for(model)
    try:
        return model.generate(ids, cache=cache, **options)
    except torch.OutOfMemoryError:
        del cache
    return model.generate(ids, cache=cache_for(model, offloading=True), **options)


def lets_the_package(model, ids, **options):
    return kv.resilient_generate(model, ids, **options)


# 10b


def budget(a_token, prompts, new, beams, returned):
    """Right."""
    return len(prompts) * beams * (max(prompts) + new - 1) * a_token


def budget_in_a_tensor(*numbers):
    """Right: a float in a tensor."""
    return torch.tensor([float(budget(*numbers))])


def one_beam(a_token, prompts, new, beams, returned):
    return len(prompts) * (max(prompts) + new - 1) * a_token


def the_returned(a_token, prompts, new, beams, returned):
    return len(prompts) * returned * (max(prompts) + new - 1) * a_token


def both(a_token, prompts, new, beams, returned):
    return len(prompts) * beams * returned * (max(prompts) + new - 1) * a_token


def beams_and_the_returned(a_token, prompts, new, beams, returned):
    return len(prompts) * (beams + returned) * (max(prompts) + new - 1) * a_token


def prompt_shared(a_token, prompts, new, beams, returned):
    return len(prompts) * (max(prompts) + beams * (new - 1)) * a_token


def prompt_shared_and_the_last(a_token, prompts, new, beams, returned):
    return len(prompts) * (max(prompts) + beams * new) * a_token


def new_alone(a_token, prompts, new, beams, returned):
    return len(prompts) * beams * new * a_token


def the_last_token_too(a_token, prompts, new, beams, returned):
    return len(prompts) * beams * (max(prompts) + new) * a_token


def one_less(a_token, prompts, new, beams, returned):
    return len(prompts) * beams * (max(prompts) + new - 2) * a_token


def prompt_alone(a_token, prompts, new, beams, returned):
    return len(prompts) * beams * max(prompts) * a_token


def in_tokens(a_token, prompts, new, beams, returned):
    return len(prompts) * beams * (max(prompts) + new - 1)


def spare(a_token, prompts, new, beams, returned):
    return budget(a_token, prompts, new, beams, returned) * 5 // 4


def two_for_keys_and_values(a_token, prompts, new, beams, returned):
    return 2 * budget(a_token, prompts, new, beams, returned)


def first_prompt_alone(a_token, prompts, new, beams, returned):
    return beams * (prompts[0] + new - 1) * a_token


def longest_prompt_alone(a_token, prompts, new, beams, returned):
    return beams * (max(prompts) + new - 1) * a_token


def not_padded(a_token, prompts, new, beams, returned):
    return sum(beams * (prompt + new - 1) * a_token for prompt in prompts)


def all_in_a_row(a_token, prompts, new, beams, returned):
    return beams * (sum(prompts) + new - 1) * a_token


def forty(a_token, prompts, new, beams, returned):
    return 40 * len(prompts) * (max(prompts) + new - 1) * a_token


def says_it(*numbers):
    return f"{budget(*numbers):,} bytes"


WRONG = {
    "10a": [
        (catches_everything, "a bad setting is as bad the second time"),
        (catches_bare, "a bad setting is as bad the second time"),
        (catches_runtime_errors, "not the only one"),
        (retries_inside, "Retry after the block"),
        (keeps_the_error, "or the error"),
        (clears_and_retries_inside, "Retry after the block"),
        (a_name_holds_it, "a variable still names that cache"),
        (first_cache_in_a_list, "a variable still names that cache"),
        (half_filled, "the cache of the first one, half filled"),
        (resident_again, "is not offloaded"),
        (never_offloads, "there is no second attempt"),
        (always_offloads, "that costs time for nothing"),
        (tries_for_ever, "again and again"),
        (returns_none, "nothing was done"),
        (forgets_the_options, "the options did not reach"),
        (gives_no_cache, "got no cache of ours"),
        (catches_the_host_too, "offloading puts even more there"),
        (two_tries_and_silence, "second lack of memory was swallowed"),
        (swallows_the_rest, "an error of another kind was swallowed"),
        (forgets_the_first_return, "`return` what the first one gave"),
        (hands_over_a_dict, "with two stars"),
        (never_asks, "was never called"),
        (prints_it, "`return` missing"),
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
        (beams_and_the_returned, "were added"),
        (one_less, "a token too few"),
        (first_prompt_alone, "one prompt was counted"),
        (longest_prompt_alone, "one prompt was counted"),
        (not_padded, "as long as the longest"),
        (all_in_a_row, "laid end to end"),
        (forty, "one example"),
        (says_it, "a text and not a number"),
        (lambda *_: 245_760, "every case gets the same answer"),
    ],
}
RIGHT = {
    "10a": [anyhow, anyhow_with_a_flag, anyhow_in_a_loop, anyhow_forgets_the_name],
    "10b": [budget, budget_in_a_tensor],
}
