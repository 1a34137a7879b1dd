"""Warm engines: they become DP groups where one is made or mended, and give way to whoever needs dies."""

from typing import Any

import pytest

from flowserve.wire import Donor, EngineConfig
from xdeepserve_operator.api import names

from . import manifests
from .driver import World


async def start(warm: int = 2, decode_servers: int = 2, **decode: Any) -> World:
    world = World(decode_servers=decode_servers)
    world.api.add("SuperPod", manifests.superpod())
    roles = [manifests.role("prefill", "Prefill"), manifests.role("decode", "Decode", dp=2, **decode) | {"warm": warm}]
    world.api.add("ModelDeployment", manifests.deployment(roles=roles))
    await world.settle()
    return world


def waiting(world: World) -> list[str]:
    return world.names("Pod", **{names.LABEL_COMPONENT: names.COMPONENT_WARM})


def engines(world: World) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in world.engine_pods("chat-decode"))


def scale(world: World, replicas: int) -> None:
    world.api.edit(world.get("TaskExecutor", "chat-decode"), lambda obj: obj["spec"].update(replicas=replicas))


async def test_they_wait_once_the_instance_serves_and_are_counted() -> None:
    world = await start()
    assert waiting(world) == ["chat-decode-warm-0", "chat-decode-warm-1"]
    assert world.get("TaskExecutor", "chat-decode")["status"]["warm"] == 2
    assert world.ready("ModelDeployment", "chat")[0]
    assert engines(world) == ["chat-decode-0-dp0-0", "chat-decode-0-dp1-0"]


async def test_a_new_instance_is_made_of_them_and_they_are_made_anew() -> None:
    world = await start()
    pods = {name: world.get("Pod", name)["metadata"]["uid"] for name in waiting(world)}
    scale(world, 2)
    await world.settle()
    assert world.ready("TaskExecutor", "chat-decode")[:2] == (True, "Ready")
    mine = {name: world.get("Pod", name)["metadata"] for name in pods}
    assert {name: one["uid"] for name, one in mine.items()} == pods, "no pod was started for it"
    assert [mine[name]["labels"][names.LABEL_GROUP] for name in sorted(mine)] == [
        "chat-decode-1-dp0",
        "chat-decode-1-dp1",
    ]
    assert all(one["ownerReferences"][0]["kind"] == "DPGroup" for one in mine.values())
    assert waiting(world) == ["chat-decode-warm-2", "chat-decode-warm-3"]
    scale(world, 1)
    await world.settle()
    assert engines(world) == ["chat-decode-0-dp0-0", "chat-decode-0-dp1-0"], "their pods go with their groups"


async def test_a_group_that_lost_its_die_is_mended_by_one() -> None:
    world = await start(warm=1)
    node, dies = world.place_of(world.get("Pod", "chat-decode-0-dp0-0"))
    world.hardware.kill_die(node, dies[0])
    await world.settle()
    assert world.ready("TaskExecutor", "chat-decode")[0]
    labels = world.get("Pod", "chat-decode-warm-0")["metadata"]["labels"]
    assert (labels[names.LABEL_GROUP], labels[names.LABEL_ATTEMPT]) == ("chat-decode-0-dp0", "1")


async def test_an_engine_that_refuses_is_replaced_by_a_cold_one() -> None:
    world = await start(warm=2)
    world.hardware.frozen = set(waiting(world))
    await world.run(0.2)
    scale(world, 2)
    await world.settle()
    assert world.ready("TaskExecutor", "chat-decode")[0]
    assert engines(world)[2:] == ["chat-decode-1-dp0-0", "chat-decode-1-dp1-0"]


async def test_they_give_way_to_whoever_needs_their_dies_and_come_back() -> None:
    world = await start(warm=4, decode_servers=1)
    assert len(waiting(world)) == 4
    world.api.add("TaskExecutor", manifests.executor("big", dp=13))
    await world.settle()
    assert world.ready("TaskExecutor", "big")[0]
    assert len(waiting(world)) == 1, "one die is left"
    world.api.remove(world.get("TaskExecutor", "big"))
    await world.run(70)
    assert len(waiting(world)) == 4


async def test_no_more_of_them_give_way_than_make_room_the_least_important_first() -> None:
    world = await start(warm=4, decode_servers=1)
    modest = manifests.executor("modest", dp=4)
    modest["spec"] |= {"warm": 4, "priority": -1}
    world.api.add("TaskExecutor", modest)
    await world.settle()
    assert len(waiting(world)) == 8
    world.api.add("TaskExecutor", manifests.executor("needy", dp=5))
    await world.settle()
    assert world.ready("TaskExecutor", "needy")[0]
    left = [name.rpartition("-warm-")[0] for name in waiting(world)]
    assert left == ["chat-decode"] * 4 + ["modest"]


async def test_none_gives_way_to_what_cannot_fit_anyhow() -> None:
    world = await start(warm=4, decode_servers=1)
    world.api.add("TaskExecutor", manifests.executor("huge", dp=15))
    await world.settle()
    assert world.ready("TaskExecutor", "huge")[1] == "InsufficientDies"
    assert len(waiting(world)) == 4


async def test_a_group_that_moves_takes_the_place_of_one_when_there_is_no_other() -> None:
    world = World(decode_servers=1)
    world.api.add("SuperPod", manifests.superpod())
    waits, moves = manifests.executor("waits", dp=1), manifests.executor("moves", dp=1, tp=2)
    waits["spec"] |= {"warm": 13}
    world.api.add("TaskExecutor", moves)
    world.api.add("TaskExecutor", waits)
    await world.settle()
    assert len(waiting(world)) == 13
    node, dies = world.place_of(world.get("Pod", "moves-0-dp0-0"))
    world.hardware.kill_die(node, dies[0])
    await world.settle()
    assert world.ready("TaskExecutor", "moves")[0]
    assert len(waiting(world)) == 12, "one of its two dies is well"


async def test_a_new_revision_has_warm_engines_of_its_own() -> None:
    world = await start(warm=1)
    old = world.get("Pod", waiting(world)[0])["metadata"]["labels"][names.LABEL_REVISION]
    deployment = world.get("ModelDeployment", "chat")
    world.api.edit(deployment, lambda obj: obj["spec"]["model"].update(uri="file:///models/next"))
    await world.settle()
    assert world.ready("ModelDeployment", "chat")[0]
    (name,) = waiting(world)
    assert world.get("Pod", name)["metadata"]["labels"][names.LABEL_REVISION] != old


async def test_whenever_the_operator_dies_while_they_are_assigned_all_is_well_in_the_end() -> None:
    calm = await start()
    scale(calm, 2)
    for moment in await calm.settle_remembering():
        world = World.after_death(moment)
        await world.settle()
        assert world.ready("TaskExecutor", "chat-decode")[0]
        labels = [pod["metadata"]["labels"][names.LABEL_GROUP] for pod in world.engine_pods("chat-decode")]
        assert sorted(labels) == sorted(world.names("DPGroup", **{names.LABEL_EXECUTOR: "chat-decode"}))
        assert len(labels) == 4
        assert len(waiting(world)) == 2


async def test_taken_away_they_go() -> None:
    world = await start()
    deployment = world.get("ModelDeployment", "chat")
    world.api.edit(deployment, lambda obj: obj["spec"]["roles"][1].update(warm=0))
    await world.settle()
    assert waiting(world) == []
    assert world.get("TaskExecutor", "chat-decode")["status"]["warm"] == 0


@pytest.mark.parametrize(("warm", "pod"), [(0, "chat-decode-1-dp0-0"), (2, "chat-decode-warm-0")])
async def test_the_second_instance_has_its_weights_from_the_first(warm: int, pod: str) -> None:
    world = await start(warm=warm)
    deployment = world.get("ModelDeployment", "chat")
    world.api.edit(deployment, lambda obj: obj["spec"]["roles"][1].update(weightsFrom="Peer"))
    await world.settle()
    uid = world.get("Pod", "chat-decode-0-dp0-0")["metadata"]["uid"]
    giver = world.get("Pod", "chat-decode-0-dp0-0")["status"]["podIP"]
    scale(world, 2)
    await world.settle()
    assert world.get("Pod", "chat-decode-0-dp0-0")["metadata"]["uid"] == uid, "how weights came restarts nobody"
    made = world.get("Pod", pod)
    process = world.hardware.processes[made["metadata"]["uid"]]
    told = process.assigned or EngineConfig.model_validate_json(configuration(made))
    assert told.donor == Donor(host=giver)


def configuration(pod: manifests.Object) -> str:
    """What the kubelet gives the container."""
    environment = {one["name"]: one.get("value", "") for one in pod["spec"]["containers"][0]["env"]}
    return str(environment[names.ENV_ENGINE_CONFIG])
