"""A pod's status from the records of its containers. Pure, and all of what the agent writes about a pod.

Phase: Pending until every container has run once; Failed and Succeeded only when nothing will run again. A condition
keeps its transition time as long as its status stays. The result is applied as a whole under a field manager of its
own, so conditions of others (the scheduler's, the eviction's) stay theirs.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

from xdeepserve_cluster.agent.lifecycle import Record, Running, State, Terminated, Waiting, init_policy, restarts
from xdeepserve_cluster.agent.moments import parse_rfc3339, rfc3339
from xdeepserve_cluster.agent.servers import HOST_IP
from xdeepserve_operator.runtime.kube import Object


@dataclass
class PodFacts:
    """What the agent knows of a pod, apart from its specification."""

    started_at: float
    address: str | None = None
    init: list[Record] = field(default_factory=list)
    main: list[Record] = field(default_factory=list)
    refused: tuple[str, str] | None = None  # (reason, message): never admitted to the server


def pod_status(pod: Object, facts: PodFacts, before: Sequence[Object], now: float) -> Object:
    """The status to apply; `before` are the conditions it had."""
    if facts.refused:
        reason, message = facts.refused
        return {"phase": "Failed", "reason": reason, "message": message, "startTime": rfc3339(facts.started_at)}
    current = phase(pod["spec"].get("restartPolicy", "Always"), facts.init, facts.main)
    status: Object = {
        "phase": current,
        "startTime": rfc3339(facts.started_at),
        "hostIP": HOST_IP,
        "hostIPs": [{"ip": HOST_IP}],
        "conditions": _conditions(pod, facts, current, before, now),
        "containerStatuses": [_container(pod, record) for record in facts.main],
    }
    if facts.init:
        status["initContainerStatuses"] = [_container(pod, record, init=True) for record in facts.init]
    if facts.address:
        status |= {"podIP": facts.address, "podIPs": [{"ip": facts.address}]}
    return status


def phase(policy: str, init: Sequence[Record], main: Sequence[Record]) -> str:
    """Pending, Running, Succeeded or Failed."""
    if any(_final_failure(init_policy(policy), record) for record in init):
        return "Failed"
    if not all(initialized(record) for record in init):
        return "Pending"
    if any(isinstance(record.state, Waiting) and not record.ran_before for record in main):
        return "Pending"
    codes = [record.state.exit_code for record in main if isinstance(record.state, Terminated)]
    if len(codes) < len(main) or any(restarts(policy, code) for code in codes):
        return "Running"
    return "Failed" if any(codes) else "Succeeded"


def restored(container: Object, statuses: Sequence[Object], now: float) -> Record:
    """The record of a container whose pod an earlier agent ran; that agent's processes are dead by now.

    What had ended stays ended, what was running counts as killed.
    """
    record = Record(container["name"], container.get("image", ""))
    for status in statuses:
        if status["name"] != record.name:
            continue
        record.restarts = int(status["restartCount"])
        state, last = status.get("state", {}), status.get("lastState", {}).get("terminated")
        if ended := state.get("terminated"):
            record.state = _terminated(ended)
        elif running := state.get("running"):
            started_at = parse_rfc3339(running["startedAt"])
            record.last = Terminated(128 + signal.SIGKILL, started_at, now, "the agent of its server was restarted")
        elif last:
            record.last = _terminated(last)
    return record


def _terminated(ended: Object) -> Terminated:
    moments = [parse_rfc3339(ended[key]) for key in ("startedAt", "finishedAt")]
    return Terminated(int(ended["exitCode"]), moments[0], moments[1], ended.get("message", ""))


def initialized(record: Record) -> bool:
    """Whether an init container has done its work."""
    return isinstance(record.state, Terminated) and record.state.exit_code == 0


def _final_failure(policy: str, record: Record) -> bool:
    state = record.state
    return isinstance(state, Terminated) and state.exit_code != 0 and not restarts(policy, state.exit_code)


def _conditions(pod: Object, facts: PodFacts, current: str, before: Sequence[Object], now: float) -> list[Object]:
    done = current in ("Succeeded", "Failed")
    unready = [record.name for record in facts.main if not record.ready]
    waiting = [record.name for record in facts.init if not initialized(record)]
    containers = ("PodCompleted" if done else "ContainersNotReady", f"containers with unready status: {unready}")
    ready = ("", "")
    if unready:
        ready = containers
    elif gates := _closed_gates(pod):
        ready = ("ReadinessGatesNotReady", f"conditions not true yet: {gates}")
    found = [
        _condition("PodScheduled", "", ""),
        _condition("Initialized", *(("ContainersNotInitialized", f"containers: {waiting}") if waiting else ("", ""))),
        _condition("ContainersReady", *(containers if unready else ("", ""))),
        _condition("Ready", *ready),
    ]
    known = {condition["type"]: condition for condition in before}
    for condition in found:
        old = known.get(condition["type"])
        same = old is not None and old["status"] == condition["status"] and old.get("lastTransitionTime")
        condition["lastTransitionTime"] = same or rfc3339(now)
    return found


def _condition(kind: str, reason: str, message: str) -> Object:
    """True without a reason, else False because of it."""
    if not reason:
        return {"type": kind, "status": "True"}
    return {"type": kind, "status": "False", "reason": reason, "message": message}


def _closed_gates(pod: Object) -> list[str]:
    states = {entry["type"]: entry["status"] for entry in pod.get("status", {}).get("conditions", [])}
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates", [])]
    return [gate for gate in gates if states.get(gate) != "True"]


def _container(pod: Object, record: Record, *, init: bool = False) -> Object:
    identity = f"process://{pod['metadata']['uid']}/{record.name}/{record.restarts}"
    status: Object = {
        "name": record.name,
        "image": record.image,
        "imageID": "",
        "ready": initialized(record) if init else record.ready,
        "started": record.started,
        "restartCount": record.restarts,
        "state": _state(record.state, identity),
    }
    if record.runs or record.ran_before:
        status["containerID"] = identity
    if record.last:
        status["lastState"] = _state(record.last, "")
    return status


def _state(state: State, identity: str) -> Object:
    match state:
        case Waiting(reason, message):
            return {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        case Running(started_at):
            return {"running": {"startedAt": rfc3339(started_at)}}
        case Terminated():
            ended: Object = {
                "exitCode": state.exit_code,
                "reason": state.reason,
                "startedAt": rfc3339(state.started_at),
                "finishedAt": rfc3339(state.finished_at),
            }
            if state.message:
                ended["message"] = state.message
            if identity:
                ended["containerID"] = identity
            return {"terminated": ended}
