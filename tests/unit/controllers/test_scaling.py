"""Replicas and revisions."""

from xdeepserve_operator.api import names

from . import manifests
from .driver import World


def ask(world: World, **replicas: int) -> None:
    """A user edits replicas of roles in the ModelDeployment."""

    def change(obj: manifests.Object) -> None:
        for role in obj["spec"]["roles"]:
            role["replicas"] = replicas.get(role["name"], role["replicas"])

    world.api.edit(world.get("ModelDeployment", "chat"), change)


def kubectl_scale(world: World, executor: str, replicas: int) -> None:
    world.api.edit(world.get("TaskExecutor", executor), lambda obj: obj["spec"].update(replicas=replicas))


async def test_more_replicas_are_placed_one_by_one_and_routed(chat: World) -> None:
    ask(chat, decode=3)
    await chat.settle()
    assert chat.ready("ModelDeployment", "chat")[0]
    assert chat.get("ModelDeployment", "chat")["status"]["readyRoles"] == "P 1/1 D 3/3"
    assert len(chat.engine_pods("chat-decode")) == 6


async def test_fewer_replicas_go_from_the_highest_and_leave_nothing(chat: World) -> None:
    ask(chat, decode=3)
    await chat.settle()
    ask(chat, decode=1)
    await chat.settle()
    assert [name for name in chat.names("Pod") if "decode" in name] == [
        "chat-decode-0-dp0-0",
        "chat-decode-0-dp1-0",
        "chat-decode-0-shell",
    ]
    assert chat.ready("ModelDeployment", "chat")[0]


async def test_the_users_own_scale_is_never_fought(chat: World) -> None:
    kubectl_scale(chat, "chat-decode", 2)
    await chat.settle()
    chat.start_operator()
    await chat.settle()
    assert chat.get("TaskExecutor", "chat-decode")["spec"]["replicas"] == 2
    assert chat.get("ModelDeployment", "chat")["status"]["readyRoles"] == "P 1/1 D 2/2"
    ask(chat, decode=3)
    await chat.settle()
    assert chat.get("TaskExecutor", "chat-decode")["spec"]["replicas"] == 3, "a change of the role scales once"
    kubectl_scale(chat, "chat-decode", 1)
    await chat.settle()
    assert chat.get("TaskExecutor", "chat-decode")["spec"]["replicas"] == 1


async def test_a_recovery_does_not_reset_replicas(chat: World) -> None:
    kubectl_scale(chat, "chat-decode", 2)
    await chat.settle()
    node, dies = chat.place_of(chat.engine_pods("chat-decode")[0])
    chat.hardware.kill_die(node, dies[0])
    await chat.settle()
    assert chat.get("TaskExecutor", "chat-decode")["spec"]["replicas"] == 2


async def test_zero_replicas_have_a_full_status_and_come_back(chat: World) -> None:
    ask(chat, decode=0)
    await chat.settle()
    executor = chat.get("TaskExecutor", "chat-decode")["status"]
    assert (executor["replicas"], executor["readyReplicas"], executor["instances"]) == (0, 0, [])
    assert executor["observedGeneration"] == chat.get("TaskExecutor", "chat-decode")["metadata"]["generation"]
    assert chat.ready("TaskExecutor", "chat-decode")[:2] == (True, "Ready")
    assert chat.ready("ModelDeployment", "chat")[:2] == (False, "ScaledToZero")
    ask(chat, decode=1)
    await chat.settle()
    assert chat.ready("ModelDeployment", "chat")[0]


async def test_a_replica_without_room_does_not_take_the_others_down(chat: World) -> None:
    ask(chat, decode=40)
    await chat.settle()
    ready, reason, message = chat.ready("TaskExecutor", "chat-decode")
    assert (ready, reason) == (False, "InsufficientDies")
    assert chat.get("TaskExecutor", "chat-decode")["status"]["readyReplicas"] == 16
    assert "needs 1 x 1" not in message
    assert "needs 2 x 1 dies of 910C" in message
    ask(chat, decode=2)
    await chat.settle()
    assert chat.ready("ModelDeployment", "chat")[0], "a replica that never got a place does not block scaling down"


async def test_a_new_revision_replaces_one_serving_replica_at_a_time() -> None:
    world = World()
    world.api.add("SuperPod", manifests.superpod())
    world.api.add("TaskExecutor", manifests.executor("decode", dp=2, replicas=3))
    await world.settle()
    old = world.get("TaskExecutor", "decode")["status"]["currentRevision"]
    world.api.edit(world.get("TaskExecutor", "decode"), lambda obj: obj["spec"].update(tuning={"maxBatchPerGroup": 16}))
    fewest = 3
    for _ in range(200):
        await world.tick()
        status = world.get("TaskExecutor", "decode")["status"]
        fewest = min(fewest, status["readyReplicas"])
        if status["currentRevision"] != old and status["updatedReplicas"] < 3:
            assert not world.ready("TaskExecutor", "decode")[0], "never Ready while old instances serve"
    await world.settle()
    assert world.ready("TaskExecutor", "decode")[0]
    assert fewest == 2
    revisions = {pod["metadata"]["labels"][names.LABEL_REVISION] for pod in world.api.list("Pod")}
    assert revisions == {world.get("TaskExecutor", "decode")["status"]["currentRevision"]}


async def test_instances_that_never_ran_do_not_stall_a_new_revision() -> None:
    world = World()
    world.hardware.broken_model = "file:///models/tiny"
    world.api.add("SuperPod", manifests.superpod())
    world.api.add("TaskExecutor", manifests.executor("decode", dp=2, replicas=2))
    await world.run(10)
    assert world.ready("TaskExecutor", "decode")[1] == "ModelLoadFailed"
    fixed = {"name": "tiny", "uri": "file:///models/fixed"}
    world.api.edit(world.get("TaskExecutor", "decode"), lambda obj: obj["spec"].update(model=fixed))
    await world.settle()
    assert world.ready("TaskExecutor", "decode")[0]


async def test_a_change_of_replicas_gang_or_chip_order_restarts_nothing(chat: World) -> None:
    before = {pod["metadata"]["uid"] for pod in chat.engine_pods("chat-prefill")}

    def reorder(obj: manifests.Object) -> None:
        obj["spec"]["roles"][0]["chips"] = ["910C", "910B"]

    chat.api.edit(chat.get("ModelDeployment", "chat"), reorder)
    await chat.settle()
    assert {pod["metadata"]["uid"] for pod in chat.engine_pods("chat-prefill")} == before


async def test_a_wider_instance_gets_its_new_groups_with_its_new_revision() -> None:
    world = World()
    world.api.add("SuperPod", manifests.superpod())
    world.api.add("TaskExecutor", manifests.executor("decode", dp=2))
    await world.settle()
    wider = {"dp": 4, "tp": 1, "ep": 4}
    world.api.edit(world.get("TaskExecutor", "decode"), lambda obj: obj["spec"].update(parallelism=wider))
    await world.settle()
    assert world.ready("TaskExecutor", "decode")[0]
    assert len(world.engine_pods("decode")) == 4


async def test_a_role_that_is_removed_takes_its_executor_along(chat: World) -> None:
    extra = manifests.role("long", "Prefill")
    chat.api.edit(chat.get("ModelDeployment", "chat"), lambda obj: obj["spec"]["roles"].append(extra))
    await chat.settle()
    assert "chat-long" in chat.names("TaskExecutor")
    assert chat.ready("ModelDeployment", "chat")[0]
    chat.api.edit(chat.get("ModelDeployment", "chat"), lambda obj: obj["spec"]["roles"].pop())
    await chat.settle()
    assert "chat-long" not in chat.names("TaskExecutor")
    assert not [name for name in chat.names("Pod") if "long" in name]
    assert chat.ready("ModelDeployment", "chat")[0]


async def test_a_revision_that_cannot_load_stops_at_one_replica_and_the_rest_serves_on(chat: World) -> None:
    ask(chat, prefill=2, decode=2)
    await chat.settle()
    chat.hardware.broken_model = "file:///models/broken"
    model = {"name": "tiny", "uri": "file:///models/broken"}
    chat.api.edit(chat.get("ModelDeployment", "chat"), lambda obj: obj["spec"].update(model=model))
    await chat.run(30)
    assert chat.ready("ModelDeployment", "chat")[1] == "ModelLoadFailed"
    assert chat.get("ModelDeployment", "chat")["status"]["readyRoles"] == "P 1/2 D 1/2"
    chat.api.edit(
        chat.get("ModelDeployment", "chat"), lambda obj: obj["spec"]["model"].update(uri="file:///models/tiny")
    )
    await chat.settle()
    assert chat.get("ModelDeployment", "chat")["status"]["readyRoles"] == "P 2/2 D 2/2", "the way back is as careful"


async def test_prefill_and_decode_are_paired_by_what_they_share(chat: World) -> None:
    """While one role is already new and the other still old, their routes say that they do not fit."""
    ask(chat, prefill=2, decode=2)
    await chat.settle()
    chat.hardware.puts.clear()
    model = {"name": "tiny", "uri": "file:///models/next"}
    chat.api.edit(chat.get("ModelDeployment", "chat"), lambda obj: obj["spec"].update(model=model))
    await chat.settle()
    seen: dict[str, set[str]] = {}
    for _, message in chat.hardware.puts:
        for target in getattr(message, "targets", ()):
            seen.setdefault(target.revision, set()).add(target.role)
    assert len(seen) == 2, "an old pair and a new one, never a third"
    assert all(roles == {"Prefill", "Decode"} for roles in seen.values())
