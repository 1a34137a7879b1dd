"""What a soak calls broken is broken."""

from typing import Any

from xdeepserve_bench.control_plane.invariants import decode_elsewhere, over_budget, promised_twice, set_by_others
from xdeepserve_operator.api.names import LABEL_DEPLOYMENT, LABEL_EXECUTOR, LABEL_GROUP

CALM = {"chat"}


def group(replica: int, node: str = "pod-0-910c-1", *, dies: int = 1, role: str = "Prefill", leaves: str = "") -> Any:
    spec = {"node": node, "dies": dies, "role": role, "replica": replica}
    mark = {"leaving": {"reason": leaves, "since": "2026-01-01T00:00:00Z"}} if leaves else {}
    return {"metadata": {"name": f"g{replica}", "labels": {LABEL_EXECUTOR: "chat-prefill"}}, "spec": spec | mark}


def pod(replica: int, *, ready: str = "True", gone: bool = False) -> Any:
    metadata = {"name": f"p{replica}", "labels": {LABEL_GROUP: f"g{replica}"}}
    condition = {"type": "Ready", "status": ready}
    return {
        "metadata": metadata | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if gone else {}),
        "status": {"phase": "Running", "conditions": [condition]},
    }


def executor(replicas: int, budget: int = 1) -> Any:
    metadata = {"name": "chat-prefill", "labels": {LABEL_DEPLOYMENT: "chat"}}
    return {"metadata": metadata, "spec": {"replicas": replicas, "update": {"maxUnavailable": budget}}}


def test_a_server_has_as_many_dies_as_its_chip_says() -> None:
    assert promised_twice([group(0, dies=8), group(1, dies=8), group(2, "pod-0-910b-48", dies=8)]) == 0
    assert promised_twice([group(0, dies=8), group(1, dies=9), group(2, "pod-0-910b-48", dies=9)]) == 2


def test_decode_is_at_home_on_910c_only() -> None:
    assert decode_elsewhere([group(0, role="Decode"), group(1, "pod-0-910b-48")]) == 0
    assert decode_elsewhere([group(0, "pod-0-910b-48", role="Decode")]) == 1


def test_replicas_are_those_that_were_asked_for() -> None:
    assert set_by_others([executor(3)], {"chat-prefill": 3, "gone": 1}) == 0
    assert set_by_others([executor(3)], {"chat-prefill": 2}) == 1
    assert set_by_others([executor(3)], {}) == 0  # nothing was asked of it yet


def test_as_many_serving_instances_leave_for_a_new_revision_as_the_budget_has() -> None:
    groups = [group(0), group(1, leaves="Outdated"), group(2, leaves="Outdated")]
    pods = [pod(0), pod(1), pod(2)]
    assert over_budget([executor(3, budget=2)], groups, pods, CALM) == {}
    assert over_budget([executor(3)], groups, pods, CALM) == {"chat-prefill": 2}
    assert over_budget([executor(3)], groups, pods, set()) == {}  # something hurt it


def test_instances_that_serve_nobody_or_are_not_wanted_cost_no_budget() -> None:
    groups = [group(1, leaves="Outdated"), group(2, leaves="Outdated")]
    assert over_budget([executor(3)], groups, [pod(1), pod(2, ready="False")], CALM) == {}
    assert over_budget([executor(3)], groups, [pod(1), pod(2, gone=True)], CALM) == {}
    assert over_budget([executor(3)], groups, [pod(1)], CALM) == {}
    assert over_budget([executor(2)], groups, [pod(1), pod(2)], CALM) == {}
    scaled_down = [group(1, leaves="Outdated"), group(2, leaves="ScaledDown")]
    assert over_budget([executor(3)], scaled_down, [pod(1), pod(2)], CALM) == {}
