"""Room, gangs and foreign tenants."""

from xdeepserve_operator.api import names
from xdeepserve_operator.controllers.ports import Key
from xdeepserve_operator.controllers.wiring import interested

from . import manifests
from .driver import NAMESPACE, World


async def test_a_deployment_that_cannot_fit_holds_no_dies_and_goes_ahead_when_room_appears() -> None:
    world = World(prefill_servers=1, decode_servers=1)
    world.api.add("SuperPod", manifests.superpod())
    roles = [manifests.role("prefill", "Prefill"), manifests.role("decode", "Decode", dp=2, tp=16)]
    world.api.add("ModelDeployment", manifests.deployment(roles=roles))
    await world.settle()
    ready, reason, message = world.ready("ModelDeployment", "chat")
    assert (ready, reason) == (False, "InsufficientDies")
    assert "needs 2 x 16 dies of 910C in SuperPod pod-a, 16 free, largest block 16" in message
    assert world.names("DPGroup") == []
    assert world.engine_pods("chat-prefill") == [], "the gang's other member holds nothing either"
    assert world.names("Pod") == ["chat-frontend-0"]
    writes = len(world.api.writes)
    await world.run(20)
    assert len(world.api.writes) == writes
    world.hardware.add_server("c9", "910C")
    await world.settle()
    assert world.ready("ModelDeployment", "chat")[0]


def rent(world: World, node: str, dies: int) -> manifests.Object:
    """Another tenant's pod takes dies of a server."""
    container = {"name": "train", "resources": {"requests": {names.RESOURCE_DIE: str(dies)}}}
    foreign = {
        "metadata": {"name": f"train-{node}", "namespace": "other"},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Running"},
    }
    return world.api.add("Pod", foreign)


async def test_dies_of_other_tenants_count_as_used() -> None:
    world = World(decode_servers=1)
    world.api.add("SuperPod", manifests.superpod())
    tenant = rent(world, "c0", 15)
    world.api.add("TaskExecutor", manifests.executor("two", dp=2))
    await world.run(3)
    assert world.ready("TaskExecutor", "two")[1] == "InsufficientDies"
    world.api.remove(tenant)
    await world.settle()
    assert world.ready("TaskExecutor", "two")[0]


async def test_a_replica_that_a_crash_left_half_placed_gives_back_what_it_cannot_complete() -> None:
    calm = World(decode_servers=1)
    calm.api.add("SuperPod", manifests.superpod())
    calm.api.add("TaskExecutor", manifests.executor("four", dp=4))
    world = World.after_death((await calm.settle_remembering())[4])
    assert 0 < len(world.names("DPGroup")) < 4
    tenant = rent(world, "c0", 13)
    await world.settle()
    assert world.names("DPGroup") == []
    assert world.ready("TaskExecutor", "four")[1] == "InsufficientDies"
    world.api.remove(tenant)
    await world.settle()
    assert world.ready("TaskExecutor", "four")[0]


async def test_two_gangs_that_fit_only_alone_never_hold_parts_of_each_other() -> None:
    world = World(decode_servers=2)
    world.api.add("SuperPod", manifests.superpod())
    for name in ("first", "second"):
        roles = [manifests.role("prefill", "Prefill"), manifests.role("decode", "Decode", dp=20)]
        world.api.add("ModelDeployment", manifests.deployment(name, roles))
    await world.settle()
    ready = {name: world.ready("ModelDeployment", name)[0] for name in ("first", "second")}
    assert sorted(ready.values()) == [False, True]
    loser = next(name for name, is_ready in ready.items() if not is_ready)
    winner = next(name for name, is_ready in ready.items() if is_ready)
    assert not [name for name in world.names("DPGroup") if name.startswith(loser)]
    world.api.remove(world.get("ModelDeployment", winner))
    await world.settle()
    assert world.ready("ModelDeployment", loser)[0]


async def test_decode_never_goes_where_a_label_lies() -> None:
    world = World(decode_servers=0)
    world.api.add("SuperPod", manifests.superpod())
    world.hardware.add_server("liar", "910B", **{names.NODE_LABEL_CHIP: "910C"})
    world.api.add("TaskExecutor", manifests.executor("decode"))
    await world.settle()
    assert world.ready("TaskExecutor", "decode")[1] == "InsufficientDies"
    listed = {one["name"]: one for one in world.get("SuperPod", "pod-a")["status"]["nodes"]}
    assert "module-910b-8" in listed["liar"]["mismatch"]


async def test_a_cordoned_server_gets_nothing_new() -> None:
    world = World(decode_servers=2)
    world.api.add("SuperPod", manifests.superpod())
    world.api.edit(world.get("Node", "c0"), lambda obj: obj.update(spec={"unschedulable": True}))
    world.api.add("TaskExecutor", manifests.executor("decode", dp=4))
    await world.settle()
    assert {world.place_of(pod)[0] for pod in world.engine_pods("decode")} == {"c1"}


async def test_a_pod_the_scheduler_refuses_moves_after_a_while() -> None:
    world = World(decode_servers=2)
    world.api.add("SuperPod", manifests.superpod())
    world.api.add("TaskExecutor", manifests.executor("decode"))
    await world.tick()
    group = world.get("DPGroup", "decode-0-dp0")
    node = group["spec"]["node"]
    world.api.edit(world.get("Node", node), lambda obj: obj.update(spec={"unschedulable": True}))
    await world.run(40)
    await world.settle()
    assert world.ready("TaskExecutor", "decode")[0]
    assert world.get("DPGroup", "decode-0-dp0")["spec"]["node"] != node
    assert [pod["metadata"]["name"] for pod in world.engine_pods("decode")] == ["decode-0-dp0-1"]
    assert world.api.list("Pod", NAMESPACE, {names.LABEL_COMPONENT: "shell"}) != []


async def test_a_group_that_outlives_its_pod_frees_its_dies_when_it_goes(chat: World) -> None:
    group = chat.get("DPGroup", "chat-prefill-0-dp0")
    superpod = Key("SuperPod", None, "pod-a")
    assert superpod not in interested(chat.api, "DPGroup", group), "a status of a group changes no count"
    chat.api.remove(group)
    assert superpod in interested(chat.api, "DPGroup", group)
