from typing import Any

import pytest

from xdeepserve_operator.planner.serving import (
    FrontendView,
    RoleView,
    deployment_progress,
    deployment_verdict,
    frontend_view,
    pick_endpoint,
    ready_summary,
)

from .builders import Object, pod_view

ALL = FrontendView(wanted=2, ready=2, pods=2, routed=2)
SERVICE = "http://chat-frontend.default.svc:8000"


def executor(ready: str = "True", reason: str = "Ready", *, replicas: int = 1, generation: int = 1) -> Object:
    condition = {"type": "Ready", "status": ready, "reason": reason, "message": "said", "observedGeneration": 1}
    return {
        "metadata": {"name": "te", "generation": generation},
        "spec": {"replicas": replicas},
        "status": {"conditions": [condition], "readyReplicas": replicas if ready == "True" else 0},
    }


def roles(prefill: Object | None = None, decode: Object | None = None) -> list[RoleView]:
    return [RoleView("p", "Prefill", prefill or executor()), RoleView("d", "Decode", decode or executor())]


@pytest.mark.parametrize(
    ("views", "frontend", "reason"),
    [
        (roles(), ALL, "Ready"),
        (roles(decode=executor("False", "InsufficientDies")), ALL, "InsufficientDies"),
        (roles(decode=executor(generation=2)), ALL, "Updating"),
        (roles(decode=executor(replicas=0)), ALL, "ScaledToZero"),
        (roles(), FrontendView(2, 1, 2, 2), "Starting"),
        (roles(), FrontendView(2, 2, 2, 1), "RoutesPending"),
        (roles(), FrontendView(2, 2, 3, 2), "RoutesPending"),
        ([RoleView("p", "Prefill", None), *roles()], ALL, "Starting"),
        (roles(decode={"metadata": {"generation": 1}, "spec": {}}), ALL, "Starting"),
    ],
)
def test_ready_needs_executors_frontends_and_routes(views: list[RoleView], frontend: FrontendView, reason: str) -> None:
    verdict = deployment_verdict(views, frontend)
    assert (verdict.holds, verdict.reason) == (reason == "Ready", reason)


def progressing(reason: str, status: str = "True") -> Object:
    condition = {"type": "Progressing", "status": status, "reason": reason, "message": "said"}
    return {"metadata": {"name": "te"}, "spec": {}, "status": {"conditions": [condition]}}


@pytest.mark.parametrize(
    ("prefill", "decode", "expected"),
    [
        (progressing("Complete"), progressing("Complete"), (True, "Complete")),
        (progressing("Complete"), progressing("Progressing"), (True, "Progressing")),
        (progressing("Paused"), progressing("Progressing"), (True, "Paused")),
        (progressing("ProgressDeadlineExceeded", "False"), progressing("Paused"), (False, "ProgressDeadlineExceeded")),
        (progressing("Complete"), {"metadata": {}, "spec": {}}, (True, "Progressing")),
    ],
)
def test_the_role_that_is_furthest_from_done_speaks_for_all(
    prefill: Object, decode: Object, expected: tuple[bool, str]
) -> None:
    verdict = deployment_progress(roles(prefill, decode))
    assert (verdict.holds, verdict.reason) == expected


def test_a_rollout_that_a_role_has_not_seen_yet_is_not_complete() -> None:
    behind = progressing("Complete")
    behind["metadata"]["generation"] = 2
    verdict = deployment_progress(roles(progressing("Complete"), behind))
    assert (verdict.holds, verdict.reason) == (True, "Progressing")


def test_the_summary_counts_by_type() -> None:
    views = [*roles(decode=executor("False", "Starting", replicas=3)), RoleView("p2", "Prefill", executor(replicas=2))]
    assert ready_summary(views) == "P 3/3 D 0/3"


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({}, 0),
        ({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}, 2),
        ({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}, 0),
        ({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 1, "readyReplicas": 2}, 0),
        ({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 1, "readyReplicas": 3}, 1),
        ({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3}, 2),
    ],
)
def test_old_frontend_pods_do_not_make_a_deployment_ready(status: dict[str, Any], ready: int) -> None:
    view = frontend_view({"metadata": {"generation": 2}, "status": status}, 2, [], running=0, routed=0)
    assert view.ready == ready


def test_a_frontend_that_cannot_start_says_why() -> None:
    waiting = {"reason": "CreateContainerConfigError", "message": "Secret 'keys' was not found"}
    pod = pod_view(name="chat-frontend-0", status={"containerStatuses": [{"state": {"waiting": waiting}}]})
    view = frontend_view({"metadata": {}}, 1, [pod], running=0, routed=0)
    told = deployment_verdict(roles(), view).message
    assert told == f"frontend: 0 of 1 pods are ready; chat-frontend-0: CreateContainerConfigError: {waiting['message']}"


def at(ip: str, name: str = "x") -> Any:
    status = {"phase": "Running", "podIP": ip}
    return pod_view(status=status, metadata={"name": name, "namespace": "default"})


def test_the_endpoint_is_the_service_unless_pods_are_on_loopback() -> None:
    assert pick_endpoint([at("10.0.0.7")], SERVICE, "") == SERVICE
    assert pick_endpoint([at("fd00::7")], SERVICE, "") == SERVICE
    assert pick_endpoint([at("127.1.0.9", "b"), at("127.1.0.8", "a")], SERVICE, "") == "http://127.1.0.8:8000"


def test_an_endpoint_is_kept_while_it_runs() -> None:
    both = [at("127.1.0.9", "b"), at("127.1.0.8", "a")]
    assert pick_endpoint(both, SERVICE, "http://127.1.0.9:8000") == "http://127.1.0.9:8000"
    assert pick_endpoint(both[1:], SERVICE, "http://127.1.0.9:8000") == "http://127.1.0.8:8000"
    assert pick_endpoint([], SERVICE, "http://127.1.0.9:8000") == "http://127.1.0.9:8000"
