"""A pod's status follows from its containers."""

from __future__ import annotations

import pytest

from xdeepserve_cluster.agent.lifecycle import Record, Running, State, Terminated, Waiting
from xdeepserve_cluster.agent.status import PodFacts, phase, pod_status, restored
from xdeepserve_operator.runtime.kube import Object

OK, BAD, UP, NEW = Terminated(0, 1, 2), Terminated(1, 1, 2), Running(1), Waiting()
POD: Object = {"metadata": {"uid": "u1"}, "spec": {}}


def record(state: State, *, last: Terminated | None = None, ready: bool = False) -> Record:
    return Record("c", "image", state, last=last, ready=ready)


@pytest.mark.parametrize(
    ("policy", "init", "main", "expected"),
    [
        ("Always", [], [NEW], "Pending"),
        ("Always", [], [UP, NEW], "Pending"),
        ("Always", [], [UP, UP], "Running"),
        ("Always", [], [UP, BAD], "Running"),
        ("Always", [], [OK, OK], "Running"),
        ("OnFailure", [], [OK, OK], "Succeeded"),
        ("OnFailure", [], [OK, BAD], "Running"),
        ("Never", [], [OK, UP], "Running"),
        ("Never", [], [BAD, UP], "Running"),
        ("Never", [], [OK, BAD], "Failed"),
        ("Never", [], [OK, OK], "Succeeded"),
        ("Always", [UP], [NEW], "Pending"),
        ("Always", [OK], [UP], "Running"),
        ("Always", [BAD], [NEW], "Pending"),
        ("Never", [BAD], [NEW], "Failed"),
        ("Always", [OK, NEW], [NEW], "Pending"),
    ],
)
def test_phase(policy: str, init: list[State], main: list[State], expected: str) -> None:
    assert phase(policy, [record(state) for state in init], [record(state) for state in main]) == expected


def test_a_container_in_back_off_does_not_make_the_pod_pending() -> None:
    assert phase("Always", [], [record(Waiting("CrashLoopBackOff"), last=BAD)]) == "Running"


def status(*records: Record, before: list[Object] | None = None, now: float = 100.0, pod: Object = POD) -> Object:
    return pod_status(pod, PodFacts(0.0, "127.16.0.1", main=list(records)), before or [], now)


def conditions(found: Object) -> dict[str, tuple[str, str]]:
    return {item["type"]: (item["status"], item["lastTransitionTime"]) for item in found["conditions"]}


def test_conditions_keep_their_time_until_they_turn() -> None:
    first = status(record(UP), now=0.0)
    assert conditions(first)["Ready"] == ("False", "1970-01-01T00:00:00Z")
    second = status(record(UP, ready=True), before=first["conditions"], now=60.0)
    assert conditions(second) == {
        "PodScheduled": ("True", "1970-01-01T00:00:00Z"),
        "Initialized": ("True", "1970-01-01T00:00:00Z"),
        "ContainersReady": ("True", "1970-01-01T00:01:00Z"),
        "Ready": ("True", "1970-01-01T00:01:00Z"),
    }
    assert status(record(UP, ready=True), before=second["conditions"], now=99.0) == second


def test_readiness_gates_hold_readiness_back() -> None:
    gated: Object = {**POD, "spec": {"readinessGates": [{"conditionType": "x.io/linked"}]}}
    assert conditions(status(record(UP, ready=True), pod=gated))["Ready"][0] == "False"
    gated["status"] = {"conditions": [{"type": "x.io/linked", "status": "True"}]}
    assert conditions(status(record(UP, ready=True), pod=gated))["Ready"][0] == "True"


def test_a_completed_pod_says_so() -> None:
    done = pod_status({**POD, "spec": {"restartPolicy": "Never"}}, PodFacts(0.0, None, main=[record(OK)]), [], 9.0)
    assert done["phase"] == "Succeeded"
    assert {item["reason"] for item in done["conditions"] if item["type"] == "Ready"} == {"PodCompleted"}


def test_container_states_in_the_api() -> None:
    crashed = Record("c", "image", Waiting("CrashLoopBackOff", "back-off"), Terminated(78, 1, 2, "bad"), restarts=1)
    [shown] = status(crashed)["containerStatuses"]
    assert shown["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    ended = shown["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (78, "Error", "bad")
    assert (shown["restartCount"], shown["ready"], shown["started"]) == (1, False, False)


def test_addresses() -> None:
    found = status(record(UP))
    assert (found["podIP"], found["podIPs"], found["hostIP"]) == ("127.16.0.1", [{"ip": "127.16.0.1"}], "127.0.0.1")


def test_a_refused_pod_failed() -> None:
    facts = PodFacts(0.0, refused=("UnexpectedAdmissionError", "no dies"))
    found = pod_status(POD, facts, [], 1.0)
    assert (found["phase"], found["reason"], found["message"]) == ("Failed", "UnexpectedAdmissionError", "no dies")


def test_a_new_agent_goes_on_where_the_old_one_stopped() -> None:
    container = {"name": "c", "image": "image"}
    assert restored(container, [], 50.0) == Record("c", "image")
    [running] = status(Record("c", "image", UP, restarts=4, runs=5))["containerStatuses"]
    back = restored(container, [running], 50.0)
    assert back.last is not None
    assert (back.restarts, back.last.exit_code, back.last.finished_at) == (4, 137, 50.0)
    [done] = status(Record("c", "image", OK))["containerStatuses"]
    assert restored(container, [done], 50.0).state == OK
    [waiting] = status(Record("c", "image", Waiting("CrashLoopBackOff"), BAD, 2))["containerStatuses"]
    assert restored(container, [waiting], 50.0).last == BAD
