"""INT8, the outbox, and the fused operators: all give what plain dispatch and combine give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from xccl_world import SMALL, groups, interleave, randomly

from xccl import CorruptField, Group, Pushed, Steps, dequantise, quantise, run
from xccl.field import publish
from xccl.layout import GroupMap, Kind
from xccl.routing import Floats, Integers

OWNER = np.array([0, 1, 2, 3, 0, 1], np.int32)


def work(tokens: Floats, experts: Integers) -> Floats:
    scaled: Floats = tokens * (experts + 1).astype(np.float32)[:, np.newaxis]
    return scaled


def pulled(group: Group, x: Floats, ids: Integers, weights: Floats, quantised: bool) -> Steps[Any]:
    dispatched = yield from group.dispatch(x, ids, OWNER, quantised=quantised)
    y = work(dispatched.tokens, dispatched.experts)
    combined = yield from group.combine(y, dispatched, weights)
    return dispatched, combined


def pulled_from_outbox(group: Group, x: Floats, ids: Integers, weights: Floats, quantised: bool) -> Steps[Any]:
    dispatched = yield from group.dispatch(x, ids, OWNER, quantised=quantised)
    y = group.outbox(dispatched)
    y[:] = work(dispatched.tokens, dispatched.experts)
    combined = yield from group.combine(y, dispatched, weights)
    return dispatched, combined


def pushed(group: Group, x: Floats, ids: Integers, weights: Floats, quantised: bool) -> Steps[Any]:
    arrived = yield from group.fused_dispatch(x, ids, OWNER, quantised=quantised)
    y = work(arrived.tokens, arrived.experts)
    combined = yield from group.fused_combine(y, arrived, weights)
    return arrived, combined


def batches(seed: int, tokens: list[int], top_k: int, skew: float) -> list[tuple[Floats, Integers, Floats]]:
    rng = np.random.default_rng(seed)
    odds = np.exp(-skew * np.arange(len(OWNER)))
    return [
        (
            rng.standard_normal((t, SMALL.hidden)).astype(np.float32),
            rng.choice(len(OWNER), (t, top_k), p=odds / odds.sum()).astype(np.int32),
            rng.random((t, top_k), np.float32),
        )
        for t in tokens
    ]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 999),
    st.lists(st.integers(0, SMALL.max_tokens), min_size=4, max_size=4),
    st.integers(1, SMALL.top_k),
    st.sampled_from([0.0, 9.0]),
    st.booleans(),
)
def test_every_way_gives_the_same(seed: int, tokens: list[int], top_k: int, skew: float, quantised: bool) -> None:
    with groups(4) as group:
        for round_ in range(3):
            batch = batches(seed + round_, tokens, top_k, skew)
            results = {}
            for way in (pulled, pulled_from_outbox, pushed):
                layers = [way(g, *b, quantised) for g, b in zip(group, batch, strict=True)]
                results[way] = interleave(layers, randomly(seed))
            for reference, *others in zip(*results.values(), strict=True):
                for other in others:
                    assert np.array_equal(other[0].tokens, reference[0].tokens)
                    assert np.array_equal(other[0].experts, reference[0].experts)
                    assert other[0].received == reference[0].received
                    assert np.array_equal(other[1], reference[1])
            if quantised:
                expected = [np.empty_like(x) for x, _, _ in batch]
                for (x, _, _), into in zip(batch, expected, strict=True):
                    dequantise(*quantise(x), into)
                exact = interleave(
                    [pulled(g, x, i, w, False) for g, x, (_, i, w) in zip(group, expected, batch, strict=True)]
                )
                for ours, theirs in zip(results[pulled], exact, strict=True):
                    assert np.array_equal(ours[0].tokens, theirs[0].tokens)
                    assert np.array_equal(ours[1], theirs[1])


@given(npst.arrays(np.float32, (3, 6), elements=st.floats(-1e6, 1e6, width=32)))
def test_int8_errs_by_half_a_scale_at_most(x: Floats) -> None:
    rows, scales = quantise(x)
    back = np.empty_like(x)
    dequantise(rows, scales, back)
    assert (np.abs(back - x) <= scales[:, np.newaxis] * np.float32(0.501) + 1e-30).all()
    assert (back[scales == 0] == 0).all()


def test_ranks_may_quantise_as_they_like() -> None:
    with groups(2) as group:
        owner = np.array([0, 1], np.int32)
        ids = np.array([[0, 1]], np.int32)
        x = np.array([[1, 0.3, 0, 0, 0]], np.float32)
        steps = [g.dispatch(x, ids, owner, quantised=g.rank == 1) for g in group]
        for dispatched in interleave(steps):
            assert dispatched.tokens[0, 1] == np.float32(0.3)
            assert dispatched.tokens[1, 1] == np.float32(38) * (np.float32(1) / np.float32(127))


def dispatched_alone(group: Group) -> Pushed:
    x = np.ones((2, SMALL.hidden), np.float32)
    return run(group.fused_dispatch(x, np.zeros((2, 1), np.int32), np.zeros(1, np.int32)), timeout=1)


def test_two_micro_batches_may_be_under_way_and_end_in_order() -> None:
    weights = np.ones((2, 1), np.float32)
    with groups(1) as (group,):
        first, second = dispatched_alone(group), dispatched_alone(group)
        with pytest.raises(ValueError, match="dispatches 1 and 2 were not combined yet"):
            dispatched_alone(group)
    with groups(1) as (group,):
        first, second = dispatched_alone(group), dispatched_alone(group)
        assert (run(group.fused_combine(2 * first.tokens, first, weights), timeout=1) == 2).all()
        third = dispatched_alone(group)
        for pushed_ in (second, third):
            assert (run(group.fused_combine(pushed_.tokens, pushed_, weights), timeout=1) == 1).all()
        with pytest.raises(ValueError, match="that of 4 is next"):
            run(group.fused_combine(third.tokens, third, weights), timeout=1)


@pytest.mark.parametrize("count", [SMALL.rows + 1, 1 << 40])
def test_more_messages_than_the_buffer_holds_are_corrupt(count: int) -> None:
    with groups(2) as (a, b):
        field = GroupMap(SMALL).field(Kind.PUSH, 1, 1)
        run(publish(b._push._memories[0], field, 1, count, 0), timeout=1)
        with pytest.raises(CorruptField, match="the buffer holds"):
            dispatched_alone(a)


def test_a_token_with_too_many_results_is_corrupt() -> None:
    with groups(1) as (group,):
        pushed_ = dispatched_alone(group)
        group._own.memory.poke(GroupMap(SMALL).flags(1), 5)
        with pytest.raises(CorruptField, match="token 0 has 6 results of 1"):
            run(group.fused_combine(pushed_.tokens, pushed_, np.ones((2, 1), np.float32)), timeout=1)
