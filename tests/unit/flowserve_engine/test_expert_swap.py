"""Experts change places while ranks decode: the tokens stay the same, whatever becomes of the change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from flowserve.engine.expert_change import Change
from flowserve.engine.expert_fetch import Source
from flowserve.engine.expert_map import plain_slots
from flowserve.epoch import Refused
from flowserve.model import CheckpointError
from xccl import PeerLost

from .expert_ranks import Ranks, new_rank, running

EXPERTS, LAYERS = 16, (1, 2, 3)
SWAPPED = [[8, 1, 2, 3, 4, 5, 6, 7, 9], [0, 9, 10, 11, 12, 13, 14, 15, 1]]  # 0 and 8 change places, 1 and 9 twice
TOKENS = 12


@pytest_asyncio.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Ranks]:
    async with running(tmp_path, 2) as world:
        yield world


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    async def decode() -> list[int]:
        async with running(tmp_path_factory.mktemp("alone"), 1) as world:
            world.want(TOKENS)
            await world.settled()
            return world.ranks[0].tokens

    return asyncio.run(decode())


def check(world: Ranks, answer: list[int], version: int) -> None:
    for rank in world.ranks:
        assert rank.tokens == answer
        assert rank.plane.state().version == version
        assert {layer: set(each.held) for layer, each in rank.plane.weights.layers.items()} == {
            layer: set(held) for layer, held in rank.swapper.in_force.held(rank.number).items()
        }
        assert rank.swapper.map is rank.swapper.in_force


async def test_experts_move_in_the_middle_of_decoding(pair: Ranks, answer: list[int]) -> None:
    pair.want(TOKENS)
    await pair.ranks[0].moved.wait()
    pair.offer(pair.order(1, dict.fromkeys(LAYERS, SWAPPED)))
    await pair.settled()
    check(pair, answer, version=1)
    assert pair.ranks[0].versions == {0, 1}
    for rank in pair.ranks:
        state = rank.plane.state()
        assert (state.swaps, state.target, state.phase) == (1, 0, "Idle")
        assert state.moved_bytes > 0


async def test_any_placement_after_any_other_leaves_the_tokens_as_they_are(tmp_path: Path, answer: list[int]) -> None:
    """Three ranks, redundant slots that come and go, and a change every few tokens."""
    draw = np.random.default_rng(8)
    async with running(tmp_path, 3) as world:
        for version in range(1, 9):
            world.want(version * TOKENS // 8)
            width = -(-EXPERTS // 3) + int(draw.integers(0, 3))
            layers = draw.choice(LAYERS, int(draw.integers(1, 4)), replace=False).tolist()
            world.offer(world.order(version, {layer: random_slots(draw, 3, width) for layer in layers}))
            await world.settled()
        world.want(TOKENS)
        await world.settled()
        check(world, answer, version=8)


def random_slots(draw: np.random.Generator, ranks: int, width: int) -> list[list[int]]:
    """A sound layer: every expert somewhere, copies where there is room, a slot in eight left empty."""
    slots: list[list[int]] = [[] for _ in range(ranks)]
    for index, expert in enumerate(draw.permutation(EXPERTS).tolist()):
        slots[index % ranks].append(expert)
    for rank in slots:
        while len(rank) < width:
            absent = sorted(set(range(EXPERTS)) - set(rank))
            rank.append(int(draw.choice(absent)) if draw.random() > 0.125 else -1)
    return slots


@pytest.mark.parametrize("emptied", [0, 1])
async def test_a_rank_that_is_emptied_decodes_on_and_gets_its_share_back(
    pair: Ranks, answer: list[int], emptied: int
) -> None:
    pair.want(TOKENS // 2)
    await pair.ranks[0].moved.wait()
    slots = [list(range(EXPERTS)), list(range(EXPERTS))]
    slots[emptied] = [-1] * EXPERTS
    pair.offer(pair.order(1, dict.fromkeys(LAYERS, slots)))
    await pair.settled()
    assert not any(each.held for each in pair.ranks[emptied].plane.weights.layers.values())
    assert pair.ranks[0].plane.table().expert_bytes == pair.ranks[1].plane.table().expert_bytes > 0
    pair.want(TOKENS - 2)
    await pair.settled()
    pair.want(TOKENS)
    pair.offer(pair.order(2, dict.fromkeys(LAYERS, plain_slots(EXPERTS, 2).tolist())))
    await pair.settled()
    check(pair, answer, version=2)


async def test_a_parked_instance_changes_its_placement_too(pair: Ranks, answer: list[int]) -> None:
    pair.offer(pair.order(1, {2: SWAPPED}))
    await pair.settled()
    pair.offer(pair.order(2, {2: plain_slots(EXPERTS, 2).tolist(), 3: SWAPPED}))
    await pair.settled()
    assert pair.ranks[0].versions == set()
    pair.want(TOKENS)
    await pair.settled()
    check(pair, answer, version=2)


async def test_what_no_peer_can_give_comes_from_disk(
    pair: Ranks, answer: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*_: object) -> None:
        raise PeerLost(1, "it is gone")

    monkeypatch.setattr(Source, "fetch", gone)
    pair.want(TOKENS)
    pair.offer(pair.order(1, {1: SWAPPED}))
    await pair.settled()
    check(pair, answer, version=1)


@pytest.mark.parametrize("phase", ["prefetch", "load"])
@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_a_transfer_that_fails_or_hangs_leaves_the_old_placement(
    pair: Ranks, answer: list[int], monkeypatch: pytest.MonkeyPatch, phase: str, how: str
) -> None:
    work, broken = getattr(Change, phase), pair.ranks[1].endpoint

    async def breaks(change: Change) -> object:
        if change._endpoint is not broken:
            return await work(change)
        if how == "hangs":
            await asyncio.Event().wait()
        raise CheckpointError("the disk is gone")

    monkeypatch.setattr(Change, phase, breaks)
    pair.want(TOKENS)
    pair.offer(pair.order(1, {1: SWAPPED}, deadline=0.3 if how == "hangs" else 20.0))
    await pair.settled()
    check(pair, answer, version=0)
    assert {(rank.plane.state().given_up, rank.plane.state().stalls) for rank in pair.ranks} == {(1, 1)}
    assert ("disk is gone" if how == "fails" else "no progress") in "".join(
        rank.plane.state().error for rank in pair.ranks
    )
    with pytest.raises(Refused, match="given up"):
        pair.offer(pair.order(1, {1: SWAPPED}))
    monkeypatch.undo()
    pair.offer(pair.order(2, {1: SWAPPED}))
    await pair.settled()
    check(pair, answer, version=2)


async def test_an_order_that_one_rank_never_gets_is_given_up_by_all(pair: Ranks, answer: list[int]) -> None:
    order = pair.order(1, {1: SWAPPED}, deadline=0.2)
    pair.ranks[0].plane.offer(order)
    pair.want(TOKENS)
    await pair.settled()
    check(pair, answer, version=0)
    with pytest.raises(Refused, match="given up"):
        pair.ranks[1].plane.offer(order)


async def test_a_change_can_be_called_off(pair: Ranks, answer: list[int]) -> None:
    pair.ranks[0].plane.offer(pair.order(1, {1: SWAPPED}))
    pair.ranks[0].plane.give_up(1)
    await pair.settled()
    pair.want(TOKENS)
    await pair.settled()
    check(pair, answer, version=0)


async def test_a_new_epoch_keeps_the_placement_that_all_have(pair: Ranks, answer: list[int]) -> None:
    pair.offer(pair.order(1, {1: SWAPPED}))
    await pair.settled()
    await pair.meet()
    pair.want(TOKENS)
    await pair.settled()
    check(pair, answer, version=1)


async def test_a_rank_that_dies_in_the_middle_blocks_nobody(tmp_path: Path, answer: list[int]) -> None:
    """Its successor knows nothing of the placement: all begin with the plain one, and may change it again."""
    async with running(tmp_path, 2) as world, AsyncExitStack() as stack:
        world.offer(world.order(1, {1: SWAPPED}))
        await world.settled()
        world.offer(world.order(2, {2: SWAPPED, 3: SWAPPED}))
        survivor, dead = world.ranks
        dead.endpoint.close()
        await world.meet([survivor, await new_rank(stack, tmp_path, 1, life=1)])
        world.want(TOKENS)
        await world.settled()
        check(world, answer, version=0)
        world.offer(world.order(3, {2: SWAPPED}))
        await world.settled()
        check(world, answer, version=3)


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ({0: SWAPPED}, "layer 0 has no routed experts"),
        ({1: [[0, 1], [2, 3]]}, "layer 1: layer 0: expert 4 has no copy"),
        ({1: [[*range(8), 0], [*range(8, 16), -1]]}, "holds an expert more than once"),
        ({1: [list(range(16))]}, "slots of 1 ranks, there are 2"),
        ({1: [list(range(16)), [0]]}, "as many slots"),
        ({1: [list(range(16)), [16, *range(15)]]}, "names experts"),
    ],
)
async def test_unsound_orders_are_refused_and_change_nothing(
    pair: Ranks, layers: dict[int, list[list[int]]], reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        pair.offer(pair.order(1, layers))
    assert pair.ranks[0].swapper.swap.target == 0


async def test_an_order_of_another_epoch_or_with_other_content_is_refused(pair: Ranks) -> None:
    order = pair.order(1, {1: SWAPPED})
    with pytest.raises(Refused, match="for epoch 7, this is epoch 1"):
        pair.offer(order.model_copy(update={"epoch": 7}))
    pair.offer(order)
    pair.offer(order)
    with pytest.raises(Refused, match="other content"):
        pair.offer(pair.order(1, {2: SWAPPED}))
    with pytest.raises(Refused, match="under way"):
        pair.offer(pair.order(2, {2: SWAPPED}))
    await pair.settled()


async def test_every_choice_is_counted_where_it_is_made_and_where_it_is_served(pair: Ranks) -> None:
    pair.want(TOKENS)
    pair.offer(pair.order(1, {1: SWAPPED}))
    await pair.settled()
    loads = [rank.plane.load() for rank in pair.ranks]
    positions = 10 + TOKENS - 1
    for load in loads:
        assert load.layers == LAYERS
        assert [sum(layer) for layer in load.chosen] == [positions * 4] * 3
    assert np.sum([load.served for load in loads], axis=0).tolist() == [2 * positions * 4] * 3
    assert loads[0] == pair.ranks[0].plane.load(), "asking changes nothing"
