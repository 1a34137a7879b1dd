"""ExpertPlacement: from load to plan to map, step by step, and back where a step fails."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .driver import NAMESPACE
from .expert_world import LAYERS, PLAIN, ExpertWorld


def written(world: ExpertWorld) -> dict[str, Any]:
    stored = world.api.get("ConfigMap", NAMESPACE, "chat-0-map")
    assert stored is not None
    layers: dict[str, Any] = json.loads(stored["data"]["map.json"])["layers"]
    return layers


async def test_an_uneven_load_is_balanced_and_what_came_of_it_is_told() -> None:
    world = ExpertWorld(limits={"layersPerStep": 2, "minImbalancePercent": 120})
    await world.look()
    assert world.condition("Balanced") == ("False", "NoData")
    world.instance.count()
    status = await world.look()
    assert status.instances[0].imbalance.after > 300
    assert world.condition("SwapInProgress") == ("True", "Planned")
    assert len(world.instance.orders[0].layers) == 2
    status = await world.settle()
    assert [len(order.layers) for order in world.instance.orders] == [2, 1]
    assert (status.instances[0].layers_done, status.instances[0].layers_total) == (3, 3)
    assert written(world) == {str(layer): [list(rank) for rank in world.instance.slots[layer]] for layer in LAYERS}
    world.instance.count()
    status = await world.look()
    assert status.instances[0].imbalance.after < 125
    assert world.condition("Balanced") == ("True", "Even")
    assert world.condition("SwapInProgress") == ("False", "Idle")
    assert world.condition("Stalled")[0] == "False"
    assert world.condition("ReplicaComplete") == ("True", "AllExperts")
    (event,) = status.history
    assert (event.outcome, event.layers, event.version) == ("Applied", 3, 2)
    assert event.before > 300 > 125 > event.after >= 100
    assert [reason for _, reason, _ in world.api.events if reason in ("Planned", "Applied")] == ["Planned", "Applied"]


async def test_an_idle_pass_writes_nothing() -> None:
    world = ExpertWorld()
    world.instance.count()
    await world.settle()
    world.instance.count()
    await world.look()
    before = len(world.api.writes)
    await world.look(5)
    assert len(world.api.writes) == before


async def test_even_loads_and_small_gains_move_nothing() -> None:
    world = ExpertWorld(limits={"minImbalancePercent": 500})
    world.instance.count()
    await world.look(3)
    assert not world.instance.orders
    assert world.condition("Balanced") == ("True", "Even")


async def test_a_step_that_was_given_up_ends_the_plan_and_the_next_one_waits() -> None:
    world = ExpertWorld(limits={"layersPerStep": 1}, intervalSeconds=10)
    world.instance.count()
    await world.look()
    world.instance.finish()
    await world.look()
    world.instance.fail("rank 2: the disk is full")
    status = await world.look()
    assert world.condition("Stalled") == ("True", "GivenUp")
    assert "the disk is full" in status.instances[0].message
    assert status.history[0].outcome == "GivenUp"
    assert written(world)[str(LAYERS[2])] == [list(rank) for rank in PLAIN]
    world.instance.count()
    await world.look()
    assert len(world.instance.orders) == 2, "it waits an interval"
    world.clock.advance(20)
    world.instance.count()
    await world.settle()
    assert world.instance.orders[2].version > world.instance.orders[1].version
    assert world.condition("Stalled")[0] == "False"


@pytest.mark.parametrize("reason", ["rank 1: layer 9 has no routed experts", ""])
async def test_an_order_that_no_rank_takes_up_is_not_sent_for_ever(reason: str) -> None:
    world = ExpertWorld(limits={"progressDeadlineSeconds": 9})
    world.instance.refusal = reason
    world.instance.count()
    await world.look(8)
    assert len(world.instance.orders) == 1
    assert world.instance.called_off == [1]
    assert world.condition("Stalled") == ("True", "GivenUp")
    assert (reason or "did not take it up in time") in world.status.instances[0].message
    world.instance.refusal = None
    world.clock.advance(100)
    world.instance.count()
    await world.settle()
    assert world.condition("Stalled")[0] == "False"


@pytest.mark.parametrize("after", range(6))
async def test_an_operator_that_restarts_in_any_phase_goes_on(after: int) -> None:
    world = ExpertWorld(limits={"layersPerStep": 1})
    world.instance.count()
    for turn in range(12):
        if turn == after:
            world.start_operator()
        await world.look()
        if turn % 2 and world.instance.order_ is not None:
            world.instance.finish()
    assert [len(order.layers) for order in world.instance.orders] == [1, 1, 1]
    assert world.status.history[0].outcome == "Applied"
    assert len(world.status.history) == 1
    assert world.instance.slots[LAYERS[0]] != PLAIN


async def test_a_change_that_an_epoch_cut_off_begins_anew() -> None:
    world = ExpertWorld()
    world.instance.count()
    await world.look()
    world.instance.new_epoch(plain=True)
    await world.settle()
    assert [order.epoch for order in world.instance.orders] == [1, 2]
    assert world.instance.slots[LAYERS[0]] != PLAIN


async def test_what_is_known_stays_while_nobody_is_heard() -> None:
    world = ExpertWorld(limits={"layersPerStep": 1})
    world.instance.count()
    await world.look()
    world.instance.finish()
    before = await world.look()
    assert before.instances[0].layers_done == 1
    world.instance.silent = True
    world.start_operator()
    assert await world.look(2) == before
    world.executor_status(readyReason="Degraded")
    assert (await world.look()).instances[0].layers_done == 1
    world.executor_status(readyReason="Ready")
    world.instance.silent = False
    await world.settle()
    assert [one.outcome for one in world.status.history] == ["Applied"]


@pytest.mark.parametrize("writes", range(2, 8))
async def test_an_operator_that_is_killed_at_any_write_loses_no_map(writes: int) -> None:
    """Its successor finds what was written before, and all layers end where the plan wanted them."""

    class Killed(Exception):
        pass

    world = ExpertWorld(limits={"layersPerStep": 2})
    left = writes

    def count_down() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed

    world.api.before_write = count_down
    world.instance.count()
    for turn in range(14):
        try:
            await world.look()
        except Killed:
            world.start_operator()
        if turn % 2 and world.instance.order_ is not None:
            world.instance.finish()
    assert left <= 0
    assert written(world) == {str(layer): [list(rank) for rank in world.instance.slots[layer]] for layer in LAYERS}
    assert world.instance.slots[LAYERS[2]] != PLAIN
    assert [one.outcome for one in world.status.history] == ["Applied"]
    assert world.status.instances[0].swap_phase == "Idle"


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_map_is_not_lost_when_an_epoch_begins_with_the_plain_placement(restarted: bool) -> None:
    world = ExpertWorld()
    world.instance.count()
    await world.settle()
    wanted = dict(world.instance.slots)
    world.instance.new_epoch(plain=True)
    if restarted:
        world.start_operator()
    await world.settle()
    assert world.instance.slots == wanted
    assert world.instance.state.version > 0


@pytest.mark.parametrize("reason", ["Updating", "Faulted", "Degraded"])
async def test_nothing_begins_and_what_began_is_called_off_during_rollout_and_recovery(reason: str) -> None:
    world = ExpertWorld()
    world.instance.count()
    await world.look()
    world.executor_status(readyReason=reason)
    await world.look(2)
    assert world.instance.called_off == [world.instance.orders[0].version]
    world.instance.count()
    await world.look(3)
    assert len(world.instance.orders) == 1
    assert world.condition("Ready") == ("False", "Frozen")
    assert world.condition("Stalled")[0] == "False"
    world.executor_status(readyReason="Ready")
    await world.settle()
    assert world.instance.slots[LAYERS[0]] != PLAIN


async def test_a_pause_holds_and_ends() -> None:
    world = ExpertWorld(paused=True)
    world.instance.count()
    await world.look(3)
    assert not world.instance.orders
    assert world.condition("Ready") == ("False", "Paused")
    world.edit(paused=False)
    await world.settle()
    assert world.instance.orders


async def test_advice_is_given_once_and_followed_on_request() -> None:
    world = ExpertWorld(mode="Advisory")
    world.instance.count()
    await world.look(2)
    world.instance.count()
    status = await world.look(2)
    assert not world.instance.orders
    assert [one.outcome for one in status.history] == ["Advised"]
    assert status.history[0].predicted < 125
    annotation = {"serving.xdeepserve.io/apply-experts": "now"}
    world.api.edit(world.placement, lambda obj: obj["metadata"].update(annotations=annotation))
    world.instance.count()
    status = await world.settle()
    assert status.apply_request == "now"
    assert [one.outcome for one in status.history] == ["Applied", "Advised"]


async def test_a_static_map_is_kept_and_a_wrong_one_is_told() -> None:
    world = ExpertWorld(mode="Static", mapRef={"name": "mine"})
    await world.look()
    assert world.condition("Balanced") == ("False", "BadMap")
    turned = [PLAIN[1], PLAIN[0], *PLAIN[2:]]
    document = {"experts": 16, "layers": {str(layer): turned for layer in LAYERS}}
    body = {"metadata": {"name": "mine", "namespace": NAMESPACE}, "data": {"map.json": json.dumps(document)}}
    mine = world.api.add("ConfigMap", body)
    await world.settle()
    assert world.instance.slots == dict.fromkeys(LAYERS, tuple(turned))
    world.instance.new_epoch(plain=True)
    await world.settle()
    assert world.instance.slots == dict.fromkeys(LAYERS, tuple(turned))
    world.api.edit(mine, lambda obj: obj["data"].update({"map.json": '{"experts": 16, "layers": {"1": [[0]]}}'}))
    await world.look()
    assert world.condition("Balanced") == ("False", "BadMap")


async def test_ranks_are_evacuated_however_even_the_load_is() -> None:
    world = ExpertWorld(evacuate=[3], limits={"minImbalancePercent": 9999})
    world.instance.count()
    await world.settle()
    assert all(set(slots[3]) == {-1} for slots in world.instance.slots.values())
    assert {expert for rank in world.instance.slots[1] for expert in rank} >= set(range(16))
    assert world.condition("ReplicaComplete")[0] == "True"


async def test_where_chance_outweighs_the_placement_a_warning_says_so() -> None:
    world = ExpertWorld(limits={"minImbalancePercent": 200})
    world.instance.load = world.instance.load * 0 + 1
    world.instance.load[0] = 3
    world.instance.count()
    await world.look()
    world.edit(limits={"minImbalancePercent": 100})
    world.instance.count(tokens=20)
    await world.look()
    (text,) = [message for _, reason, message in world.api.events if reason == "DoesNotPay"]
    assert "rows a rank, layer and iteration" in text


async def test_who_cannot_be_placed_is_told_why() -> None:
    world = ExpertWorld(phase="Prefill")
    await world.look()
    assert world.condition("Ready") == ("False", "OtherPhase")
    world = ExpertWorld(evacuate=[0, 1, 2, 3])
    world.instance.count()
    status = await world.look(3)
    assert world.condition("Balanced") == ("False", "Unplannable")
    assert "16 experts do not fit into 0 open slots" in status.instances[0].message
    world.edit(evacuate=[])
    await world.settle()
    assert world.condition("Balanced")[1] != "Unplannable"
    second = {"metadata": {"name": "z", "namespace": NAMESPACE}, "spec": {"targetRef": {"name": "chat-decode"}}}
    world.api.add("ExpertPlacement", second)
    await world.reconciler.reconcile(NAMESPACE, "z")
    other = world.api.get("ExpertPlacement", NAMESPACE, "z")
    assert other is not None
    assert other["status"]["conditions"][0]["reason"] == "Conflict"


async def test_what_was_counted_outlives_the_te_shell() -> None:
    world = ExpertWorld(limits={"minImbalancePercent": 9999})
    world.instance.count()
    await world.look()
    world.instance.incarnation, world.instance.slices = "shell-2", []
    await world.look()
    assert world.instance.watched is not None, "the new shell is told to count"
    world.edit(limits={"minImbalancePercent": 115})
    await world.settle()
    assert world.instance.slots[LAYERS[0]] != PLAIN
    world.instance.count()
    status = await world.look()
    assert status.instances[0].imbalance.after < 125


async def test_plans_know_the_servers_of_ranks_and_the_groups_of_the_gate() -> None:
    world = ExpertWorld(policy={"expertGroups": "SameServer"})
    world.place_ranks()
    world.instance.groups = 8
    world.instance.count()
    await world.settle()
    assert world.instance.slots[LAYERS[0]] != PLAIN
    for slots in world.instance.slots.values():
        homes = [{expert // 2 for expert in rank if expert >= 0} for rank in slots]
        assert [len(groups) for groups in homes] == [2] * 4
        assert len(set().union(*homes)) == 8


async def test_a_rank_that_is_said_to_be_slow_gets_less_and_is_not_called_uneven_for_it() -> None:
    world = ExpertWorld(rankSpeeds=[{"rank": 0, "percent": 50}], redundantSlots=3)
    world.place_ranks()
    world.instance.count()
    await world.settle()
    world.instance.count()
    status = await world.look()
    slow, *others = (sum(rank) for rank in world.instance.slices[-1].served)
    assert slow < 0.7 * min(others)
    assert status.instances[0].imbalance.after < 115
