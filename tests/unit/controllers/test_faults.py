"""Hardware breaks; the operator sees what real machines show, and replaces what was hit."""

from xdeepserve_operator.planner.conditions import format_time

from . import manifests
from .driver import NAMESPACE, World


def epoch(world: World, group: str = "chat-decode-0-dp0") -> int:
    value: int = world.get("DPGroup", group)["status"]["epoch"]
    return value


async def test_a_dead_die_gives_a_new_attempt_on_another_die_and_a_new_epoch(chat: World) -> None:
    victim = chat.engine_pods("chat-decode")[0]
    survivor = chat.engine_pods("chat-decode")[1]["metadata"]["uid"]
    node, dies = chat.place_of(victim)
    chat.hardware.kill_die(node, dies[0])
    await chat.run(0.2)
    assert not chat.ready("ModelDeployment", "chat")[0]
    await chat.settle()
    assert chat.ready("ModelDeployment", "chat")[0]
    pods = {pod["metadata"]["name"]: pod for pod in chat.engine_pods("chat-decode")}
    assert sorted(pods) == ["chat-decode-0-dp0-1", "chat-decode-0-dp1-0"]
    assert chat.place_of(pods["chat-decode-0-dp0-1"]) != (node, dies)
    assert pods["chat-decode-0-dp1-0"]["metadata"]["uid"] == survivor, "what still works is left alone"
    assert epoch(chat) == epoch(chat, "chat-decode-0-dp1") == 2


async def test_the_pod_on_a_dead_die_goes_without_grace(chat: World) -> None:
    victim = chat.engine_pods("chat-decode")[0]
    chat.hardware.kill_die(chat.place_of(victim)[0], chat.place_of(victim)[1][0])
    await chat.tick()
    await chat.tick()
    assert victim["metadata"]["name"] not in chat.names("Pod")


async def test_ready_says_what_was_lost_while_it_is(chat: World) -> None:
    victim = chat.engine_pods("chat-decode")[0]
    node, dies = chat.place_of(victim)
    chat.hardware.kill_die(node, dies[0])
    await chat.tick()
    assert chat.ready("TaskExecutor", "chat-decode")[1] == "Faulted"
    assert chat.ready("ModelDeployment", "chat")[1] == "Faulted"
    reasons = [reason for name, reason, message in chat.api.events if name == "chat-decode" and node in message]
    assert "DieUnhealthy" in reasons


async def test_a_broken_instance_leaves_the_routes_at_once_and_comes_back(chat: World) -> None:
    frontend = next(one for one in chat.hardware.processes.values() if one.routes)
    victim = chat.engine_pods("chat-decode")[0]
    chat.hardware.kill_die(chat.place_of(victim)[0], chat.place_of(victim)[1][0])
    await chat.run(0.3)
    assert frontend.routes is not None
    assert [target.instance for target in frontend.routes.targets] == ["chat-prefill-0"]
    await chat.settle()
    assert len(frontend.routes.targets) == 2


async def test_a_restarted_engine_is_taken_in_under_a_new_epoch_in_the_same_pod(chat: World) -> None:
    pod = chat.engine_pods("chat-decode")[1]
    chat.hardware.stop(pod, exit_code=1)
    await chat.settle()
    assert chat.ready("ModelDeployment", "chat")[0]
    assert [one["metadata"]["name"] for one in chat.engine_pods("chat-decode")] == [
        "chat-decode-0-dp0-0",
        "chat-decode-0-dp1-0",
    ]
    assert epoch(chat) == 2


async def test_a_hung_die_is_heard_as_silence(chat: World) -> None:
    node, dies = chat.place_of(chat.engine_pods("chat-decode")[0])
    chat.hardware.hang_die(node, dies[0])
    await chat.settle()
    assert chat.ready("ModelDeployment", "chat")[0]
    assert chat.place_of(chat.engine_pods("chat-decode")[0]) != (node, dies)
    assert any(reason == "Hung" for _, reason, _ in chat.api.events)


async def test_a_lost_server_is_replaced_with_everything_on_it(chat: World) -> None:
    node = chat.place_of(chat.engine_pods("chat-decode")[0])[0]
    chat.hardware.lose(node)
    await chat.run(6)  # until its engines count as silent, for a node alone may have lost the API server only
    await chat.settle()
    assert chat.ready("ModelDeployment", "chat")[0]
    assert node not in {pod["spec"].get("nodeName") for pod in chat.api.list("Pod", NAMESPACE)}


async def test_an_entrance_that_is_evicted_from_a_lost_server_goes_for_good(chat: World) -> None:
    old = next(pod for pod in chat.api.list("Pod", NAMESPACE) if "frontend" in pod["metadata"]["name"])
    chat.hardware.lose(old["spec"]["nodeName"])
    chat.api.end("Pod", old)  # as the taint manager does; there is no kubelet to confirm it
    await chat.run(6)
    await chat.settle()
    assert old["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in chat.api.list("Pod", NAMESPACE)}


async def test_a_shell_that_ends_is_made_again_and_serving_goes_on_under_the_same_epoch(chat: World) -> None:
    before = epoch(chat)
    chat.api.end("Pod", chat.get("Pod", "chat-decode-0-shell"))
    await chat.settle()
    assert chat.ready("ModelDeployment", "chat")[0]
    assert epoch(chat) == before, "engines were never asked to join anew"


async def test_without_room_the_fault_stays_with_what_is_missing_until_room_appears() -> None:
    world = World(decode_servers=0)
    world.hardware.add_server("c0", "910C")
    world.api.add("SuperPod", manifests.superpod())
    world.api.add("TaskExecutor", manifests.executor("wide", dp=1, tp=16))
    await world.settle()
    world.hardware.kill_die("c0", 7)
    await world.settle()
    ready, reason, message = world.ready("TaskExecutor", "wide")
    assert (ready, reason) == (False, "Faulted")
    assert "Ascend910-7 on c0 is unhealthy" in message
    assert "needs 1 x 16 dies of 910C in SuperPod pod-a, 15 free, largest block 15" in message
    world.hardware.add_server("c1", "910C")
    await world.settle()
    assert world.ready("TaskExecutor", "wide")[0]


async def test_a_full_server_gives_its_own_die_back_to_a_group_that_crashed() -> None:
    world = World(decode_servers=1)
    world.api.add("SuperPod", manifests.superpod())
    world.api.add("TaskExecutor", manifests.executor("full", dp=16))
    await world.settle()
    assert world.ready("TaskExecutor", "full")[0]
    pod = world.engine_pods("full")[0]
    world.api.end("Pod", pod)
    await world.settle()
    assert world.ready("TaskExecutor", "full")[0]
    assert len(world.engine_pods("full")) == 16


async def test_an_injection_is_timed_by_what_executors_show(chat: World) -> None:
    chat.api.add("FaultInjection", manifests.fault("kill", "chat-decode"))
    victim = chat.engine_pods("chat-decode")[0]
    node, dies = chat.place_of(victim)
    await chat.run(0.5)
    assert "conditions" not in chat.get("FaultInjection", "kill").get("status", {})
    moment = format_time(chat.clock.now())
    chat.hardware.kill_die(node, dies[0])
    injected = {"injectedAt": moment, "node": node, "die": dies[0], "pods": [f"default/{victim['metadata']['name']}"]}
    chat.api.edit(chat.get("FaultInjection", "kill"), lambda obj: obj.update(status=injected))
    await chat.tick()
    status = chat.get("FaultInjection", "kill")["status"]
    assert status["observedAt"] > moment
    assert "recoveredAt" not in status
    await chat.settle()
    status = chat.get("FaultInjection", "kill")["status"]
    turn = next(
        one for one in chat.get("TaskExecutor", "chat-decode")["status"]["conditions"] if one["type"] == "Ready"
    )
    assert status["recoveredAt"] == turn["lastTransitionTime"]
    assert 0 < status["recoveryMilliseconds"] < 10_000
    assert status["injectedAt"] == moment, "the servers' fields are theirs"
    assert [one["reason"] for one in status["conditions"]] == ["Recovered"]


async def test_a_broken_checkpoint_gives_the_engines_own_reason_and_no_storm() -> None:
    world = World()
    world.hardware.broken_model = "tiny"
    world.api.add("SuperPod", manifests.superpod())
    world.api.add("ModelDeployment", manifests.deployment())
    await world.run(30)
    ready, reason, message = world.ready("ModelDeployment", "chat")
    assert (ready, reason) == (False, "ModelLoadFailed")
    assert "CheckpointMissing: no config.json there" in message
    assert world.get("DPGroup", "chat-decode-0-dp0")["status"]["error"].startswith("CheckpointMissing")
    assert all(pod["metadata"]["name"].endswith("-0") for pod in world.engine_pods("chat-decode")), "no new attempts"
    writes = len(world.api.writes)
    await world.run(30)
    assert len(world.api.writes) == writes


async def test_one_late_answer_of_a_shell_is_no_reason_to_stop_serving(chat: World) -> None:
    chat.hardware.frozen = {"chat-decode-0-shell"}
    await chat.run(2)
    assert chat.ready("ModelDeployment", "chat")[0]
    await chat.run(4)
    assert chat.ready("TaskExecutor", "chat-decode")[:2] == (False, "Faulted")
    chat.hardware.frozen = set()
    await chat.settle()
    assert chat.ready("ModelDeployment", "chat")[0]
