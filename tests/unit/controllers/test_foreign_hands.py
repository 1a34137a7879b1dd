"""Others edit and delete what the operator made, or hand it nonsense."""

from typing import Any

import pytest

from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.experts import ExpertPlacementSpec

from . import manifests
from .driver import World
from .fakes import Object


async def test_edits_of_children_are_undone(chat: World) -> None:
    chat.api.edit(chat.get("TaskExecutor", "chat-decode"), lambda obj: obj["spec"]["model"].update(uri="file:///x"))
    chat.api.edit(chat.get("Deployment", "chat-frontend"), lambda obj: obj["spec"].update(replicas=5))
    chat.api.edit(chat.get("Service", "chat-frontend"), lambda obj: obj["spec"].update(selector={}))
    await chat.settle()
    assert chat.get("TaskExecutor", "chat-decode")["spec"]["model"]["uri"] == "file:///models/tiny"
    assert chat.get("Deployment", "chat-frontend")["spec"]["replicas"] == 1
    assert chat.get("Service", "chat-frontend")["spec"]["selector"] != {}
    assert chat.ready("ModelDeployment", "chat")[0]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("TaskExecutor", "chat-decode"),
        ("DPGroup", "chat-decode-0-dp1"),
        ("Pod", "chat-decode-0-dp0-0"),
        ("Pod", "chat-decode-0-shell"),
        ("Pod", "chat-frontend-0"),
        ("Deployment", "chat-frontend"),
        ("Service", "chat-frontend"),
    ],
)
async def test_deleted_children_come_back(chat: World, kind: str, name: str) -> None:
    uid = chat.get(kind, name)["metadata"]["uid"]
    chat.api.end(kind, chat.get(kind, name))
    await chat.settle()
    assert uid not in {one["metadata"]["uid"] for one in chat.api.list(kind)}
    assert kind == "Pod" or chat.get(kind, name)
    assert chat.ready("ModelDeployment", "chat")[0]
    assert len(chat.names("DPGroup")) == 3


async def test_a_deployment_that_goes_takes_everything_along(chat: World) -> None:
    chat.api.remove(chat.get("ModelDeployment", "chat"))
    await chat.settle()
    assert [chat.names(kind) for kind in ("TaskExecutor", "DPGroup", "Pod", "Deployment", "Service")] == [[]] * 5


async def test_objects_that_vanish_while_a_pass_runs_do_no_harm(chat: World) -> None:
    """The deployment goes at one of the writes of a recovery; nothing is left behind in the end."""
    for seconds in (0.1, 0.2, 0.3, 0.5, 0.8):
        world = World()
        world.api.add("SuperPod", manifests.superpod())
        world.api.add("ModelDeployment", manifests.deployment())
        await world.run(seconds)
        world.api.remove(world.get("ModelDeployment", "chat"))
        await world.settle()
        assert world.names("TaskExecutor") == world.names("Pod") == world.names("DPGroup") == []


async def test_another_owners_executor_is_not_taken_over() -> None:
    world = World()
    world.api.add("SuperPod", manifests.superpod())
    world.api.add("TaskExecutor", manifests.executor("chat-decode", dp=3))
    world.api.add("ModelDeployment", manifests.deployment())
    await world.settle()
    ready, reason, message = world.ready("ModelDeployment", "chat")
    assert (ready, reason) == (False, "NameTaken")
    assert "chat-decode" in message
    assert world.get("TaskExecutor", "chat-decode")["spec"]["parallelism"]["dp"] == 3

    world.api.remove(world.get("TaskExecutor", "chat-decode"))
    await world.run(6)
    await world.settle()
    assert world.ready("ModelDeployment", "chat")[0], "nobody has to tell that the name is free"


async def test_a_group_that_lost_its_labels_is_found_and_mended(chat: World) -> None:
    chat.api.edit(chat.get("DPGroup", "chat-decode-0-dp1"), lambda obj: obj["metadata"].update(labels={}))
    await chat.settle()
    assert chat.ready("ModelDeployment", "chat")[0]
    assert len(chat.names("DPGroup", **{names.LABEL_EXECUTOR: "chat-decode"})) == 2


async def test_a_frontend_that_refuses_its_routes_gets_a_newer_epoch(chat: World) -> None:
    frontend = next(one for one in chat.hardware.processes.values() if one.routes)
    assert frontend.routes is not None
    old = frontend.routes
    frontend.routes = old.model_copy(update={"targets": ()})
    chat.start_operator()
    await chat.settle()
    assert frontend.routes.epoch == old.epoch + 1
    assert frontend.routes.targets == old.targets
    assert chat.get("ModelDeployment", "chat")["status"]["routesEpoch"] == old.epoch + 1


async def test_new_frontends_get_the_routes_before_ready_counts_them(chat: World) -> None:
    chat.api.edit(chat.get("ModelDeployment", "chat"), lambda obj: obj["spec"].update(frontend={"replicas": 3}))
    await chat.tick()
    assert not chat.ready("ModelDeployment", "chat")[0]
    await chat.settle()
    assert chat.ready("ModelDeployment", "chat")[0]
    assert sum(bool(process.routes) for process in chat.hardware.processes.values()) == 3


def balance(world: World, **wish: Any) -> None:
    """Says how the decode role's experts are balanced; nothing of it says that they are not."""

    def change(obj: Object) -> None:
        obj["spec"]["roles"][1] = {**obj["spec"]["roles"][1], "expertPlacement": wish or None}
        if not wish:
            del obj["spec"]["roles"][1]["expertPlacement"]

    world.api.edit(world.get("ModelDeployment", "chat"), change)


async def test_a_role_says_how_its_experts_are_balanced(chat: World) -> None:
    balance(chat, policy={"maxMovesPerLayer": 4}, intervalSeconds=10)
    await chat.settle()
    placement = chat.get("ExpertPlacement", "chat-decode")
    spec = ExpertPlacementSpec.model_validate(placement["spec"])
    assert (spec.target_ref.name, spec.phase, spec.interval_seconds) == ("chat-decode", "Decode", 10)
    assert spec.policy.max_moves_per_layer == 4

    def pause(obj: Object) -> None:
        obj["spec"].update(paused=True, evacuate=[1], redundantSlots=7)

    chat.api.edit(placement, pause)
    balance(chat, intervalSeconds=20)
    await chat.run(3)
    spec = ExpertPlacementSpec.model_validate(chat.get("ExpertPlacement", "chat-decode")["spec"])
    assert (spec.paused, spec.evacuate) == (True, [1]), "that is for whoever runs the cluster to say"
    assert (spec.redundant_slots, spec.interval_seconds) == (1, 20)
    assert spec.policy.max_moves_per_layer is None
    assert chat.ready("ModelDeployment", "chat")[0]
    balance(chat)
    await chat.settle()
    assert chat.names("ExpertPlacement") == []


async def test_another_owners_placement_stays_and_keeps_nothing_from_serving(chat: World) -> None:
    spec = {"targetRef": {"name": "chat-decode"}, "mode": "Advisory"}
    mine = {"metadata": {"name": "chat-decode", "namespace": "default"}, "spec": spec}
    chat.api.add("ExpertPlacement", mine)
    balance(chat, intervalSeconds=10)
    chat.api.end("Pod", chat.get("Pod", "chat-decode-0-dp0-0"))
    await chat.settle()
    ready, reason, message = chat.ready("ModelDeployment", "chat")
    assert (ready, reason) == (False, "NameTaken")
    assert "ExpertPlacement chat-decode" in message
    assert chat.get("ExpertPlacement", "chat-decode")["spec"]["mode"] == "Advisory"
    assert chat.ready("TaskExecutor", "chat-decode")[0]
    assert all(len(one.routes.targets) == 2 for one in chat.hardware.processes.values() if one.routes)
    chat.api.remove(chat.get("ExpertPlacement", "chat-decode"))
    await chat.run(3)
    assert chat.ready("ModelDeployment", "chat")[0]
    assert chat.get("ExpertPlacement", "chat-decode")["spec"]["mode"] == "Dynamic"
