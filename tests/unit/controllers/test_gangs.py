"""Gangs on trial, priorities, and who gives dies to whom."""

from typing import Any

from xdeepserve_operator.api import names
from xdeepserve_operator.planner.conditions import find_condition

from . import manifests
from .driver import NAMESPACE, World


def placed(world: World, executor: str) -> tuple[str, str]:
    condition: Any = find_condition(world.get("TaskExecutor", executor), "Placed")
    return condition["reason"], condition["message"]


def deployment(name: str, dp: int, *, priority: int = 0, **spec: Any) -> manifests.Object:
    """A deployment whose decode needs ``dp`` dies."""
    roles = [manifests.role("prefill", "Prefill"), manifests.role("decode", "Decode", dp=dp)]
    body = manifests.deployment(name, roles)
    body["spec"] |= {"priority": priority, **spec}
    return body


def blocked(world: World, *nodes: str) -> None:
    """The scheduler refuses these servers for a reason that no plan knows of."""
    world.hardware.refusing = set(nodes)


async def test_a_gang_that_stays_partly_scheduled_gives_everything_back_and_tries_again_later() -> None:
    world = World(decode_servers=1)
    blocked(world, "c0")
    world.api.add("SuperPod", manifests.superpod())
    world.api.add("ModelDeployment", deployment("chat", 2, gangTimeoutSeconds=60))
    await world.run(59)
    assert world.names("DPGroup") != []
    await world.run(3)
    assert world.names("DPGroup") == [], "also those of prefill, whose pods run"
    assert world.engine_pods("chat-prefill") == []
    assert world.ready("ModelDeployment", "chat")[1] == "InsufficientDies"
    assert placed(world, "chat-decode")[0] == placed(world, "chat-prefill")[0] == "GaveBack"
    assert "has no server after 60 s" in placed(world, "chat-decode")[1]
    writes = len(world.api.writes)
    await world.run(50)
    assert len(world.api.writes) == writes, "it rests"
    blocked(world)
    await world.run(30)
    await world.settle()
    assert world.ready("ModelDeployment", "chat")[0]


async def test_while_a_gang_rests_another_gets_its_room() -> None:
    world = World(decode_servers=1)
    blocked(world, "c0")
    world.api.add("SuperPod", manifests.superpod())
    world.api.add("ModelDeployment", deployment("first", 16, gangTimeoutSeconds=60))
    await world.run(62)
    blocked(world)
    world.api.add("ModelDeployment", deployment("second", 16))
    await world.settle()
    assert world.ready("ModelDeployment", "second")[0]


async def test_the_more_important_takes_the_dies_of_the_less_important_which_finishes_its_requests() -> None:
    world = World(decode_servers=1)
    world.api.add("SuperPod", manifests.superpod())
    world.api.add("ModelDeployment", deployment("low", 12))
    await world.settle()
    busy = next(one for one in world.hardware.processes.values() if one.name == "low-decode-0-dp3-0")
    busy.running = 1
    world.api.add("ModelDeployment", deployment("high", 12, priority=10))
    await world.run(5)
    assert busy.uid in world.hardware.processes
    assert "instances that leave make room" in world.ready("TaskExecutor", "high-decode")[2]
    busy.running = 0
    await world.settle()
    assert world.ready("ModelDeployment", "high")[0]
    assert world.ready("ModelDeployment", "low")[:2] == (False, "InsufficientDies")
    told = [message for about, reason, message in world.api.events if (about, reason) == ("low-decode", "Preempted")]
    assert len(told) == 1
    assert told[0].startswith("replica 0 of priority 0 gives its dies to default/high-")
    assert not world.api.list("DPGroup", NAMESPACE, {names.LABEL_DEPLOYMENT: "low"}), "prefill alone serves nobody"
    world.api.remove(world.get("ModelDeployment", "high"))
    await world.settle()
    assert world.ready("ModelDeployment", "low")[0], "and comes back when there is room again"


async def test_an_equal_priority_waits_and_nobody_is_hurt() -> None:
    world = World(decode_servers=1)
    world.api.add("SuperPod", manifests.superpod())
    world.api.add("ModelDeployment", deployment("first", 12, priority=5))
    await world.settle()
    world.api.add("ModelDeployment", deployment("second", 12, priority=5))
    await world.settle()
    assert world.ready("ModelDeployment", "first")[0]
    assert world.ready("ModelDeployment", "second")[1] == "InsufficientDies"


async def test_a_recovery_of_the_more_important_takes_dies_too() -> None:
    world = World(decode_servers=1)
    world.api.add("SuperPod", manifests.superpod())
    world.api.add("ModelDeployment", deployment("high", 12, priority=10))
    world.api.add("ModelDeployment", deployment("low", 4))
    await world.settle()
    node, dies = world.place_of(world.engine_pods("high-decode")[0])
    world.hardware.kill_die(node, dies[0])
    await world.settle()
    assert world.ready("ModelDeployment", "high")[0]
    assert not world.ready("ModelDeployment", "low")[0]


async def test_only_as_many_instances_go_as_are_needed() -> None:
    world = World(decode_servers=1)
    world.api.add("SuperPod", manifests.superpod())
    world.api.add("TaskExecutor", manifests.executor("low", dp=4, replicas=4))
    await world.settle()
    urgent = manifests.executor("high", dp=8)
    urgent["spec"]["priority"] = 1
    world.api.add("TaskExecutor", urgent)
    await world.settle()
    assert world.ready("TaskExecutor", "high")[0]
    assert world.get("TaskExecutor", "low")["status"]["readyReplicas"] == 2
    assert world.ready("TaskExecutor", "low")[1] == "InsufficientDies"


async def test_surge_takes_nobodys_dies() -> None:
    world = World(decode_servers=1)
    world.api.add("SuperPod", manifests.superpod())
    important = manifests.executor("high", dp=8)
    important["spec"] |= {"priority": 9, "update": {"maxUnavailable": 0, "maxSurge": 1}}
    world.api.add("TaskExecutor", important)
    world.api.add("TaskExecutor", manifests.executor("low", dp=8))
    await world.settle()
    world.api.edit(world.get("TaskExecutor", "high"), lambda obj: obj["spec"].update(tuning={"kvBlocks": 64}))
    await world.run(20)
    assert world.ready("TaskExecutor", "low")[0]
    assert world.get("TaskExecutor", "high")["status"]["readyReplicas"] == 1
