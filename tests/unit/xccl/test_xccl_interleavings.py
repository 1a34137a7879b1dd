"""Every interleaving of the protocols is right, and the usual bugs would be found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xccl_explorer import ExploredMemory, Violation, World, explore, mutant

from xccl import alltoall, channel, field
from xccl.alltoall import AllToAll
from xccl.channel import Ring
from xccl.layout import GroupMap, Layout
from xccl.routing import route
from xccl.steps import Steps

TWO_SLOTS = Layout(max_peers=2, max_tokens=1, hidden=4, top_k=1, ring_slots=2, slot_bytes=64)


def nobody_lost() -> None:
    return None


def p2p_world() -> World:
    """One message of four chunks, then one of one, through a ring of two slots."""
    messages = [bytes(range(200)), bytes([7] * 10)]
    buffers = [bytearray(TWO_SLOTS.ring_bytes) for _ in range(2)]
    sender, receiver = (
        Ring(ExploredMemory(own, "own"), ExploredMemory(remote, "remote"), TWO_SLOTS, nobody_lost)
        for own, remote in (buffers, reversed(buffers))
    )

    def send() -> Steps[None]:
        for event, message in enumerate(messages, 1):
            yield from sender.send(memoryview(message), event)

    def receive() -> Steps[list[bytes]]:
        received = []
        for event in range(1, len(messages) + 1):
            into = bytearray(256)
            nbytes = yield from receiver.receive(memoryview(into), event)
            received.append(bytes(into[:nbytes]))
        return received

    def check(results: list[Any]) -> None:
        assert results[1] == messages

    return World(buffers, [send(), receive()], check)


def group_of_two() -> tuple[list[bytearray], list[AllToAll]]:
    buffers = [bytearray(TWO_SLOTS.group_bytes) for _ in range(2)]
    ranks = [
        AllToAll(rank, [ExploredMemory(b, f"rank {r}") for r, b in enumerate(buffers)], TWO_SLOTS, nobody_lost)
        for rank in range(2)
    ]
    return buffers, ranks


def vote_world() -> World:
    """Three votes: the third uses the fields of the first again."""
    buffers, ranks = group_of_two()

    def votes(rank: int) -> Steps[list[tuple[int, ...]]]:
        seen = []
        for round_ in range(3):
            seen.append((yield from ranks[rank].vote(10 * round_ + rank)))
        return seen

    def check(results: list[Any]) -> None:
        assert results == [[(0, 1), (10, 11), (20, 21)]] * 2

    return World(buffers, [votes(0), votes(1)], check)


def dispatch_world() -> World:
    """Three dispatches in a row, both tokens to rank 1: the third uses the blocks of the first again."""
    buffers, ranks = group_of_two()
    owner = np.array([1], np.int32)
    expert = np.zeros((1, 1), np.int32)

    def dispatches(rank: int) -> Steps[list[list[float]]]:
        seen = []
        for round_ in range(3):
            x = np.full((1, 4), 10 * round_ + rank, np.float32)
            dispatched = yield from ranks[rank].dispatch(x, route(expert, owner, 2))
            seen.append(dispatched.tokens[:, 3].tolist())
        return seen

    def check(results: list[Any]) -> None:
        assert results == [[[], [], []], [[0, 1], [10, 11], [20, 21]]]

    return World(buffers, [dispatches(0), dispatches(1)], check)


def combine_world() -> World:
    """A token of rank 0 whose expert lies on rank 1, and three combines of it."""
    buffers, ranks = group_of_two()
    owner = np.array([1], np.int32)

    def combines(rank: int) -> Steps[list[list[float]]]:
        tokens = 1 - rank
        x = np.ones((tokens, 4), np.float32)
        dispatched = yield from ranks[rank].dispatch(x, route(np.zeros((tokens, 1), np.int32), owner, 2))
        seen = []
        for round_ in range(3):
            y = dispatched.tokens + np.float32(10 * round_)
            combined = yield from ranks[rank].combine(y, dispatched, np.ones((tokens, 1), np.float32))
            seen.append(combined[:, 3].tolist())
        return seen

    def check(results: list[Any]) -> None:
        assert results == [[[1], [11], [21]], [[], [], []]]

    return World(buffers, [combines(0), combines(1)], check)


@pytest.mark.parametrize("world", [p2p_world, vote_world, dispatch_world, combine_world])
def test_every_interleaving_ends_right(world: Any) -> None:
    assert explore(world) > 500


def test_p2p_publishing_before_the_data_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    write = "yield from self._remote.write(self._map.slot(tail), chunk)"
    publish = "yield from publish(self._remote, self._map.field(tail), tail, event, left << _BYTES_BITS | len(chunk))"
    swapped = mutant(Ring.send, f"{write}\n        {publish}", f"{publish}\n        {write}")
    monkeypatch.setattr(Ring, "send", swapped)
    with pytest.raises(Violation):
        explore(p2p_world)


def test_p2p_acknowledging_before_the_copy_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    read = "yield from self._own.read("
    early = mutant(Ring.receive, read, f"yield from self._remote.store(self._map.acknowledged, tail); {read}")
    monkeypatch.setattr(Ring, "receive", early)
    with pytest.raises(Violation):
        explore(p2p_world)


def test_p2p_sending_into_a_full_ring_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    hasty = mutant(Ring._await_free_slot, "self._sent + 1 - self._slots", "self._sent - self._slots")
    monkeypatch.setattr(Ring, "_await_free_slot", hasty)
    with pytest.raises(Violation):
        explore(p2p_world)


def test_p2p_forgetting_the_acknowledgement_is_found_as_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful = mutant(Ring.receive, "yield from self._remote.store(self._map.acknowledged, tail)", "pass")
    monkeypatch.setattr(Ring, "receive", forgetful)
    with pytest.raises(Violation, match="no schedule reaches the end"):
        explore(p2p_world)


@pytest.mark.parametrize("world", [p2p_world, vote_world, dispatch_world])
def test_publishing_word_first_is_found(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    last = "    yield from memory.store(offset, word)\n"
    source_first = "    yield from memory.store(offset + 8, first)\n"
    word_first = mutant(field.publish, source_first, last + source_first)
    monkeypatch.setattr(alltoall, "publish", word_first)
    monkeypatch.setattr(channel, "publish", word_first)
    with pytest.raises(Violation):
        explore(world)


@pytest.mark.parametrize(
    ("world", "block"), [(dispatch_world, "tokens"), (dispatch_world, "field"), (combine_world, "returned")]
)
def test_a_single_buffer_is_found(world: Any, block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupMap, block, mutant(getattr(GroupMap, block), "(event & 1)", "0"))
    with pytest.raises(Violation):
        explore(world)


def test_not_waiting_for_every_rank_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 alone waits for rank 0: rank 0 may run ahead and overwrite what rank 1 still reads."""
    hasty = mutant(
        AllToAll._exchange,
        "fields.append((yield from await_field(own, offset, event, self._lost)))",
        "fields.append((yield from await_field(own, offset, event, self._lost)) if source == 0 else (0, 0))",
    )
    monkeypatch.setattr(AllToAll, "_exchange", hasty)
    with pytest.raises(Violation):
        explore(vote_world)
