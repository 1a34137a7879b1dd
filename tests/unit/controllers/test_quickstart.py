"""From one manifest to a deployment that serves."""

from xdeepserve_operator.api import names

from . import manifests
from .driver import NAMESPACE, World


async def test_reaches_ready_with_prefill_on_910b_and_decode_on_910c(chat: World) -> None:
    assert chat.ready("ModelDeployment", "chat")[:2] == (True, "Ready")
    assert [chat.place_of(pod) for pod in chat.engine_pods("chat-prefill")] == [("b0", [0])]
    assert {chat.place_of(pod)[0][0] for pod in chat.engine_pods("chat-decode")} == {"c"}
    status = chat.get("ModelDeployment", "chat")["status"]
    assert status["readyRoles"] == "P 1/1 D 1/1"
    assert status["endpoint"].startswith("http://127.1.0.")
    assert status["routesEpoch"] >= 1


async def test_children_have_the_names_that_others_rely_on(chat: World) -> None:
    assert chat.names("TaskExecutor") == ["chat-decode", "chat-prefill"]
    assert chat.names("DPGroup") == ["chat-decode-0-dp0", "chat-decode-0-dp1", "chat-prefill-0-dp0"]
    assert chat.names("Pod") == [
        "chat-decode-0-dp0-0",
        "chat-decode-0-dp1-0",
        "chat-decode-0-shell",
        "chat-frontend-0",
        "chat-prefill-0-dp0-0",
        "chat-prefill-0-shell",
    ]
    assert chat.names("Deployment") == chat.names("Service") == ["chat-frontend"]
    assert ("create", "Secret", "chat-control") in chat.api.writes


async def test_routes_lead_to_the_shells_of_one_revision(chat: World) -> None:
    routes = next(process.routes for process in chat.hardware.processes.values() if process.routes)
    hosts = {pod["status"]["podIP"] for pod in chat.api.list("Pod", NAMESPACE) if "shell" in pod["metadata"]["name"]}
    assert {target.shell_host for target in routes.targets} == hosts
    assert {(target.instance, target.role) for target in routes.targets} == {
        ("chat-decode-0", "Decode"),
        ("chat-prefill-0", "Prefill"),
    }
    assert len({target.revision for target in routes.targets}) == 1, "prefill may feed this decode"


async def test_statuses_tell_where_everything_is(chat: World) -> None:
    group = chat.get("DPGroup", "chat-decode-0-dp1")
    rank = group["status"]["ranks"][0]
    pod = chat.get("Pod", "chat-decode-0-dp1-0")
    assert (rank["node"], [rank["die"]]) == chat.place_of(pod)
    assert (rank["rank"], rank["state"], group["status"]["epoch"]) == (1, "Joined", 1)
    executor = chat.get("TaskExecutor", "chat-decode")["status"]
    assert (executor["replicas"], executor["readyReplicas"], executor["updatedReplicas"]) == (1, 1, 1)
    selected = dict(pair.split("=") for pair in executor["selector"].split(","))
    assert chat.names("Pod", **selected) == ["chat-decode-0-shell"], "one pod an instance, for /scale"
    dies = {one["chip"]: one for one in chat.get("SuperPod", "pod-a")["status"]["dies"]}
    assert (dies["910C"]["allocated"], dies["910B"]["allocated"]) == (2, 1)


async def test_an_idle_operator_writes_nothing_and_sends_nothing(chat: World) -> None:
    writes, puts = len(chat.api.writes), len(chat.hardware.puts)
    await chat.run(20)
    assert chat.api.writes[writes:] == []
    assert chat.hardware.puts[puts:] == []


async def test_a_new_operator_finds_all_as_it_should_be(chat: World) -> None:
    epochs = [one["status"]["epoch"] for one in chat.api.list("DPGroup")]
    routes = chat.get("ModelDeployment", "chat")["status"]["routesEpoch"]
    writes = len(chat.api.writes)
    chat.start_operator()
    await chat.run(20)
    assert chat.api.writes[writes:] == []
    assert [one["status"]["epoch"] for one in chat.api.list("DPGroup")] == epochs
    assert chat.get("ModelDeployment", "chat")["status"]["routesEpoch"] == routes


async def test_a_first_start_is_told_in_two_events(chat: World) -> None:
    for name in ("chat", "chat-prefill", "chat-decode"):
        assert [reason for about, reason, _ in chat.api.events if about == name] == ["Starting", "Ready"]


async def test_bringing_up_takes_few_writes() -> None:
    world = World(decode_servers=4)
    world.api.add("SuperPod", manifests.superpod())
    roles = [manifests.role("prefill", "Prefill"), manifests.role("decode", "Decode", dp=64)]
    world.api.add("ModelDeployment", manifests.deployment(roles=roles))
    await world.settle()
    assert world.ready("ModelDeployment", "chat")[0]
    engines = len(world.engine_pods("chat-decode")) + 1
    assert engines == 65
    assert len(world.api.writes) <= 4 * engines + 40


async def test_executors_that_exist_before_their_superpod_wait_for_it() -> None:
    world = World()
    world.api.add("ModelDeployment", manifests.deployment())
    await world.settle()
    _, reason, message = world.ready("TaskExecutor", "chat-decode")
    assert (reason, "SuperPod pod-a does not exist" in message) == ("InsufficientDies", True)
    world.api.add("SuperPod", manifests.superpod())
    await world.settle()
    assert world.ready("ModelDeployment", "chat")[0]


async def test_an_executor_without_a_deployment_serves_too() -> None:
    world = World()
    world.api.add("SuperPod", manifests.superpod())
    world.api.add("TaskExecutor", manifests.executor("alone", dp=2, replicas=2))
    await world.settle()
    assert world.ready("TaskExecutor", "alone")[:2] == (True, "Ready")
    assert ("create", "Secret", "alone-control") in world.api.writes
    assert names.LABEL_DEPLOYMENT not in world.get("DPGroup", "alone-1-dp0")["metadata"]["labels"]
