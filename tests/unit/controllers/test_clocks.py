"""The operator's clock is set, forward or back, while it works: nothing crashes, nothing waits for ever."""

from datetime import timedelta

import pytest

from . import manifests
from .driver import World

JUMPS = (timedelta(hours=2), timedelta(hours=-2), timedelta(days=3650), timedelta(days=-3650))


def use(world: World, uri: str) -> None:
    deployment = world.get("ModelDeployment", "chat")
    world.api.edit(deployment, lambda obj: obj["spec"]["model"].update(uri=uri))


@pytest.mark.parametrize("by", JUMPS, ids=str)
async def test_a_start_goes_on(by: timedelta) -> None:
    world = World()
    world.api.add("SuperPod", manifests.superpod())
    world.api.add("ModelDeployment", manifests.deployment())
    await world.run(0.5)
    world.clock.jump(by)
    await world.settle()
    assert world.ready("ModelDeployment", "chat")[:2] == (True, "Ready")


@pytest.mark.parametrize("by", JUMPS, ids=str)
async def test_a_rollout_and_a_recovery_go_on(chat: World, by: timedelta) -> None:
    use(chat, "file:///models/next")
    await chat.run(1)
    chat.clock.jump(by)
    await chat.settle()
    assert chat.ready("ModelDeployment", "chat")[0]
    node, dies = chat.place_of(chat.engine_pods("chat-decode")[0])
    chat.hardware.kill_die(node, dies[0])
    await chat.run(0.3)
    chat.clock.jump(-by)
    await chat.settle()
    assert chat.ready("ModelDeployment", "chat")[0]


@pytest.mark.parametrize("by", JUMPS, ids=str)
async def test_what_is_well_is_left_alone(chat: World, by: timedelta) -> None:
    pods = [pod["metadata"]["uid"] for pod in chat.engine_pods("chat-decode")]
    written = len(chat.api.writes)
    chat.clock.jump(by)
    await chat.settle()
    assert [pod["metadata"]["uid"] for pod in chat.engine_pods("chat-decode")] == pods
    assert len(chat.api.writes) == written


async def test_an_instance_that_leaves_is_not_kept_by_a_clock_that_was_set_back(chat: World) -> None:
    chat.api.edit(chat.get("TaskExecutor", "chat-decode"), lambda obj: obj["spec"].update(replicas=2))
    await chat.settle()
    chat.api.edit(chat.get("TaskExecutor", "chat-decode"), lambda obj: obj["spec"].update(replicas=1))
    await chat.run(0.3)
    chat.clock.jump(timedelta(hours=-2))
    await chat.run(5)
    assert not [name for name in chat.names("DPGroup") if name.startswith("chat-decode-1")]
