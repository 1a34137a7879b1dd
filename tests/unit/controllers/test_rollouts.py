"""Rollouts of whole deployments: requests are finished, pairs move together, budgets hold, and there is a way back."""

from collections.abc import Callable
from typing import Any

import pytest

from flowserve.wire import Routes
from xdeepserve_operator.api import names
from xdeepserve_operator.planner.conditions import find_condition
from xdeepserve_operator.planner.history import restored

from . import manifests
from .driver import NAMESPACE, World

NEXT = "file:///models/next"
ZERO_DOWNTIME = {"maxUnavailable": 0, "maxSurge": 1}
Change = Callable[[manifests.Object], Any]


async def start(prefill: int = 1, decode: int = 1, *, update: dict[str, int] | None = None, **spec: Any) -> World:
    """A deployment that serves, with the same budget for both roles."""
    world = World(prefill_servers=2)
    world.api.add("SuperPod", manifests.superpod())
    roles = [
        manifests.role("prefill", "Prefill", replicas=prefill),
        manifests.role("decode", "Decode", dp=2, replicas=decode),
    ]
    for one in roles:
        one["update"] = update or {}
    deployment = manifests.deployment(roles=roles)
    deployment["spec"] |= spec
    world.api.add("ModelDeployment", deployment)
    await world.settle()
    assert world.ready("ModelDeployment", "chat")[0]
    return world


def edit(world: World, change: Change) -> None:
    world.api.edit(world.get("ModelDeployment", "chat"), change)


def use(world: World, uri: str = NEXT) -> None:
    edit(world, lambda obj: obj["spec"]["model"].update(uri=uri))


def pause(world: World, paused: bool = True) -> None:
    edit(world, lambda obj: obj["spec"].update(rollout={"paused": paused}))


def progressing(world: World, kind: str = "ModelDeployment", name: str = "chat") -> str:
    condition: Any = find_condition(world.get(kind, name), "Progressing")
    return str(condition["reason"])


def routes(world: World) -> Routes:
    found = next(process.routes for process in world.hardware.processes.values() if process.routes)
    assert found is not None
    return found


def paired(world: World) -> dict[str, int]:
    """Routed instances that have a routed partner of their revision, by role."""
    by_role = {role: [one for one in routes(world).targets if one.role == role] for role in ("Prefill", "Decode")}
    common = set.intersection(*({one.revision for one in targets} for targets in by_role.values()))
    return {role: sum(one.revision in common for one in targets) for role, targets in by_role.items()}


def held(world: World, executor: str) -> dict[int, str]:
    """Revision of every replica that holds dies."""
    groups = world.api.list("DPGroup", NAMESPACE, {names.LABEL_EXECUTOR: executor})
    return {one["spec"]["replica"]: one["spec"]["revision"] for one in groups}


def updated(world: World, executor: str) -> list[int]:
    target = world.get("TaskExecutor", executor)["status"]["updateRevision"]
    return [replica for replica, revision in sorted(held(world, executor).items()) if revision == target]


async def until(world: World, holds: Callable[[], bool], seconds: float = 60.0) -> None:
    for _ in range(round(seconds * 10)):
        if holds():
            return
        await world.tick()
    raise AssertionError("it never came to that")


@pytest.mark.parametrize(("prefill", "decode"), [(1, 1), (2, 3), (1, 3)])
async def test_with_surge_no_moment_is_without_a_whole_pair(prefill: int, decode: int) -> None:
    world = await start(prefill, decode, update=ZERO_DOWNTIME)
    use(world)
    await world.tick()
    while progressing(world) != "Complete":
        counts = paired(world)
        assert counts["Prefill"] >= prefill
        assert counts["Decode"] >= decode
        await world.tick()
    await world.settle()
    assert world.ready("ModelDeployment", "chat")[0]
    assert len(routes(world).targets) == prefill + decode, "no surge is left"
    assert len({one.revision for one in routes(world).targets}) == 1


@pytest.mark.parametrize(("prefill", "decode"), [(2, 3), (4, 2)])
async def test_in_place_no_role_has_more_out_of_use_than_its_budget(prefill: int, decode: int) -> None:
    """Out of use is also what lost its partners, and what is being made anew."""
    world = await start(prefill, decode)
    use(world)
    await world.tick()
    while progressing(world) != "Complete":
        counts = paired(world)
        assert counts["Prefill"] >= prefill - 1
        assert counts["Decode"] >= decode - 1
        await world.tick()
    assert world.ready("ModelDeployment", "chat")[0]


async def test_surge_and_a_budget_together_come_to_an_end() -> None:
    world = await start(1, 2, update={"maxUnavailable": 1, "maxSurge": 2})
    use(world)
    await world.settle()
    assert world.ready("ModelDeployment", "chat")[0]
    assert held(world, "chat-decode").keys() == {0, 1}
    assert progressing(world) == "Complete"


async def test_traffic_moves_by_weight_as_instances_do() -> None:
    world = await start(2, 2, update=ZERO_DOWNTIME)
    world.hardware.puts.clear()
    use(world)
    await world.settle()
    shares = [
        {one.revision: one.weight for one in message.targets}
        for _, message in world.hardware.puts
        if isinstance(message, Routes)
    ]
    new = next(one.revision for one in routes(world).targets)
    seen = [share.get(new, 0) for share in shares]
    assert 0 < seen[0] < 100
    assert seen == sorted(seen)
    assert seen[-1] == 100


async def test_an_instance_that_leaves_gets_nothing_new_and_finishes_what_it_has() -> None:
    world = await start(2, 1)
    busy = next(one for one in world.hardware.processes.values() if one.name == "chat-prefill-1-dp0-0")
    busy.running = 1
    use(world)
    await world.run(1)
    assert "chat-prefill-1" not in [one.instance for one in routes(world).targets]
    await world.run(10)
    assert busy.uid in world.hardware.processes, "its request runs on"
    assert "chat-prefill-1-shell" in world.names("Pod")
    busy.running = 0
    await world.run(1)
    assert busy.uid not in world.hardware.processes
    await world.settle()
    assert world.ready("ModelDeployment", "chat")[0]


async def test_a_request_without_end_holds_up_until_the_deadline_only() -> None:
    world = await start(update={"drainSeconds": 20})
    busy = next(one for one in world.hardware.processes.values() if one.name == "chat-decode-0-dp0-0")
    busy.running = 1
    use(world)
    await world.run(19)
    assert busy.uid in world.hardware.processes
    await world.settle()
    assert world.ready("ModelDeployment", "chat")[0]


async def test_scaling_down_drains_and_scaling_up_again_calls_back() -> None:
    world = await start(1, 3)
    busy = next(one for one in world.hardware.processes.values() if one.name == "chat-decode-2-dp0-0")
    busy.running = 1
    scaled = world.get("TaskExecutor", "chat-decode")
    world.api.edit(scaled, lambda obj: obj["spec"].update(replicas=2))
    await world.run(3)
    assert world.get("TaskExecutor", "chat-decode")["status"]["readyReplicas"] == 2
    assert busy.uid in world.hardware.processes
    world.api.edit(world.get("TaskExecutor", "chat-decode"), lambda obj: obj["spec"].update(replicas=3))
    await world.settle()
    assert busy.uid in world.hardware.processes, "the same engine serves on"
    assert world.get("ModelDeployment", "chat")["status"]["readyRoles"] == "P 1/1 D 3/3"


async def test_a_checkpoint_that_cannot_load_takes_nothing_down_and_the_deadline_tells() -> None:
    world = await start(1, 2, update=ZERO_DOWNTIME, rollout={"progressDeadlineSeconds": 30})
    before = held(world, "chat-decode")
    world.hardware.broken_model = NEXT
    use(world)
    await world.run(40)
    assert paired(world) == {"Prefill": 1, "Decode": 2}
    assert {replica: held(world, "chat-decode")[replica] for replica in (0, 1)} == before
    assert progressing(world) == "ProgressDeadlineExceeded"
    use(world, "file:///models/tiny")
    await world.settle()
    assert world.ready("ModelDeployment", "chat")[0]
    assert held(world, "chat-decode") == before, "the way back touches nothing that serves"
    assert progressing(world) == "Complete"


async def test_without_room_for_surge_the_rollout_says_so_and_nothing_goes() -> None:
    world = World(prefill_servers=1, decode_servers=1)
    world.api.add("SuperPod", manifests.superpod())
    alone = manifests.executor("decode", dp=16)
    alone["spec"]["update"] = ZERO_DOWNTIME
    world.api.add("TaskExecutor", alone)
    await world.settle()
    world.api.edit(world.get("TaskExecutor", "decode"), lambda obj: obj["spec"].update(tuning={"kvBlocks": 64}))
    await world.run(20)
    condition: Any = find_condition(world.get("TaskExecutor", "decode"), "Progressing")
    assert "needs 16 x 1 dies of 910C" in condition["message"]
    assert world.get("TaskExecutor", "decode")["status"]["readyReplicas"] == 1
    world.hardware.add_server("c9", "910C")
    await world.settle()
    assert world.ready("TaskExecutor", "decode")[0]


async def test_a_pause_holds_a_rollout_where_it_is_and_faults_are_mended_as_they_were() -> None:
    world = await start(1, 4)
    use(world)
    await until(world, lambda: len(updated(world, "chat-decode")) == 2)
    pause(world)
    await world.settle()
    before = held(world, "chat-decode")
    assert len(set(before.values())) == 2, "some are new, some are old"
    assert progressing(world) == "Paused"
    node, dies = world.place_of(
        next(pod for pod in world.engine_pods("chat-decode") if pod["metadata"]["name"].startswith("chat-decode-0-dp0"))
    )
    world.hardware.kill_die(node, dies[0])
    await world.settle()
    assert held(world, "chat-decode") == before
    assert world.get("TaskExecutor", "chat-decode")["status"]["readyReplicas"] == 4
    pod = world.get("Pod", "chat-decode-0-dp0-1")
    assert "models/tiny" in str(pod["spec"]), "the new pod is made from the old revision"
    pause(world, paused=False)
    await world.settle()
    assert world.ready("ModelDeployment", "chat")[:2] == (True, "Ready")
    assert len(updated(world, "chat-decode")) == 4


async def test_a_partition_keeps_the_lower_numbers_and_lifting_it_finishes() -> None:
    world = await start(2, 4, update={"partition": 1})
    use(world)
    await world.settle()
    assert updated(world, "chat-decode") == [1, 2, 3]
    assert updated(world, "chat-prefill") == [1]
    assert paired(world) == {"Prefill": 2, "Decode": 4}
    assert world.ready("ModelDeployment", "chat")[0]
    world.api.end("DPGroup", world.get("DPGroup", "chat-decode-0-dp1"))
    await world.settle()
    assert updated(world, "chat-decode") == [1, 2, 3], "made anew, it is still of the old revision"
    edit(world, lambda obj: [role.update(update={}) for role in obj["spec"]["roles"]])
    await world.settle()
    assert updated(world, "chat-decode") == [0, 1, 2, 3]
    assert world.ready("ModelDeployment", "chat")[0]


async def test_a_revert_in_the_middle_keeps_the_budget() -> None:
    world = await start(1, 4)
    fewest = 4

    def watch() -> int:
        return min(fewest, int(world.get("TaskExecutor", "chat-decode")["status"]["readyReplicas"]))

    use(world)
    await until(world, lambda: len(updated(world, "chat-decode")) == 2)
    fewest = watch()
    use(world, "file:///models/tiny")
    for _ in range(600):
        await world.tick()
        fewest = watch()
    assert fewest == 3
    assert world.ready("ModelDeployment", "chat")[0]


async def test_instances_that_were_sick_before_do_not_stall_it() -> None:
    world = await start(1, 3)
    world.hardware.frozen = {"chat-decode-1-shell"}
    await world.run(6)
    assert world.get("TaskExecutor", "chat-decode")["status"]["readyReplicas"] == 2
    use(world)
    await world.tick()
    world.hardware.frozen = set()
    await world.settle()
    assert len(updated(world, "chat-decode")) == 3


async def test_the_history_numbers_revisions_and_going_back_is_an_edit() -> None:
    world = await start()
    first = {one["revision"]: one["data"] for one in revisions(world)}
    assert list(first) == [1]
    use(world)
    await world.settle()
    assert [one["revision"] for one in revisions(world)] == [1, 2]
    assert world.get("ModelDeployment", "chat")["status"]["revision"] == 2
    edit(world, lambda obj: obj.update(spec=restored(obj["spec"], first[1])))
    await world.settle()
    assert world.get("ModelDeployment", "chat")["spec"]["model"]["uri"] == "file:///models/tiny"
    assert [one["revision"] for one in revisions(world)] == [2, 3], "the old content has the newest number"
    assert world.ready("ModelDeployment", "chat")[0]


async def test_only_so_many_revisions_are_kept_and_none_that_no_instance_needs() -> None:
    world = await start(rollout={"historyLimit": 2})
    for number in range(4):
        use(world, f"file:///models/v{number}")
        await world.settle()
    assert [one["revision"] for one in revisions(world)] == [4, 5]
    of_executor = world.api.list("ControllerRevision", NAMESPACE, {names.LABEL_EXECUTOR: "chat-decode"})
    assert len(of_executor) == 1


def revisions(world: World) -> list[manifests.Object]:
    """The deployment's own, by number."""
    found = world.api.list("ControllerRevision", NAMESPACE, {names.LABEL_DEPLOYMENT: "chat"})
    return sorted((one for one in found if "roles" in one["data"]), key=lambda one: one["revision"])


async def test_what_the_spec_no_longer_has_goes_from_the_executors_too() -> None:
    """They were created with it, and what is created with an object outlives an apply that leaves it out."""
    world = World()
    world.api.add("SuperPod", manifests.superpod())
    drafting = manifests.deployment()
    drafting["spec"]["model"]["speculative"] = {"method": "MTP", "tokens": 1}
    world.api.add("ModelDeployment", drafting)
    await world.settle()
    old = world.get("TaskExecutor", "chat-decode")
    assert old["spec"]["model"]["speculative"] == {"method": "MTP", "tokens": 1}
    edit(world, lambda obj: obj["spec"]["model"].pop("speculative"))
    await world.settle()
    new = world.get("TaskExecutor", "chat-decode")
    assert "speculative" not in new["spec"]["model"]
    assert new["status"]["currentRevision"] != old["status"]["currentRevision"]
    assert new["spec"]["replicas"] == 1
    assert world.ready("ModelDeployment", "chat")[0]
