"""Recovery empties ranks that it cannot replace yet, while nothing else moves, and gives them their share back."""

from __future__ import annotations

import pytest

from .expert_world import LAYERS, PLAIN, ExpertWorld


def told(world: ExpertWorld, reason: str) -> list[str]:
    return [message for _, one, message in world.api.events if one == reason]


@pytest.mark.parametrize("balanced", [False, True])
async def test_recovery_empties_a_rank_that_cannot_be_replaced_and_gives_its_share_back(balanced: bool) -> None:
    world = ExpertWorld(limits={"layersPerStep": 2})
    world.place_ranks()
    if balanced:
        world.instance.count()
    await world.settle()
    world.report_die(3, unhealthy=True)
    status = await world.settle()
    assert not world.holds(3)
    assert all({*range(16)} <= {e for rank in slots for e in rank} for slots in world.instance.slots.values())
    assert not world.instance.called_off
    assert status.instances[0].evacuated == [3]
    assert "rank 3 is to hold no expert: chat-decode-0-dp3-0: Ascend910-0" in status.instances[0].message
    assert world.condition("Ready") == ("False", "Frozen")
    assert world.placement["spec"].get("evacuate") is None, "the spec is the user's"
    world.instance.count()
    orders = len(world.instance.orders)
    await world.settle()
    assert len(world.instance.orders) == orders, "nothing else moves"
    world.report_die(3, unhealthy=False)
    status = await world.settle()
    assert world.holds(3)
    assert status.instances[0].evacuated == []
    assert len(told(world, "Evacuation")) == 2


async def test_what_was_on_its_way_gives_way_to_an_evacuation() -> None:
    world = ExpertWorld(limits={"layersPerStep": 1})
    world.place_ranks()
    world.instance.count()
    await world.look()
    world.report_die(1, unhealthy=True)
    await world.look()
    assert world.instance.called_off == [1]
    await world.settle()
    assert not world.holds(1)
    assert world.condition("Stalled")[0] == "False"


@pytest.mark.parametrize("after", range(5))
async def test_an_operator_that_restarts_goes_on_evacuating_and_says_so_once(after: int) -> None:
    world = ExpertWorld(limits={"layersPerStep": 1})
    world.place_ranks()
    world.report_die(2, unhealthy=True)
    for turn in range(10):
        if turn == after:
            world.start_operator()
        await world.look()
        if turn % 2 and world.instance.order_ is not None:
            world.instance.finish()
    assert not world.holds(2)
    assert len(told(world, "Evacuation")) == 1
    assert len(world.instance.orders) == len(LAYERS)


async def test_a_rank_that_gets_well_halfway_keeps_what_it_has_left() -> None:
    world = ExpertWorld(limits={"layersPerStep": 1})
    world.place_ranks()
    await world.look()
    world.report_die(0, unhealthy=True)
    await world.look()
    world.instance.finish()
    world.report_die(0, unhealthy=False)
    await world.settle()
    assert len(world.instance.orders) == 1
    assert world.holds(0)


async def test_a_replaced_rank_begins_with_the_plain_placement_and_is_not_emptied_first() -> None:
    world = ExpertWorld()
    world.place_ranks()
    world.report_die(0, unhealthy=True)
    await world.settle()
    orders = len(world.instance.orders)
    world.instance.ready = False
    await world.look()
    world.report_die(0, unhealthy=False)
    await world.look()
    world.instance.new_epoch(plain=True)
    world.instance.ready = True
    await world.settle()
    assert len(world.instance.orders) == orders
    assert world.instance.slots[LAYERS[0]] == PLAIN


async def test_only_a_server_that_says_so_is_evacuated_and_only_where_experts_may_move() -> None:
    world = ExpertWorld()
    world.place_ranks()
    world.report_server(1, "Unknown")
    await world.settle()
    assert not world.instance.orders
    world.report_server(1, "False")
    await world.settle()
    assert not world.holds(1)
    for spec in ({"paused": True}, {"mode": "Advisory"}, {"policy": {"name": "none"}}):
        world = ExpertWorld(**spec)
        world.place_ranks()
        world.report_die(1, unhealthy=True)
        status = await world.look(3)
        assert not world.instance.orders
        assert status.instances[0].evacuated == []
