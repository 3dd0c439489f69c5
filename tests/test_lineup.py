"""The table of lesson 15: its bytes are those of caches filled by hand, its abilities those of live caches."""

import pytest
import torch

import kvcourse as kv
from kvcourse.lineup import KINDS, Kind, line_up, line_up_toys, table, times


@pytest.fixture(scope="module")
def rows():
    from conftest import tiny_llama

    torch.set_num_threads(1)
    text = torch.randint(3, 97, (1, 260), generator=torch.Generator().manual_seed(2))
    return {row.name: row for row in line_up(tiny_llama(), text, steps=3)}


ABLE = {  # croppable, compileable, exact
    "no cache": (True, False, True),
    "dynamic": (True, False, True),
    "dynamic, half windows": (False, False, True),
    "static": (True, True, True),
    "offloaded": (True, False, True),
    "fp8": (True, False, False),
    "quanto, 4 bits": (True, False, False),
    "hqq, 4 bits": (True, False, False),
    "hqq, 2 bits": (True, False, False),
}


def test_every_kind_can_what_its_live_cache_can(rows):
    assert list(rows) == [kind.name for kind in KINDS]
    assert {name: (row.croppable, row.compileable, row.exact) for name, row in rows.items()} == ABLE
    assert all(row.step_s > 0 and row.tokens == 260 for row in rows.values())


def test_bytes_are_those_held(rows):
    token = 2 * 2 * 2 * 16 * 4  # layers, key and value, heads, head_dim, float32
    spare = token * (257 + 257 // 4)  # 257 tokens at once, then three one by one
    assert rows["no cache"].nbytes == 0
    assert rows["dynamic"].nbytes == spare and rows["dynamic"].first_nbytes == token
    assert rows["dynamic"].bytes_per_token == spare / 260
    assert rows["static"].nbytes == rows["static"].first_nbytes == token * 2 * 260
    assert rows["offloaded"].nbytes == spare  # two layers are all that this model has
    full, windowed = spare // 2, token // 2 * (63 + 63 // 4)
    assert rows["dynamic, half windows"].nbytes == full + windowed
    # one byte a number and one for the scale, in codes and in scales that both grew by a quarter
    assert rows["fp8"].nbytes == 2 * 2 * (257 + 257 // 4) * (2 * 16 + 1)
    assert rows["hqq, 2 bits"].nbytes < rows["hqq, 4 bits"].nbytes == rows["quanto, 4 bits"].nbytes < spare


def test_a_cache_that_forgets_is_found_out(llama):
    text = torch.randint(3, 97, (1, 60), generator=torch.Generator().manual_seed(2))

    class Forgetful(kv.DynamicCache):
        def update(self, key_states, value_states, layer_idx, *args, **kwargs):
            if key_states.shape[-2] == 1:
                value_states = value_states * 0.5
            return super().update(key_states, value_states, layer_idx, *args, **kwargs)

    kinds = (Kind("right", KINDS[1].make, "02"), Kind("wrong", lambda config, tokens: Forgetful(config=config), "02"))
    assert [row.exact for row in line_up(llama, text, 2, kinds)] == [True, False]


def test_toys():
    both, states = line_up_toys(kv.load)
    assert (states.name, states.croppable, states.exact) == ("states", False, True)
    assert states.nbytes == states.first_nbytes == 21_504
    assert (both.name, both.croppable, both.exact) == ("encoder-decoder", True, True)
    assert both.first_nbytes == 2 * 2 * 4 * 16 * 4 * (1 + 6)  # one token of the answer, six of the source
    assert both.nbytes > both.first_nbytes


def test_the_tables_hold_every_row(rows):
    lines = table(rows.values()).splitlines()
    assert len(lines) == 1 + len(rows)
    assert lines[2].split() == ["dynamic", "632", "512", "yes", "no", "yes", "02"]
    multiples = times(rows.values()).splitlines()
    assert multiples[2].split() == ["dynamic", "1.0", "x"] and len(multiples) == len(lines)
