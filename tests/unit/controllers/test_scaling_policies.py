"""ScalingPolicies in a cluster: they follow the load, say why, and never fight anybody."""

from typing import Any

import pytest

from flowserve.wire import Histogram
from xdeepserve_operator.planner.conditions import find_condition

from . import manifests
from .driver import NAMESPACE, World

QUICK = {
    "up": {"windowSeconds": 0, "maxStep": 4, "periodSeconds": 5},
    "down": {"windowSeconds": 30, "maxStep": 4, "periodSeconds": 5},
    "idleSeconds": 40,
}


def policy(name: str = "chat", *, low: int = 1, target: str = "chat", **spec: Any) -> manifests.Object:
    return {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "targetRef": {"name": target},
            "roles": [
                {"name": "prefill", "minReplicas": low, "maxReplicas": 4},
                {"name": "decode", "minReplicas": low, "maxReplicas": 4},
            ],
            "behavior": QUICK,
            **spec,
        },
    }


def busy(world: World, executor: str, running: int) -> None:
    """Every engine of a TaskExecutor runs so many sequences."""
    for process in world.hardware.processes.values():
        if process.component == "engine" and process.name.startswith(executor):
            process.running = running


def replicas(world: World, executor: str) -> int:
    return int(world.get("TaskExecutor", executor)["spec"]["replicas"])


def told(world: World, role: str, name: str = "chat") -> dict[str, Any]:
    roles = world.get("ScalingPolicy", name)["status"]["roles"]
    return next(one for one in roles if one["name"] == role)


def ready(world: World, name: str) -> str:
    condition: Any = find_condition(world.get("ScalingPolicy", name), "Ready")
    return str(condition["reason"])


async def test_load_brings_more_decode_and_calm_takes_it_back(chat: World) -> None:
    chat.api.add("ScalingPolicy", policy())
    await chat.run(5)
    assert ready(chat, "chat") == "Active"
    busy(chat, "chat-decode", 8)
    await chat.run(15)
    assert replicas(chat, "chat-decode") == 2, "16 sequences in a batch of 16, 80 % are aimed at"
    assert replicas(chat, "chat-prefill") == 1
    history = chat.get("ScalingPolicy", "chat")["status"]["history"]
    assert [(one["role"], one["before"], one["after"], one["reason"]) for one in history] == [("decode", 1, 2, "Load")]
    assert any(about == "chat" and "role decode from 1 to 2" in message for about, _, message in chat.api.events)
    busy(chat, "chat-decode", 1)
    await chat.run(80)
    assert replicas(chat, "chat-decode") == 1
    assert chat.ready("ModelDeployment", "chat")[0]


async def test_a_slow_first_token_brings_prefill(chat: World) -> None:
    chat.api.add("ScalingPolicy", policy(objective={"ttftMilliseconds": 500}))
    await chat.run(5)
    frontend = next(one for one in chat.hardware.processes.values() if one.component == "frontend")
    busy(chat, "chat-prefill", 2)
    frontend.first_token = Histogram(bounds=(0.5, 5.0), counts=(0, 50, 0))
    await chat.run(10)
    assert replicas(chat, "chat-prefill") > 1
    assert replicas(chat, "chat-decode") == 1


async def test_an_advisory_policy_only_talks(chat: World) -> None:
    chat.api.add("ScalingPolicy", policy(mode="Advisory"))
    await chat.run(5)
    busy(chat, "chat-decode", 8)
    await chat.run(30)
    assert replicas(chat, "chat-decode") == 1
    assert (told(chat, "decode")["desired"], ready(chat, "chat")) == (2, "Advisory")
    assert len(chat.get("ScalingPolicy", "chat")["status"]["history"]) == 1


async def test_a_number_chosen_by_hand_is_never_fought(chat: World) -> None:
    chat.api.add("ScalingPolicy", policy())
    await chat.run(5)
    chat.api.edit(chat.get("TaskExecutor", "chat-decode"), lambda obj: obj["spec"].update(replicas=3))
    await chat.run(60)
    assert replicas(chat, "chat-decode") == 3
    assert told(chat, "decode")["reason"] == "ScaledByUser"
    chat.start_operator()
    await chat.run(60)
    assert replicas(chat, "chat-decode") == 3
    chat.api.edit(chat.get("ScalingPolicy", "chat"), lambda obj: obj["spec"]["roles"][1].update(maxReplicas=2))
    await chat.run(60)
    assert replicas(chat, "chat-decode") == 1, "editing the policy hands it back"


async def test_idle_goes_to_nothing_and_a_refused_request_brings_it_back(chat: World) -> None:
    chat.api.add("ScalingPolicy", policy(low=0))
    await chat.run(60)
    assert replicas(chat, "chat-decode") == replicas(chat, "chat-prefill") == 0
    assert chat.engine_pods("chat-decode") == []
    assert chat.ready("ModelDeployment", "chat")[1] == "ScaledToZero"
    frontend = next(one for one in chat.hardware.processes.values() if one.component == "frontend")
    frontend.refused = 1
    await chat.run(15)
    assert chat.ready("ModelDeployment", "chat")[0]


async def test_nothing_is_scaled_while_a_rollout_runs(chat: World) -> None:
    chat.api.add("ScalingPolicy", policy())
    await chat.run(5)
    busy(chat, "chat-decode", 8)
    model = {"name": "tiny", "uri": "file:///models/next"}
    chat.api.edit(chat.get("ModelDeployment", "chat"), lambda obj: obj["spec"].update(model=model))
    await chat.run(10)
    assert replicas(chat, "chat-decode") == 1
    assert told(chat, "decode")["reason"] == "Frozen"


async def test_a_change_that_a_crash_cut_off_is_made_by_the_next_operator(chat: World) -> None:
    chat.api.add("ScalingPolicy", policy())
    await chat.run(5)
    busy(chat, "chat-decode", 8)
    scale = chat.api.scale

    async def dies(executor: Any, replicas: int) -> None:
        raise ConnectionError

    chat.api.scale = dies  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        await chat.run(15)
    assert told(chat, "decode")["scaledTo"] == 2
    chat.api.scale = scale  # type: ignore[method-assign]
    chat.start_operator()
    await chat.run(20)
    assert replicas(chat, "chat-decode") == 2
    assert told(chat, "decode")["reason"] != "ScaledByUser"


async def test_what_is_wrong_with_a_policy_is_told(chat: World) -> None:
    chat.api.add("ScalingPolicy", policy("lost", target="nobody"))
    chat.api.add("ScalingPolicy", policy("first"))
    await chat.run(1)
    chat.api.add("ScalingPolicy", policy("second"))
    unknown = policy("unknown")
    unknown["spec"]["roles"][0]["name"] = "chef"
    await chat.run(3)
    assert [ready(chat, name) for name in ("lost", "first", "second")] == ["TargetMissing", "Active", "Conflict"]
    for name in ("first", "second"):
        chat.api.remove(chat.get("ScalingPolicy", name))
    chat.api.add("ScalingPolicy", unknown)
    await chat.run(3)
    assert ready(chat, "unknown") == "UnknownRole"


async def test_an_idle_policy_writes_nothing(chat: World) -> None:
    chat.api.add("ScalingPolicy", policy())
    await chat.run(10)
    writes = len(chat.api.writes)
    await chat.run(60)
    assert chat.api.writes[writes:] == []
