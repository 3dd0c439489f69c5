"""Task 14c: the outcomes that are called right are those of live caches."""

import pytest

from kvcourse.check.states_14 import OPERATIONS, REASONS


@pytest.mark.parametrize("letter", OPERATIONS)
def test_the_reason_has_the_outcome_of_a_live_cache(letter):
    asked = OPERATIONS[letter]
    assert asked.reason.split(":")[0] == asked.live()[0]
    assert set(asked.hints) == set(REASONS) - {asked.reason}, "every wrong word has a sentence against it"
