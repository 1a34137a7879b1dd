"""A2E and E2A: results, numbers of metadata writes, every interleaving, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xccl_a2e_world import Batch, attend, compute, connect, dies, random_batch, work
from xccl_explorer import ExploredMemory, Violation, World, explore, mutant
from xccl_world import endpoints, interleave, peer_of, randomly

from xccl import (
    AttentionGroup,
    Broken,
    CorruptField,
    EventMismatch,
    ExpertGroup,
    Layout,
    LayoutMismatch,
    PeerLost,
    Steps,
    Timeout,
    a2e_attention,
    run,
)
from xccl.a2e_attention import Attention
from xccl.a2e_expert import Expert
from xccl.a2e_layout import A2EMap, Way
from xccl.a2e_plan import Plan
from xccl.field import publish
from xccl.memory import MappedMemory

LAYOUT = Layout(max_peers=12, max_tokens=5, hidden=3, top_k=3)


@settings(max_examples=60, deadline=None)
@given(
    attention=st.integers(1, 4),
    experts=st.integers(1, 8),
    trampolines=st.booleans(),
    top_k=st.integers(1, 3),
    skewed=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_every_token_comes_back_weighted(
    attention: int, experts: int, trampolines: bool, top_k: int, skewed: bool, seed: int
) -> None:
    """Bit for bit what one process computes, whoever is fast or slow, with dies that have no tokens."""
    plan = (Plan.with_trampolines if trampolines else Plan.direct)(attention, experts)
    rng = np.random.default_rng(seed)
    owner = rng.integers(0, 1 if skewed else experts, 11, np.int32)
    batches = [
        [
            random_batch(rng, int(rng.integers(0, LAYOUT.max_tokens + 1)), LAYOUT.hidden, top_k, len(owner))
            for _ in "abc"
        ]
        for _ in range(attention)
    ]
    made = dies(plan, LAYOUT)
    steps: list[Steps[Any]] = [
        attend(die, batches[rank], owner) if isinstance(die, Attention) else compute(die, 3)
        for rank, die in enumerate(made)
    ]
    results = interleave(steps, randomly(seed))
    for rank in range(attention):
        for result, batch in zip(results[rank], batches[rank], strict=True):
            assert np.array_equal(result, batch.expected())
    for die, seen in enumerate(results[attention:]):
        assert all((owner[arrived.experts] == die).all() for arrived in seen)


@pytest.mark.parametrize(("kind", "written"), [(Plan.direct, 46_080), (Plan.with_trampolines, 25_728)])
def test_trampolines_save_metadata_writes_between_160_and_288_dies(kind: Any, written: int) -> None:
    """The plan is run over the memories of 448 dies, both ways, and every die counts."""
    plan = kind(160, 288)
    layout = Layout(max_peers=448, max_tokens=1, hidden=1, top_k=2)
    made = dies(plan, layout)
    attention = [die for die in made if isinstance(die, Attention)]
    experts = [die for die in made if isinstance(die, Expert)]
    owner = np.arange(288, dtype=np.int32)
    rng = np.random.default_rng(0)
    batches = [random_batch(rng, 1, 1, 2, 288) for _ in attention]
    sent = [run(die.a2e(b.x, b.experts, owner), timeout=60) for die, b in zip(attention, batches, strict=True)]
    arrived = [(expert, run(expert.a2e(), timeout=60)) for expert in experts]
    for expert, rows in reversed(arrived):  # owned dies come last, and their trampolines wait for them
        run(expert.e2a(rows, work(rows.tokens, rows.experts)), timeout=60)
    for die, batch, each in zip(attention, batches, sent, strict=True):
        assert np.array_equal(run(die.e2a(each, batch.weights), timeout=60), batch.expected())

    for way in Way:
        assert sum(die.traffic[way].written for die in made) == written
        assert sum(die.traffic[way].polled for die in made) == written
    last = experts[-1].traffic[Way.A2E].polled
    assert last == (160 if kind == Plan.direct else 1)


def test_a_plan_gives_each_other_die_one_owner() -> None:
    plan = Plan.with_trampolines(2, 7)
    assert [list(plan.owned(t)) for t in range(2)] == [[2, 4, 6], [3, 5]]
    assert [plan.trampoline_of(die) for die in range(7)] == [0, 1, 0, 1, 0, 1, 0]
    assert plan.order.tolist() == [0, 2, 4, 6, 1, 3, 5]
    assert Plan.with_trampolines(9, 4) == Plan.direct(9, 4)


@pytest.mark.parametrize("sizes", [(0, 4, 1), (4, 0, 0), (4, 4, 0), (4, 4, 5)])
def test_a_plan_that_makes_no_sense_is_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="each kind needs one die"):
        Plan(*sizes)


def test_a_layout_without_room_is_refused() -> None:
    with pytest.raises(LayoutMismatch, match="13 dies, but the layout has room for 12"):
        A2EMap(LAYOUT, Plan.direct(4, 9))


TINY = Layout(max_peers=3, max_tokens=1, hidden=4, top_k=1)


def world_of(plan: Plan, expert_die: int, rounds: int, ahead: int = 2) -> World:
    """`rounds` micro-batches of one token an attention die, all for experts on one die."""
    buffers = [bytearray(A2EMap(TINY, plan).total) for _ in range(plan.dies)]
    made = connect(plan, TINY, [ExploredMemory(buffer, f"rank {rank}") for rank, buffer in enumerate(buffers)])
    owner = np.full(plan.attention, expert_die, np.int32)
    one = np.ones((1, 1), np.float32)
    batches = [
        [
            Batch(np.full((1, TINY.hidden), 10 * number + rank + 1, np.float32), np.full((1, 1), rank, np.int32), one)
            for number in range(rounds)
        ]
        for rank in range(plan.attention)
    ]
    processes: list[Steps[Any]] = [
        attend(die, batches[rank], owner, ahead) if isinstance(die, Attention) else compute(die, rounds)
        for rank, die in enumerate(made)
    ]

    def check(results: list[Any]) -> None:
        for mine, ours in zip(results, batches, strict=False):
            assert [r.tolist() for r in mine] == [batch.expected().tolist() for batch in ours]

    return World(buffers, processes, check)


def forwarding_world() -> World:
    """One attention die, a trampoline, and the die that it owns, which has the expert."""
    return world_of(Plan.with_trampolines(1, 2), expert_die=1, rounds=1)


def fan_in_world() -> World:
    """Two attention dies and one expert die."""
    return world_of(Plan.with_trampolines(2, 1), expert_die=0, rounds=1)


def pipelined_world() -> World:
    """Two micro-batches under way: the third uses the blocks and fields of the first again."""
    return world_of(Plan.with_trampolines(1, 1), expert_die=0, rounds=3)


@pytest.mark.parametrize("world", [forwarding_world, fan_in_world, pipelined_world])
def test_every_interleaving_ends_right(world: Any) -> None:
    assert explore(world) > 150


def swapped(function: Any, first: str, second: str) -> Any:
    """`function` with two neighbouring pieces of its text in the other order."""
    return mutant(function, first + second, second + first)


def test_offering_rows_before_they_are_written_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    write = "    yield from self._own.write(at_tokens, x[sorted_pairs.tokens])\n"
    tell = """\
    for step in range(plan.trampolines):  # not all begin with the same one
        die = (self._rank + step) % plan.trampolines
        yield from self._tell(Way.A2E, plan.rank(die), sent.event, sent.offsets[die], sent.counts[die])
"""
    monkeypatch.setattr(Attention, "a2e", swapped(Attention.a2e, write, tell))
    with pytest.raises(Violation):
        explore(fan_in_world)


def test_forwarding_rows_before_they_are_written_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    write = "        yield from self._own.write(at_tokens + begin * self._row_bytes, tokens[rows_of])\n"
    tell = "        yield from self._tell(Way.A2E, plan.rank(die), event, begin, len(rows_of))\n"
    monkeypatch.setattr(Expert, "_from_attention", swapped(Expert._from_attention, write, tell))
    with pytest.raises(Violation):
        explore(forwarding_world)


def test_returning_results_before_they_are_written_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    write = "        yield from self._own.write(self._map.returned(event), y)\n"
    tell = "        yield from self._tell(Way.E2A, plan.rank(plan.trampoline_of(self._die)), event, 0, len(y))\n"
    monkeypatch.setattr(Expert, "e2a", swapped(Expert.e2a, write, tell))
    with pytest.raises(Violation):
        explore(forwarding_world)


@pytest.mark.parametrize("block", ["field", "offered", "returned"])
def test_a_single_buffer_is_found(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(A2EMap, block, without_parity(block))
    with pytest.raises(Violation):
        explore(pipelined_world)


def without_parity(block: str) -> Any:
    function = getattr(A2EMap, block)
    if block != "offered":
        return mutant(function, "event & 1", "0")
    return mutant(function, "self._offered_targets[event & 1], self._offered_tokens[event & 1]", _BOTH_FIRST)


_BOTH_FIRST = "self._offered_targets[0], self._offered_tokens[0]"


def test_three_micro_batches_under_way_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a2e_attention, "IN_FLIGHT", 3)
    with pytest.raises(Violation):
        explore(lambda: world_of(Plan.with_trampolines(1, 1), expert_die=0, rounds=3, ahead=3))


@contextmanager
def joined(attention: int, experts: int, trampolines: bool = True) -> Iterator[list[AttentionGroup | ExpertGroup]]:
    """The dies of one epoch over real endpoints."""
    with endpoints(attention + experts, LAYOUT, clock=iter(range(1_000_000)).__next__) as made:
        peers = [peer_of(endpoint, rank) for rank, endpoint in enumerate(made)]
        joining: list[Any] = [
            (AttentionGroup if rank < attention else ExpertGroup).join(
                endpoint, epoch=1, rank=rank, peers=peers, attention=attention, trampolines=trampolines
            )
            for rank, endpoint in enumerate(made)
        ]
        yield interleave(joining)


def test_dies_of_an_epoch_meet_and_compute() -> None:
    rng = np.random.default_rng(0)
    batches = [random_batch(rng, 4, LAYOUT.hidden, 2, 6) for _ in range(2)]
    owner = np.arange(6, dtype=np.int32) % 5
    with joined(2, 5) as groups:
        steps: list[Steps[Any]] = [
            attend(group, [batches[rank]], owner) if isinstance(group, AttentionGroup) else compute(group, 1)
            for rank, group in enumerate(groups)
        ]
        results = interleave(steps)
    for rank, batch in enumerate(batches):
        assert np.array_equal(results[rank][0], batch.expected())


def test_a_neighbour_that_leaves_is_lost_and_breaks_the_group() -> None:
    with joined(1, 2) as groups:
        attention, trampoline, owned = groups
        attention.leave()
        assert isinstance(trampoline, ExpertGroup)
        with pytest.raises(PeerLost, match="rank 0"):
            run(trampoline.a2e(), timeout=10)
        with pytest.raises(Broken, match="join the next epoch"):
            run(trampoline.a2e(), timeout=10)
        assert isinstance(owned, ExpertGroup)
        with pytest.raises(Timeout):
            run(owned.a2e(), timeout=0)  # it knows its trampoline only
        trampoline.leave()


def test_what_does_not_fit_is_refused_and_does_no_harm() -> None:
    batch = random_batch(np.random.default_rng(0), 2, LAYOUT.hidden, 2, 2)
    owner = np.array([0, 1], np.int32)
    with joined(1, 2) as groups:
        attention, *experts = groups
        assert isinstance(attention, AttentionGroup)
        wrong: list[tuple[Any, Any, Any]] = [
            (batch.x.astype(np.float64), batch.experts, owner),
            (batch.x, batch.experts + 5, owner),
            (batch.x, batch.experts, owner + 2),
            (batch.x, np.zeros((2, LAYOUT.top_k + 1), np.int32), owner),
        ]
        for x, ids, owners in wrong:
            with pytest.raises(ValueError, match=r"must|at most"):
                run(attention.a2e(x, ids, owners), timeout=1)
        sent = [run(attention.a2e(batch.x, batch.experts, owner), timeout=1) for _ in range(2)]
        with pytest.raises(Broken, match="2 micro-batches are under way"):
            run(attention.a2e(batch.x, batch.experts, owner), timeout=1)
        with pytest.raises(Broken, match="micro-batch 1 comes back next"):
            run(attention.e2a(sent[1], batch.weights), timeout=1)
        with pytest.raises(ValueError, match="4 pairs were sent"):
            run(attention.e2a(sent[0], batch.weights[:1]), timeout=1)
        steps: list[Steps[Any]] = [attend_to(attention, sent, batch)]
        steps += [compute(each, 2) for each in experts if isinstance(each, ExpertGroup)]
        results = interleave(steps)
        assert all(np.array_equal(result, batch.expected()) for result in results[0])


def attend_to(group: AttentionGroup, sent: list[Any], batch: Batch) -> Steps[list[Any]]:
    results = []
    for each in sent:
        results.append((yield from group.e2a(each, batch.weights)))
    return results


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [(0, LAYOUT.rows + 1, CorruptField), (2**40, 1, CorruptField)],
)
def test_an_offer_of_rows_that_cannot_be_is_refused(first: int, second: int, error: type[Exception]) -> None:
    plan = Plan.direct(1, 1)
    memories = [MappedMemory(bytearray(A2EMap(LAYOUT, plan).total)) for _ in range(2)]
    expert = connect(plan, LAYOUT, memories)[1]
    assert isinstance(expert, Expert)
    run(publish(memories[1], A2EMap(LAYOUT, plan).field(Way.A2E, 0, 1), 1, first, second), timeout=1)
    with pytest.raises(error, match="rank 0 offers rows"):
        run(expert.a2e(), timeout=1)


def test_a_die_at_another_event_is_noticed() -> None:
    plan = Plan.direct(1, 1)
    memories = [MappedMemory(bytearray(A2EMap(LAYOUT, plan).total)) for _ in range(2)]
    expert = connect(plan, LAYOUT, memories)[1]
    assert isinstance(expert, Expert)
    run(publish(memories[1], A2EMap(LAYOUT, plan).field(Way.A2E, 0, 1), 3, 0, 0), timeout=1)
    with pytest.raises(EventMismatch):
        run(expert.a2e(), timeout=1)


@pytest.mark.parametrize(("kind", "rank"), [(AttentionGroup, 1), (ExpertGroup, 0), (ExpertGroup, 3)])
def test_a_die_joins_as_what_it_is(kind: Any, rank: int) -> None:
    with endpoints(3, LAYOUT) as made:
        peers = [peer_of(endpoint, number) for number, endpoint in enumerate(made)]
        with pytest.raises(ValueError, match="is no"):
            run(kind.join(made[0], epoch=1, rank=rank, peers=peers, attention=1), timeout=1)
