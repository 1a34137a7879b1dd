"""Every interleaving of the protocols is right, and the usual bugs would be found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pytest
from xccl_explorer import ExploredMemory, Violation, World, explore, mutant
from xccl_weak_memory import Cores, WeakMemory

from xccl import alltoall, field, ring
from xccl.alltoall import AllToAll
from xccl.layout import HEADER_BYTES, GroupMap, Layout
from xccl.memory import RemoteMemory
from xccl.paths import Path
from xccl.push import Push
from xccl.region import Reference
from xccl.ring import Ring
from xccl.routing import route
from xccl.steps import Steps

TWO_SLOTS = Layout(max_peers=2, max_tokens=1, hidden=4, top_k=1, ring_slots=2, slot_bytes=64)


def nobody_lost() -> None:
    return None


Kind: TypeAlias = Callable[[bytearray, str], ExploredMemory]


def ring_ends(application: ExploredMemory, kind: Kind) -> tuple[list[bytearray], list[Ring]]:
    """Both ends of a ring of two slots; `application` is the sender's application region."""
    buffers = [bytearray(TWO_SLOTS.ring_bytes) for _ in range(2)]
    region = application.buffer
    assert isinstance(region, bytearray)

    def reach(number: int, nbytes: int) -> Steps[RemoteMemory]:
        assert (number, nbytes) == (0, len(region))
        return application
        yield True

    ends = [
        Ring(kind(own, "own"), kind(remote, "remote"), TWO_SLOTS, nobody_lost, reach)
        for own, remote in (buffers, reversed(buffers))
    ]
    return [*buffers, region], ends


def receiving(receiver: Ring, messages: int) -> Steps[list[bytes]]:
    received = []
    for event in range(1, messages + 1):
        into = bytearray(256)
        nbytes = yield from receiver.receive(memoryview(into), event)
        received.append(bytes(into[:nbytes]))
    return received


def ring_world(path: Path, kind: Kind = ExploredMemory) -> World:
    """One message of four slots, then one of one, through a ring of two slots."""
    messages = [bytes(range(200)), bytes([7] * 10)]
    memories, (sender, receiver) = ring_ends(kind(bytearray(8), "unused"), kind)

    def send() -> Steps[None]:
        for event, message in enumerate(messages, 1):
            tail = yield from sender.send(memoryview(message), event, path)
            yield from sender.await_copied(tail)

    def check(results: list[Any]) -> None:
        assert results[1] == messages

    return World(memories, [send(), receiving(receiver, len(messages))], check)


def p2p_world(kind: Kind = ExploredMemory) -> World:
    return ring_world(Path.MTE, kind)


def dma_world(kind: Kind = ExploredMemory) -> World:
    return ring_world(Path.DMA, kind)


def zero_copy_world(kind: Kind = ExploredMemory) -> World:
    """Three messages out of the same place in a region, each written there when the one before was acknowledged."""
    size, at = 2 * HEADER_BYTES, HEADER_BYTES
    region = kind(bytearray(size), "application")
    memories, (sender, receiver) = ring_ends(region, kind)

    def send() -> Steps[None]:
        for event in (1, 2, 3):
            yield from region.write(at, bytes([event] * 16))
            tail = yield from sender.send_reference(Reference(0, size, at, 16), event)
            yield from sender.await_copied(tail)

    def check(results: list[Any]) -> None:
        assert results[1] == [bytes([event] * 16) for event in (1, 2, 3)]

    return World(memories, [send(), receiving(receiver, 3)], check)


def group_of_two() -> tuple[list[bytearray], list[AllToAll]]:
    buffers = [bytearray(TWO_SLOTS.group_bytes) for _ in range(2)]
    memories = [ExploredMemory(buffer, f"rank {rank}") for rank, buffer in enumerate(buffers)]
    ranks = [AllToAll(rank, memories[rank], memories, TWO_SLOTS, nobody_lost) for rank in range(2)]
    return buffers, ranks


def vote_world(rounds: int = 3) -> World:
    """Three votes: the third uses the fields of the first again."""
    buffers, ranks = group_of_two()

    def votes(rank: int) -> Steps[list[tuple[int, ...]]]:
        seen = []
        for round_ in range(rounds):
            seen.append((yield from ranks[rank].vote(10 * round_ + rank)))
        return seen

    def check(results: list[Any]) -> None:
        assert results == [[(0, 1), (10, 11), (20, 21)][:rounds]] * 2

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
            dispatched = yield from ranks[rank].dispatch(x, route(expert, owner, 2), False)
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
        dispatched = yield from ranks[rank].dispatch(x, route(np.zeros((tokens, 1), np.int32), owner, 2), False)
        seen = []
        for round_ in range(3):
            y = dispatched.tokens + np.float32(10 * round_)
            combined = yield from ranks[rank].combine(y, dispatched, np.ones((tokens, 1), np.float32))
            seen.append(combined[:, 3].tolist())
        return seen

    def check(results: list[Any]) -> None:
        assert results == [[[1], [11], [21]], [[], [], []]]

    return World(buffers, [combines(0), combines(1)], check)


def push_world() -> World:
    """Fused dispatches 1 2 and 3, combines 1 2 3, two under way; all tokens go to rank 1, the third uses all blocks
    again."""
    buffers = [bytearray(TWO_SLOTS.group_bytes) for _ in range(2)]
    memories = [ExploredMemory(buffer, f"rank {rank}") for rank, buffer in enumerate(buffers)]
    ranks = [Push(rank, memories, TWO_SLOTS, nobody_lost) for rank in range(2)]
    sent = route(np.zeros((1, 1), np.int32), np.array([1], np.int32), 2)
    weights = np.ones((1, 1), np.float32)

    def rounds(rank: int) -> Steps[list[float]]:
        seen, under_way = [], []
        for step in ("dispatch", "dispatch", "combine", "dispatch", "combine", "combine"):
            if step == "dispatch":
                x = np.full((1, 4), 10 * (len(seen) + len(under_way)) + rank + 1, np.float32)
                under_way.append((yield from ranks[rank].dispatch(x, sent, False)))
            else:
                pushed = under_way.pop(0)
                combined = yield from ranks[rank].combine(pushed.tokens * 2, pushed, weights)
                seen.append(float(combined[0, 3]))
        return seen

    def check(results: list[Any]) -> None:
        assert results == [[2, 22, 42], [4, 24, 44]]

    return World(buffers, [rounds(0), rounds(1)], check)


@pytest.mark.parametrize(
    "world", [push_world, p2p_world, dma_world, zero_copy_world, vote_world, dispatch_world, combine_world]
)
def test_every_interleaving_ends_right(world: Any) -> None:
    assert explore(world) > 100


def test_accesses_made_at_once_hide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search that tries every order of every access comes to the same verdicts, from more states."""

    def two_votes() -> World:
        return vote_world(rounds=2)

    assert explore(two_votes, at_once=False) > 2 * explore(two_votes)
    monkeypatch.setattr(GroupMap, "field", mutant(GroupMap.field, "event & 1", "0"))
    with pytest.raises(Violation):
        explore(two_votes, at_once=False)


def weakly(world: Callable[[Kind], World], **fences: bool) -> Callable[[], World]:
    """`world` over memory that only acquire and release put in order."""

    def make() -> World:
        cores = Cores(**fences)
        made = world(lambda buffer, label: WeakMemory(buffer, label, cores))
        return replace(made, hidden=cores.hidden)

    return make


@pytest.mark.parametrize("world", [p2p_world, dma_world, zero_copy_world])
class TestWeakMemory:
    """Acquire and release are all the order that p2p needs, and it needs both."""

    def test_every_interleaving_ends_right(self, world: Any) -> None:
        assert explore(weakly(world), at_once=False) > 100

    @pytest.mark.parametrize("fence", ["releases", "acquires"])
    def test_a_fence_that_is_removed_is_found(self, world: Any, fence: str) -> None:
        with pytest.raises(Violation):
            explore(weakly(world, **{fence: False}), at_once=False)


@pytest.mark.parametrize("world", [p2p_world, dma_world])
def test_publishing_before_the_data_is_found(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write = "yield from self._remote.write(self._map.slot(first), piece)"
    publish = "yield from publish(self._remote, self._map.field(first), first, event, left << _BYTES_BITS | len(piece))"
    swapped = mutant(Ring.send, f"{write}\n        {publish}", f"{publish}\n        {write}")
    monkeypatch.setattr(Ring, "send", swapped)
    with pytest.raises(Violation):
        explore(world)


def test_publishing_before_the_reference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    write = "yield from self._remote.write(self._map.slot(tail), told)"
    publish = "yield from publish(self._remote, self._map.field(tail), tail, event, _BY_REFERENCE | len(told))"
    swapped = mutant(Ring.send_reference, f"{write}\n    {publish}", f"{publish}\n    {write}")
    monkeypatch.setattr(Ring, "send_reference", swapped)
    with pytest.raises(Violation):
        explore(zero_copy_world)


@pytest.mark.parametrize(
    ("world", "read"),
    [
        (p2p_world, "yield from self._own.read("),
        (dma_world, "yield from self._own.read("),
        (zero_copy_world, "filled = yield from self._read_reference("),
    ],
)
def test_acknowledging_before_the_copy_is_found(world: Any, read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    acknowledge = "yield from self._remote.store(self._map.acknowledged, tail + run - 1)"
    monkeypatch.setattr(Ring, "receive", mutant(Ring.receive, read, f"{acknowledge}; {read}"))
    with pytest.raises(Violation):
        explore(world)


@pytest.mark.parametrize("world", [p2p_world, dma_world])
def test_sending_into_a_full_ring_is_found(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hasty = mutant(Ring._await_free, "tail - self.slots", "tail - self.slots - 1")
    monkeypatch.setattr(Ring, "_await_free", hasty)
    with pytest.raises(Violation):
        explore(world)


@pytest.mark.parametrize("world", [p2p_world, dma_world, zero_copy_world])
def test_forgetting_the_acknowledgement_is_found_as_a_deadlock(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful = mutant(Ring.receive, "yield from self._remote.store(self._map.acknowledged, tail + run - 1)", "pass")
    monkeypatch.setattr(Ring, "receive", forgetful)
    with pytest.raises(Violation, match="no schedule reaches the end"):
        explore(world)


@pytest.mark.parametrize("world", [p2p_world, vote_world, dispatch_world])
def test_publishing_word_first_is_found(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    payload_first, word = "Store(offset + 8, first),", "Store(offset, word),"
    word_first = mutant(field.publish, payload_first, word + payload_first)
    monkeypatch.setattr(alltoall, "publish", word_first)
    monkeypatch.setattr(ring, "publish", word_first)
    with pytest.raises(Violation):
        explore(world)


@pytest.mark.parametrize(
    ("world", "block"), [(dispatch_world, "tokens"), (dispatch_world, "field"), (combine_world, "returned")]
)
def test_a_single_buffer_is_found(world: Any, block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupMap, block, mutant(getattr(GroupMap, block), "event & 1", "0"))
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


def test_flagging_before_the_messages_landed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    written = "yield from together(writes)"
    early = mutant(Push.dispatch, written, f"yield from together(flags); {written}")
    monkeypatch.setattr(Push, "dispatch", early)
    with pytest.raises(Violation):
        explore(push_world)


def test_adding_before_the_results_landed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    never = mutant(Push.combine, "yield from together(adds)", "pass")
    monkeypatch.setattr(Push, "combine", never)
    with pytest.raises(Violation, match="no schedule reaches the end"):
        explore(push_world)
    monkeypatch.undo()
    written = "yield from together(writes)"
    early = mutant(Push.combine, written, f"yield from together(adds); {written}")
    monkeypatch.setattr(Push, "combine", early)
    with pytest.raises(Violation):
        explore(push_world)


def test_flags_that_are_not_set_back_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful = mutant(Push.combine, "yield from self._own.store(flag, 0)", "pass")
    monkeypatch.setattr(Push, "combine", forgetful)
    with pytest.raises(Violation):
        explore(push_world)


@pytest.mark.parametrize("block", ["pushed", "combined", "flags"])
def test_a_single_push_buffer_is_found(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupMap, block, mutant(getattr(GroupMap, block), "event & 1", "0"))
    with pytest.raises(Violation):
        explore(push_world)
