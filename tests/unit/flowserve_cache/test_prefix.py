"""Prompts that begin alike share blocks; nothing uncommitted is ever shared; the accounts balance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowserve.cache import BlockPool, PrefixCache, SequenceKV

BLOCK, UNIT = 2, 4
PROMPT = list(range(100, 111))  # two whole units and three tokens


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(16, BLOCK, layers=2, width=1)


@pytest.fixture
def cache(pool: BlockPool) -> PrefixCache:
    return PrefixCache(pool, UNIT)


def written(pool: BlockPool, tokens: list[int], prefix: int = 0, sequence: SequenceKV | None = None) -> SequenceKV:
    """A sequence whose KV is its tokens."""
    sequence = sequence or SequenceKV(pool)
    sequence.append(len(tokens) - prefix)
    blocks, offsets = sequence.slots(prefix, len(tokens) - prefix)
    for layer in range(pool.layers):
        pool.store(layer, blocks, offsets, np.array(tokens[prefix:], np.float32)[:, None])
    return sequence


def test_a_prompt_that_begins_alike_finds_its_beginning(pool: BlockPool, cache: PrefixCache) -> None:
    first = written(pool, PROMPT)
    cache.insert(first, PROMPT)
    first.free()
    other = [*PROMPT[:8], 7, 8]
    second = SequenceKV(pool)
    assert cache.attach(second, other) == 8
    written(pool, other, 8, second)
    assert second.read(1)[:, 0].tolist() == other
    third = SequenceKV(pool)
    assert cache.attach(third, PROMPT) == 8
    assert third.read(0)[:, 0].tolist() == PROMPT[:8], "the second wrote behind what is shared"
    second.free()
    assert cache.idle_blocks == 0
    third.free()
    assert cache.idle_blocks == 4


@pytest.mark.parametrize(("tokens", "length"), [(PROMPT[:8], 4), (PROMPT[:5], 4), (PROMPT[:4], 0), ([1, *PROMPT], 0)])
def test_one_token_is_always_left_to_compute(
    pool: BlockPool, cache: PrefixCache, tokens: list[int], length: int
) -> None:
    cache.insert(written(pool, PROMPT), PROMPT)
    assert cache.attach(SequenceKV(pool), tokens) == length


def test_the_same_unit_behind_another_is_another_unit(pool: BlockPool, cache: PrefixCache) -> None:
    cache.insert(written(pool, PROMPT), PROMPT)
    assert cache.attach(SequenceKV(pool), [*PROMPT[4:8], 1]) == 0


def test_what_is_not_committed_stays_out(pool: BlockPool, cache: PrefixCache) -> None:
    drafted = written(pool, PROMPT)  # 11 written, 7 of them accepted
    cache.insert(drafted, PROMPT[:7])
    assert cache.attach(SequenceKV(pool), PROMPT) == 4
    with pytest.raises(ValueError, match="12 tokens are more than the 11"):
        cache.insert(drafted, [*PROMPT, 1])


def test_room_is_made_from_the_oldest_and_from_behind(pool: BlockPool, cache: PrefixCache) -> None:
    for start in (0, 50):
        tokens = list(range(start, start + 12))
        sequence = written(pool, tokens)
        cache.insert(sequence, tokens)
        sequence.free()
    assert (len(cache), pool.free_blocks) == (6, 4)
    touched = SequenceKV(pool)
    assert cache.attach(touched, list(range(13))) == 12
    touched.free()
    assert cache.make_room(7)
    assert pool.free_blocks == 8
    assert cache.attach(SequenceKV(pool), list(range(50, 63))) == 4, "its last two units went"


def test_what_a_sequence_holds_is_not_forgotten_for_nothing(pool: BlockPool, cache: PrefixCache) -> None:
    sequence = written(pool, PROMPT)
    cache.insert(sequence, PROMPT)
    assert not cache.make_room(16)
    assert sequence.read(0)[:, 0].tolist() == PROMPT
    assert len(cache) == 2
    sequence.free()
    assert cache.make_room(16)
    assert pool.free_blocks == 16


def test_units_are_whole_blocks(pool: BlockPool) -> None:
    with pytest.raises(ValueError, match="3 tokens is no whole number of blocks of 2"):
        PrefixCache(pool, 3)


prompts = st.lists(st.integers(0, 1), min_size=1, max_size=14)


@given(st.lists(st.tuples(prompts, st.integers(0, 14), st.booleans()), max_size=12))
def test_a_found_prefix_is_what_its_tokens_would_have_written(steps: list[tuple[list[int], int, bool]]) -> None:
    pool = BlockPool(10, BLOCK, layers=1, width=1)
    cache = PrefixCache(pool, UNIT)
    for tokens, committed, evict in steps:
        sequence = SequenceKV(pool)
        found = cache.attach(sequence, tokens)
        assert found < len(tokens)
        assert sequence.read(0)[:, 0].tolist() == tokens[:found]
        if cache.make_room(pool.blocks_for(len(tokens)) + 1):
            written(pool, tokens, found, sequence)
            cache.insert(sequence, tokens[: min(committed, len(tokens))])
        sequence.free()
        if evict:
            cache.make_room(pool.num_blocks)
    cache.clear()
    assert pool.free_blocks == pool.num_blocks
