"""A bill counts leading tokens in whole blocks, and never a cold request."""

import pytest
import torch

from kvcourse.bill import Prices, Usage, usage, whole_blocks

PRICES = Prices(fresh=3.0, cached=0.3, output=15.0)


@pytest.mark.parametrize("tokens, block, expected", [(0, 16, 0), (15, 16, 0), (16, 16, 16), (37, 16, 32), (37, 1, 37)])
def test_blocks_are_rounded_down(tokens, block, expected):
    assert whole_blocks(tokens, block) == expected


@pytest.mark.parametrize("tokens, block", [(-1, 16), (5, 0)])
def test_impossible_blocks_are_refused(tokens, block):
    with pytest.raises(ValueError, match="block"):
        whole_blocks(tokens, block)


def test_three_classes_of_tokens_request_by_request():
    prefix = list(range(40))
    requests = [(prefix + [100, 101], 7), (prefix + [200], 5), ([300, *prefix], 3), (prefix + [100, 102, 103], 2)]
    assert usage(requests) == [Usage(42, 0, 7), Usage(9, 32, 5), Usage(41, 0, 3), Usage(11, 32, 2)]
    # in blocks of 1 the last request also finds token 100 of the first one
    assert usage(requests, block=1) == [Usage(42, 0, 7), Usage(1, 40, 5), Usage(41, 0, 3), Usage(2, 41, 2)]


def test_the_same_prompt_again_still_computes_its_last_token():
    prompt = torch.arange(32)[None]
    assert usage([(prompt, 1), (prompt, 1)], block=1)[1] == Usage(1, 31, 1)
    assert usage([(prompt, 1), (prompt, 1)], block=16)[1] == Usage(16, 16, 1)


def test_cost_discounts_cached_tokens_and_never_the_output():
    assert Usage(1_000_000, 0, 0).cost(PRICES) == pytest.approx(3.0)
    assert Usage(0, 1_000_000, 0).cost(PRICES) == pytest.approx(0.3)
    assert Usage(0, 0, 1_000_000).cost(PRICES) == pytest.approx(15.0)
    total = sum([Usage(10, 20, 30), Usage(1, 2, 3)], Usage())
    assert total == Usage(11, 22, 33) and total.cost(PRICES) == pytest.approx((33 + 6.6 + 495) / 1e6)
