from typing import Any

import pytest

from xdeepserve_operator.api import names
from xdeepserve_operator.planner.pods import dies_requested, next_attempt, view_pod

from .builders import pod, pod_view


def container(dies: Any, kind: str = "requests") -> dict[str, Any]:
    return {"resources": {kind: {names.RESOURCE_DIE: dies}}}


@pytest.mark.parametrize(
    ("spec", "dies"),
    [
        ({}, 0),
        ({"containers": [{}]}, 0),
        ({"containers": [container("2"), container("3")]}, 5),
        ({"containers": [container("2", "limits")]}, 2),
        ({"containers": [container("1")], "initContainers": [container("4"), container("2")]}, 4),
    ],
)
def test_a_pod_is_charged_as_the_scheduler_charges_it(spec: dict[str, Any], dies: int) -> None:
    assert dies_requested({"metadata": {}, "spec": spec}) == dies


def test_a_bare_pod_of_anybody_can_be_read() -> None:
    view = view_pod({"metadata": {"name": "x"}})
    assert (view.node, view.phase, view.attempt, view.replica, view.error) == ("", "Pending", -1, -1, None)
    assert view.alive


def exited(code: int, message: str, key: str = "lastState") -> dict[str, Any]:
    return {"phase": "Running", "containerStatuses": [{key: {"terminated": {"exitCode": code, "message": message}}}]}


@pytest.mark.parametrize("key", ["state", "lastState"])
def test_the_engines_reason_is_its_last_line(key: str) -> None:
    message = "reading\nxdeepserve: BadShape: model.norm is [3], expected [64]: see config.json\n"
    error = view_pod(pod(status=exited(78, message, key))).error
    assert str(error) == "BadShape: model.norm is [3], expected [64]: see config.json"


def test_only_exit_78_means_that_starting_again_is_useless() -> None:
    assert view_pod(pod(status=exited(137, "xdeepserve: BadShape: no"))).error is None


@pytest.mark.parametrize(("message", "said"), [("", "exit code 78"), ("Traceback\nValueError: x", "ValueError: x")])
def test_an_exit_78_without_a_reason_still_says_something(message: str, said: str) -> None:
    error = view_pod(pod(status=exited(78, message))).error
    assert error is not None
    assert said in error.message


@pytest.mark.parametrize(
    ("container", "said"),
    [
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, ""),
        ({"state": {"running": {"startedAt": "2025-01-01T11:00:00Z"}}}, ""),
        (
            {"state": {"waiting": {"reason": "CreateContainerConfigError", "message": "Secret 'keys' was not found"}}},
            "CreateContainerConfigError: Secret 'keys' was not found",
        ),
        ({"state": {"waiting": {"reason": "ImagePullBackOff"}}}, "ImagePullBackOff"),
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}},
                "lastState": {"terminated": {"exitCode": 1, "message": "Traceback\n  File\nKeyError: 'x'\n"}},
            },
            "CrashLoopBackOff: exit code 1: KeyError: 'x'",
        ),
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            },
            "CrashLoopBackOff: exit code 137: OOMKilled",
        ),
    ],
)
def test_a_container_that_cannot_start_says_why(container: dict[str, Any], said: str) -> None:
    assert pod_view(status={"containerStatuses": [container]}).stuck == said


def test_attempts_never_reuse_a_name() -> None:
    assert next_attempt([]) == 0
    assert next_attempt([view_pod(pod("g-3")), view_pod(pod("g-1"))]) == 4
    assert next_attempt([view_pod(pod("g-3"))], spent=7) == 8
