"""Blocks: against a plain book-keeping of who holds which token, and keys read by slot against a cache of one's own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kvcourse as kv
from kvcourse.engine import engine_start
from kvcourse.paged import BlockPool, OutOfBlocks
from kvcourse.paged_memory import PagedMemory, step

GIB = 2**30


def content(pool, texts):
    """Lets each request write its text, a list, into its slots: no slot may get two different tokens."""
    memory = {}
    for name, text in texts.items():
        for slot, token in zip(pool.slots(name), text, strict=True):
            assert memory.setdefault(slot, token) == token, f"slot {slot} holds two tokens"


OPERATIONS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)), max_size=25)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(OPERATIONS)
def test_no_slot_ever_holds_two_tokens_and_no_block_is_lost(operations):
    pool, texts, fresh = BlockPool(9, size=4), {}, iter(range(10_000))
    for number, (kind, which, tokens) in enumerate(operations):
        names = list(texts)
        before = (list(pool.free), list(pool.users), {k: list(v) for k, v in pool.tables.items()}, dict(pool.lengths))
        try:
            if kind == 0 or not names:
                pool.start(number, tokens)
                texts[number] = [next(fresh) for _ in range(tokens)]
            elif kind == 1:
                pool.fork(number, of=names[which % len(names)])
                texts[number] = list(texts[names[which % len(names)]])
            elif kind == 2:
                name = names[which % len(names)]
                length = len(texts[name])
                was = pool.slots(name)
                copied = pool.append(name, tokens)
                moved = sum(a != b for a, b in zip(was, pool.slots(name), strict=False))
                assert (moved > 0) == (copied is not None) and moved in (0, length % 4)
                texts[name] += [next(fresh) for _ in range(tokens)]
            else:
                name = names[which % len(names)]
                assert pool.end(name) == len(texts.pop(name))
        except OutOfBlocks:
            assert (pool.free, pool.users, pool.tables, pool.lengths) == before
        content(pool, texts)
        assert pool.miscounted() == {}
        in_use = {block for table in pool.tables.values() for block in table}
        assert sorted([*in_use, *pool.free]) == list(range(9))
        slots = {slot for name in texts for slot in pool.slots(name)}
        assert pool.wasted == 4 * len(in_use) - len(slots)


def test_three_requests_waste_less_than_a_block_each():
    pool = BlockPool(11)
    for name, tokens in {"A": 40, "B": 9, "C": 100}.items():
        pool.start(name, tokens)
    assert pool.wasted == 8 + 7 + 12 and not pool.free
    with pytest.raises(OutOfBlocks, match="D needs 1 more blocks, 0 are free"):
        pool.start("D", 1)
    assert "D" not in pool.tables
    assert pool.append("A", 8) is None  # the rest of its last block
    with pytest.raises(OutOfBlocks):
        pool.append("A")
    assert pool.preempt() == ("C", 100) and len(pool.free) == 7


def test_a_shared_block_is_copied_by_the_one_who_writes():
    pool = BlockPool(6, size=4)
    pool.start("A", 6)
    pool.fork("B", of="A")
    assert pool.users[:2] == [2, 2] and pool.wasted == 2
    assert pool.append("B", 1) == (1, 2)
    assert pool.tables == {"A": [0, 1], "B": [0, 2]} and pool.users[:3] == [2, 1, 1]
    assert pool.append("A", 1) is None  # nobody else reads it now
    pool.end("A")
    assert pool.free == [3, 4, 5, 1] and pool.users[0] == 1  # B still reads block 0
    pool.users[2] = 3
    assert pool.miscounted() == {2: (3, 1)}


def test_requests_read_by_slot_write_what_they_would_have_written_alone(llama):
    prefix = torch.randint(3, 97, (1, 21), generator=torch.Generator().manual_seed(5))
    tails = {name: torch.tensor([[first, 7, first + 3]]) for name, first in (("A", 11), ("B", 31), ("C", 51))}
    cache = kv.DynamicCache(config=llama.config)
    with torch.no_grad():
        llama(prefix, cache=cache)
    pool = BlockPool(14, size=4)
    pool.start("A", 21)
    memory = PagedMemory(pool, like=cache)
    memory.write(cache, pool.slots("A"))
    for layer, back in zip(cache.layers, memory.read(pool.slots("A")).layers, strict=True):
        assert torch.equal(layer.keys, back.keys) and torch.equal(layer.values, back.values)
    for name in "BC":
        pool.fork(name, of="A")
    texts = dict(tails)
    for place in range(9):  # the three take turns
        for name, text in texts.items():
            token = step(llama, pool, memory, name, text[:, place : place + 1])
            if place + 1 == text.shape[1]:
                texts[name] = torch.cat([text, token], dim=1)
    for name, tail in tails.items():
        alone = kv.greedy(llama, torch.cat([prefix, tail], dim=1), 7, kv.DynamicCache(config=llama.config))
        assert torch.equal(texts[name], alone[:, 21:])
    assert len({tuple(text[0].tolist()) for text in texts.values()}) == 3


def test_an_engine_counts_blocks_after_the_weights_and_rounds_down():
    start = engine_start(24 * GIB, 15 * GIB, 131_072, 8192)
    left = int(24 * GIB * 0.9) - 15 * GIB
    assert start.blocks == left // (16 * 131_072) == 3_379 and start.tokens == 54_064
    assert start.requests == pytest.approx(3_379 / 512)
    assert str(start) == "3,379 blocks of 16 = 54,064 tokens; 6.60 requests of 8,192 tokens at once"
    assert engine_start(24 * GIB, 15 * GIB, 131_072, 17, size=16).requests == 3_379 / 2  # 17 tokens take two blocks


def test_an_engine_that_cannot_serve_one_request_refuses():
    with pytest.raises(ValueError, match="the weights take"):
        engine_start(16 * GIB, 15 * GIB, 131_072, 8192)
    with pytest.raises(ValueError, match="set max_model_len to 54,064 or less"):
        engine_start(24 * GIB, 15 * GIB, 131_072, 65_536)
    for share in (0, 1.2):
        with pytest.raises(ValueError, match="gpu_memory_utilization"):
            engine_start(24 * GIB, 15 * GIB, 131_072, 10, share)
    with pytest.raises(ValueError, match="size=0"):
        engine_start(24 * GIB, 15 * GIB, 131_072, 10, size=0)
