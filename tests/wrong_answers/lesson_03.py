"""Lesson 03: two clocks, prefill in chunks, bytes read for a token."""

import math
import statistics
import time

import torch

import kvcourse as kv

# 03a


def two_clocks(tokens, clock):
    start, times = clock(), []
    for _ in tokens:
        times.append(clock())
    return times[0] - start, (times[-1] - times[0]) / (len(times) - 1)


def with_next(tokens, clock):
    begin = clock()
    next(tokens)
    first, count = clock(), 0
    for _ in tokens:
        count += 1
    return [first - begin, (clock() - first) / count]


def steps_of(tokens, clock):
    before, steps = clock(), []
    for _ in tokens:
        now = clock()
        steps.append(now - before)
        before = now
    return steps


def divides_by_n(tokens, clock):
    steps = steps_of(tokens, clock)
    return steps[0], sum(steps[1:]) / len(steps)


def averages_all(tokens, clock):
    steps = steps_of(tokens, clock)
    return steps[0], sum(steps) / len(steps)


def prompt_still_in_it(tokens, clock):
    steps = steps_of(tokens, clock)
    return steps[0], sum(steps) / (len(steps) - 1)


def two_steps_for_the_first(tokens, clock):
    steps = steps_of(tokens, clock)
    return steps[0] + steps[1], sum(steps[2:]) / max(1, len(steps) - 2)


def starts_too_late(tokens, clock):
    next(tokens)
    start, times = clock(), []
    for _ in tokens:
        times.append(clock())
    return times[0] - start, (times[-1] - times[0]) / max(1, len(times) - 1)


def all_at_once(tokens, clock):
    start = clock()
    everything = list(tokens)
    seconds = clock() - start
    return seconds, seconds / len(everything)


def swapped(tokens, clock):
    return two_clocks(tokens, clock)[::-1]


def sum_not_mean(tokens, clock):
    steps = steps_of(tokens, clock)
    return steps[0], sum(steps[1:])


def last_step_alone(tokens, clock):
    steps = steps_of(tokens, clock)
    return steps[0], steps[-1]


def tokens_a_second(tokens, clock):
    first, each = two_clocks(tokens, clock)
    return first, 1 / each


def median(tokens, clock):
    steps = steps_of(tokens, clock)
    return steps[0], statistics.median(steps[1:])


def upper_median(tokens, clock):
    steps = steps_of(tokens, clock)
    later = sorted(steps[1:])
    return steps[0], later[len(later) // 2]


def another_clock(tokens, clock):
    return two_clocks(tokens, time.perf_counter)


def all_before_the_clock(tokens, clock):
    return two_clocks(list(tokens), clock)


def milliseconds(tokens, clock):
    return tuple(1_000 * seconds for seconds in two_clocks(tokens, clock))


def mean_of_the_looks(tokens, clock):
    start = clock()
    times = [clock() for _ in tokens]
    return times[0] - start, statistics.mean(times)


def clock_not_called(tokens, clock):
    start = clock
    times = [clock for _ in tokens]
    return times[0] - start, (times[-1] - times[0]) / (len(times) - 1)


def as_a_dict(tokens, clock):
    first, each = two_clocks(tokens, clock)
    return {"first": first, "each": each}


def as_a_tensor(tokens, clock):
    return torch.tensor(two_clocks(tokens, clock))


def one_number(tokens, clock):
    return two_clocks(tokens, clock)[0]


def asks_for_the_number(tokens, clock):
    start, n = clock(), len(tokens)
    times = [clock() for _ in tokens]
    return times[0] - start, (times[-1] - times[0]) / (n - 1)


def takes_number_zero(tokens, clock):
    start = clock()
    tokens[0]
    return clock() - start, 0


# 03b


def chunked(model, ids, chunk, cache):
    for start in range(0, ids.shape[1], chunk):
        out = model(input_ids=ids[:, start : start + chunk], cache=cache)
    return out.logits[:, -1, :]


def short_chunk_first(model, ids, chunk, cache):
    """Right too: whatever is left over goes first."""
    end = ids.shape[1] % chunk or chunk
    out = model(ids[:, :end], cache=cache)
    while end < ids.shape[1]:
        out = model(ids[:, end : end + chunk], cache=cache)
        end += chunk
    return out.logits[:, -1]


def a_fresh_cache_each(model, ids, chunk, cache):
    for part in ids.split(chunk, dim=1):
        cache = kv.DynamicCache()
        out = model(part, cache=cache)
    return out.logits[:, -1]


def cache_not_handed_over(model, ids, chunk, cache):
    for part in ids.split(chunk, dim=1):
        out = model(part)
    return out.logits[:, -1]


def positions_restart(model, ids, chunk, cache):
    for part in ids.split(chunk, dim=1):
        position_ids = torch.arange(part.shape[1]).expand_as(part)
        out = model(part, position_ids=position_ids, cache=cache)
    return out.logits[:, -1]


def short_chunk_dropped(model, ids, chunk, cache):
    for number in range(ids.shape[1] // chunk):
        out = model(ids[:, number * chunk : (number + 1) * chunk], cache=cache)
    return out.logits[:, -1]


def from_the_start(model, ids, chunk, cache):
    for end in range(chunk, ids.shape[1] + chunk, chunk):
        out = model(ids[:, :end], cache=cache)
    return out.logits[:, -1]


def overlap(model, ids, chunk, cache):
    for start in range(0, ids.shape[1], chunk):
        out = model(ids[:, max(0, start - 1) : start + chunk], cache=cache)
    return out.logits[:, -1]


def number_of_chunks(model, ids, chunk, cache):
    for part in torch.chunk(ids, chunk, dim=1):
        out = model(part, cache=cache)
    return out.logits[:, -1]


def splits_the_batch(model, ids, chunk, cache):
    for part in ids.split(chunk):
        out = model(part, cache=cache)
    return out.logits[:, -1]


def at_once(model, ids, chunk, cache):
    return model(ids, cache=cache).logits[:, -1]


def first_of_the_last_chunk(model, ids, chunk, cache):
    for part in ids.split(chunk, dim=1):
        out = model(part, cache=cache)
    return out.logits[:, 0]


def all_of_the_last_chunk(model, ids, chunk, cache):
    for part in ids.split(chunk, dim=1):
        out = model(part, cache=cache)
    return out.logits


def a_token(model, ids, chunk, cache):
    return chunked(model, ids, chunk, cache).argmax(-1)


def one_cache_of_my_own(model, ids, chunk, cache):
    return chunked(model, ids, chunk, kv.DynamicCache())


def returns_in_the_loop(model, ids, chunk, cache):
    for start in range(0, ids.shape[1], chunk):
        logits = model(ids[:, start : start + chunk], cache=cache).logits
        return logits[:, -1]


def ends_at_chunk(model, ids, chunk, cache):
    for start in range(0, ids.shape[1], chunk):
        logits = model(ids[:, start:chunk], cache=cache).logits
    return logits[:, -1]


def a_step_too_many(model, ids, chunk, cache):
    for start in range(0, ids.shape[1] + chunk, chunk):
        logits = model(ids[:, start : start + chunk], cache=cache).logits
    return logits[:, -1]


def cuts_the_rows(model, ids, chunk, cache):
    for start in range(0, ids.shape[1], chunk):
        logits = model(ids[start : start + chunk], cache=cache).logits
    return logits[:, -1]


def token_by_token(model, ids, chunk, cache):
    for start in range(ids.shape[1]):
        logits = model(ids[:, start : start + chunk], cache=cache).logits
    return logits[:, -1]


def logits_of(pick):
    """A right loop, and `pick` of the logits of the last chunk."""

    def read(model, ids, chunk, cache):
        for part in ids.split(chunk, dim=1):
            logits = model(part, cache=cache).logits
        return pick(logits)

    return read


def at_the_end_of_a_full_chunk(model, ids, chunk, cache):
    for start in range(0, ids.shape[1], chunk):
        logits = model(ids[:, start : start + chunk], cache=cache).logits
    return logits[:, chunk - 1]


def the_output_itself(model, ids, chunk, cache):
    for part in ids.split(chunk, dim=1):
        out = model(part, cache=cache)
    return out


def generated(model, ids, chunk, cache):
    """Right too: the loop is in `generate`, as in the lesson."""
    options = {"max_new_tokens": 1, "output_logits": True, "return_dict_in_generate": True}
    return model.generate(ids, cache=cache, prefill_chunk_size=chunk, **options).logits[0]


def returns_nothing(model, ids, chunk, cache):
    chunked(model, ids, chunk, cache)


# 03c


def bytes_for_a_token(config, parameters, tokens, batch, dtype):
    return parameters * dtype.itemsize / batch + tokens * kv.measure.bytes_per_token(config, dtype)


def meets_at(config, parameters, batch, dtype):
    return math.ceil(parameters * dtype.itemsize / batch / kv.measure.bytes_per_token(config, dtype))


def counted_up(config, parameters, batch, dtype):
    """Right too, if slow."""
    weights, one, tokens = parameters * dtype.itemsize, kv.measure.bytes_per_token(config, dtype), 0
    while batch * tokens * one < weights:
        tokens += 1
    return tokens


def in_whole_bytes(config, parameters, tokens, batch, dtype):
    """Right too: the whole step, divided by the batch."""
    step = parameters * dtype.itemsize + batch * tokens * kv.measure.bytes_per_token(config, dtype)
    return torch.tensor(step // batch)


def a_token_of(config, dtype, heads=None, part=2, size=None):
    heads, size = heads or config.num_key_value_heads, size or config.head_dim
    return part * config.num_hidden_layers * heads * size * dtype.itemsize


def type_left_out(config, parameters, tokens, batch, dtype):
    return parameters * dtype.itemsize / batch + tokens * kv.measure.bytes_per_token(config)


def two_bytes_always(config, parameters, tokens, batch, dtype):
    return bytes_for_a_token(config, parameters, tokens, batch, torch.bfloat16)


def head_dim_guessed(config, parameters, tokens, batch, dtype):
    size = config.hidden_size // config.num_attention_heads
    return parameters * dtype.itemsize / batch + tokens * a_token_of(config, dtype, size=size)


def one_token_more(config, parameters, tokens, batch, dtype):
    return bytes_for_a_token(config, parameters, tokens + 1, batch, dtype)


def cache_alone(config, parameters, tokens, batch, dtype):
    return tokens * a_token_of(config, dtype)


def one_token_of_cache(config, parameters, tokens, batch, dtype):
    return parameters * dtype.itemsize / batch + a_token_of(config, dtype)


def among_all_tokens(config, parameters, tokens, batch, dtype):
    return the_whole_step(config, parameters, tokens, batch, dtype) / (batch * tokens)


def meets_without_the_type(config, parameters, batch, dtype):
    return math.ceil(parameters * dtype.itemsize / (batch * kv.measure.bytes_per_token(config)))


def meets_one_too_many(config, parameters, batch, dtype):
    return parameters * dtype.itemsize // (batch * a_token_of(config, dtype)) + 1


def meets_rounded(config, parameters, batch, dtype):
    return round(parameters * dtype.itemsize / (batch * a_token_of(config, dtype)))


def meets_by_a_guess(config, parameters, batch, dtype):
    size = config.hidden_size // config.num_attention_heads
    return math.ceil(parameters * dtype.itemsize / (batch * a_token_of(config, dtype, size=size)))


def meets_query_heads(config, parameters, batch, dtype):
    one = a_token_of(config, dtype, config.num_attention_heads)
    return math.ceil(parameters * dtype.itemsize / (batch * one))


def meets_in_bytes(config, parameters, batch, dtype):
    return meets_at(config, parameters, batch, dtype) * a_token_of(config, dtype)


def counted_up_slowly(config, parameters, batch, dtype):
    tokens = 0
    while batch * tokens * sum(a_token_of(config, dtype) for _ in range(99)) < 99 * parameters * dtype.itemsize:
        tokens += 1
    return tokens


def all_weights_each(config, parameters, tokens, batch, dtype):
    return parameters * dtype.itemsize + tokens * a_token_of(config, dtype)


def cache_shared(config, parameters, tokens, batch, dtype):
    return (parameters * dtype.itemsize + tokens * a_token_of(config, dtype)) / batch


def keys_alone(config, parameters, tokens, batch, dtype):
    return parameters * dtype.itemsize / batch + tokens * a_token_of(config, dtype, part=1)


def the_whole_step(config, parameters, tokens, batch, dtype):
    return parameters * dtype.itemsize + batch * tokens * a_token_of(config, dtype)


def everybodys_cache(config, parameters, tokens, batch, dtype):
    return parameters * dtype.itemsize / batch + batch * tokens * a_token_of(config, dtype)


def a_byte_for_a_weight(config, parameters, tokens, batch, dtype):
    return parameters / batch + tokens * a_token_of(config, dtype)


def weights_alone(config, parameters, tokens, batch, dtype):
    return parameters * dtype.itemsize / batch


def query_heads(config, parameters, tokens, batch, dtype):
    return parameters * dtype.itemsize / batch + tokens * a_token_of(config, dtype, config.num_attention_heads)


def meets_whatever_the_batch(config, parameters, batch, dtype):
    return meets_at(config, parameters, 1, dtype)


def meets_later(config, parameters, batch, dtype):
    return math.ceil(batch * parameters * dtype.itemsize / a_token_of(config, dtype))


def meets_keys_alone(config, parameters, batch, dtype):
    return math.ceil(parameters * dtype.itemsize / batch / a_token_of(config, dtype, part=1))


def meets_rounded_down(config, parameters, batch, dtype):
    return parameters * dtype.itemsize // (batch * a_token_of(config, dtype))


def meets_in_part_of_a_token(config, parameters, batch, dtype):
    return parameters * dtype.itemsize / (batch * a_token_of(config, dtype))


WRONG = {
    "03a": [
        (divides_by_n, "n - 1: reading the prompt already gives"),
        (averages_all, "average of all steps"),
        (prompt_still_in_it, "time of the prompt is still in it"),
        (two_steps_for_the_first, "counted into the first token"),
        (starts_too_late, "started after the first token"),
        (all_at_once, "all tokens were fetched"),
        (swapped, "swapped"),
        (sum_not_mean, "divide it by their number"),
        (last_step_alone, "one step is not the average"),
        (tokens_a_second, "seconds a token were asked for"),
        (one_number, "not two numbers"),
        (asks_for_the_number, "count them as you go"),
        (takes_number_zero, "next(tokens) takes the first"),
        (as_a_dict, "return both"),
        (median, "the step in the middle"),
        (upper_median, "the step in the middle"),
        (another_clock, "the computer's own clock"),
        (all_before_the_clock, "no step ran"),
        (milliseconds, "milliseconds"),
        (mean_of_the_looks, "difference of two looks"),
        (clock_not_called, "clock() is what it shows"),
    ],
    "03b": [
        (a_fresh_cache_each, "each chunk got a fresh cache"),
        (cache_not_handed_over, "the caller's cache stays empty"),
        (positions_restart, "positions restart at 0"),
        (short_chunk_dropped, "last, short chunk was dropped"),
        (from_the_start, "the whole text so far"),
        (overlap, "overlap by one token"),
        (number_of_chunks, "not the number of chunks"),
        (splits_the_batch, "the tokens are dim=1"),
        (at_once, "went through at once"),
        (first_of_the_last_chunk, "after the first token of the last chunk"),
        (all_of_the_last_chunk, "after every token"),
        (at_the_end_of_a_full_chunk, "the last chunk may be shorter"),
        (a_token, "the token itself was returned"),
        (one_cache_of_my_own, "a cache of your own"),
        (returns_in_the_loop, "inside the loop"),
        (ends_at_chunk, "from start to start + chunk"),
        (a_step_too_many, "a step too many"),
        (cuts_the_rows, "the sequences were cut"),
        (token_by_token, "moves on by one token"),
        (logits_of(lambda logits: logits[-1]), "keep all sequences"),
        (logits_of(lambda logits: logits[0, -1]), "keep all sequences"),
        (logits_of(lambda logits: logits[:, :, -1]), "one word of the vocabulary"),
        (logits_of(lambda logits: logits[:, -1:]), "keeps the axis of the tokens"),
        (logits_of(lambda logits: logits[:, -1].softmax(-1)), "the softmax of the scores"),
        (the_output_itself, "its `.logits` are the scores"),
        (returns_nothing, "`return` missing"),
    ],
    "03c": [
        ((all_weights_each, meets_at), "each token pays for all weights"),
        ((cache_shared, meets_at), "the cache is not shared"),
        ((keys_alone, meets_at), "the values were forgotten"),
        ((the_whole_step, meets_at), "what the whole step reads"),
        ((everybodys_cache, meets_at), "its own is the only one"),
        ((a_byte_for_a_weight, meets_at), "parameters are numbers"),
        ((weights_alone, meets_at), "a step reads the cache too"),
        ((query_heads, meets_at), "query heads were counted"),
        ((type_left_out, meets_at), "wants the type"),
        ((two_bytes_always, meets_at), "not always 2"),
        ((head_dim_guessed, meets_at), "head_dim was guessed"),
        ((one_token_more, meets_at), "one token too many"),
        ((cache_alone, meets_at), "a step reads the weights too"),
        ((one_token_of_cache, meets_at), "the cache of a single token"),
        ((among_all_tokens, meets_at), "among the tokens in the caches"),
        ((bytes_for_a_token,), "hand over both"),
        ((meets_at, bytes_for_a_token), "the two functions are swapped"),
        ((bytes_for_a_token, meets_without_the_type), "wants the type"),
        ((bytes_for_a_token, meets_one_too_many), "one too many where it comes out even"),
        ((bytes_for_a_token, meets_rounded), "the nearer side"),
        ((bytes_for_a_token, meets_by_a_guess), "head_dim was guessed"),
        ((bytes_for_a_token, meets_query_heads), "query heads were counted"),
        ((bytes_for_a_token, meets_in_bytes), "tokens are asked for"),
        ((bytes_for_a_token, counted_up_slowly), "right and too slow"),
        ((bytes_for_a_token, meets_whatever_the_batch), "half the tokens"),
        ((bytes_for_a_token, meets_later), "earlier, not later"),
        ((bytes_for_a_token, meets_keys_alone), "the values were forgotten"),
        ((bytes_for_a_token, meets_rounded_down), "round up"),
        ((bytes_for_a_token, meets_in_part_of_a_token), "a part of a token does not exist"),
    ],
}
RIGHT = {
    "03a": [two_clocks, with_next, as_a_tensor],
    "03b": [chunked, short_chunk_first, generated],
    "03c": [(bytes_for_a_token, meets_at), (in_whole_bytes, counted_up)],
}
