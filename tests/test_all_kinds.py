"""Random sequences of operations on every kind of cache, against the text itself.

`make test` runs 2,000 sequences, always the same ones. `make fuzz N=5000` runs others, as many for each kind as one
likes: it sets KVCOURSE_FUZZ, and prints the seed at the end.
"""

import os

import pytest
import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from kinds import HEAD_DIM, HEADS, KINDS, WINDOW, Story

import kvcourse as kv

EXAMPLES = int(os.environ.get("KVCOURSE_FUZZ", 0)) or -(-2_000 // len(KINDS))
SEED = int(os.environ.get("KVCOURSE_SEED", 0))

OPERATIONS = st.one_of(
    st.tuples(st.just("update"), st.integers(1, 2 * WINDOW + 2)),
    st.tuples(st.just("update"), st.just(1)),
    st.tuples(st.just("crop"), st.integers(0, 12)),
    st.tuples(st.just("rows"), st.integers(1, 5)),
    st.tuples(st.just("select"), st.integers(1, 3)),
    st.tuples(st.just("repeat"), st.integers(1, 2)),
    st.tuples(st.sampled_from(["record", "reset", "overflow", "misfit"]), st.just(0)),
)


def refused(story, error, change, message):
    """The operation raises, and everything is as it was."""
    before = story.cache.get_seq_length(), story.cache.nbytes(), story.cache.is_croppable
    with pytest.raises(error, match=message):
        change()
    assert before == (story.cache.get_seq_length(), story.cache.nbytes(), story.cache.is_croppable)


def live(story, operation, value):
    batch, used = story.text.shape[0], story.length > 0
    if operation == "update":
        if story.fits(value):
            story.update(value)
        else:  # as a model does it: states first, where there are some
            refused(story, ValueError, lambda: story.update(value), "static cache holds")
            story.check(look=False)
    elif operation == "crop":
        if story.can_crop(value):
            story.crop(value)
        else:
            refused(story, RuntimeError, lambda: story.cache.crop(-value), "cannot|can't")
            assert not story.cache.is_croppable or story.recording or story.can_crop(1)
    elif operation == "rows" and used:
        story.rows([(i * value) % batch for i in range(batch)])
    elif operation == "select" and used:
        story.select([i for i in range(batch) if i % value == 0])
    elif operation == "repeat" and used and batch < 6:
        story.repeat(value)
    elif operation == "record":
        story.record()
    elif operation == "reset":
        story.reset(batch=1 + batch % 3)
    elif operation == "overflow":
        refused(story, ValueError, lambda: story.cache.crop(1), "minus the number")
    elif operation == "misfit" and used and story.kind.layer_types[0] != "linear_attention":
        states = torch.zeros(batch + 1, HEADS, 1, HEAD_DIM)
        refused(story, ValueError, lambda: story.cache.update(states, states, 0), "batch of")
    story.check()


@pytest.mark.parametrize("name", KINDS)
def test_any_sequence_of_operations_keeps_the_text(name):
    @seed(SEED)
    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(OPERATIONS, max_size=14), st.integers(1, 3))
    def run(operations, batch):
        story = Story(KINDS[name], batch=batch)
        for operation, value in operations:
            live(story, operation, value)

    run()


@pytest.mark.parametrize("name", KINDS)
def test_an_empty_cache_answers_every_question(name):
    cache = KINDS[name].make()
    assert cache.get_seq_length() == cache.get_query_offset() == 0
    assert cache.get_mask_sizes(3, 0)[1] == 0 and isinstance(cache.get_max_length(), int)
    assert cache.batch_size == -1 and cache.nbytes() == 0 and not cache.is_initialized
    assert cache.positions(0) == [] and isinstance(cache.is_croppable, bool)
    cache.crop(-3), cache.crop(0), cache.reset(), cache.activate_past_recording(), cache.batch_repeat_interleave(2)
    assert len(cache.is_sliding) == len(cache.is_linear) == len(cache.is_dummy) == len(cache) == len(list(cache)) == 2
    cache.mine = 1  # instances accept new attributes
    assert repr(cache).startswith(type(cache).__name__) and isinstance(cache, kv.Cache)


@pytest.mark.parametrize("name", KINDS)
def test_a_length_never_changes_afterwards(name):
    story = Story(KINDS[name])
    story.update(3)
    length = story.cache.get_seq_length()
    story.update(2)
    assert int(length) == 3
