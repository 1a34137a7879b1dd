"""The table of what is a fault and what is not."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from flowserve.wire import RankReport
from xdeepserve_operator.planner.pods import EngineError, PodView
from xdeepserve_operator.planner.recovery import Patience, judge
from xdeepserve_operator.planner.servers import Health, node_health

from .builders import HEALTHY, NOW, pod_view, status

PATIENCE = Patience(silent=5, starting=30, unschedulable=30)
ALIVE = pod_view()
LOST = node_health(None)


def report(silent: float, *, heard: bool = True, epoch: int = 1) -> RankReport:
    said = status(0, epoch=epoch) if heard else None
    return RankReport(rank=0, host="127.1.0.1", silent_seconds=silent, ever_heard=heard, status=said)


def like(**changes: Any) -> PodView:
    return replace(ALIVE, **changes)


def unhealthy(*dies: int) -> Health:
    return replace(HEALTHY, unhealthy=frozenset(dies))


@pytest.mark.parametrize(
    ("pod", "health", "heard", "reason", "dead"),
    [
        (ALIVE, LOST, report(6), "NodeLost", True),
        (ALIVE, LOST, None, "NodeLost", True),
        (like(terminating=True), LOST, None, "NodeLost", True),
        (ALIVE, unhealthy(3), report(0), "DieUnhealthy", True),
        (like(terminating=True), unhealthy(3), None, "DieUnhealthy", True),
        (like(terminating=True), HEALTHY, report(0), "PodGone", False),
        (like(phase="Failed"), HEALTHY, None, "PodFailed", False),
        (like(phase="Succeeded"), HEALTHY, None, "PodFailed", False),
        (ALIVE, HEALTHY, report(6), "Hung", False),
        (ALIVE, HEALTHY, report(31, epoch=0), "Hung", False),
        (like(running_since=None), HEALTHY, report(6), "Crashed", False),
        (
            like(node="", running_since=None, unschedulable_since=NOW - timedelta(seconds=31)),
            HEALTHY,
            None,
            "Unschedulable",
            False,
        ),
    ],
)
def test_faults(pod: PodView, health: Health, heard: RankReport | None, reason: str, dead: bool) -> None:
    fault = judge(pod, health, heard, PATIENCE, NOW)
    assert fault is not None
    assert (fault.reason, fault.dead) == (reason, dead)
    assert ALIVE.name in fault.message


@pytest.mark.parametrize(
    ("pod", "health", "heard"),
    [
        (None, None, None),
        (ALIVE, HEALTHY, None),
        (ALIVE, HEALTHY, report(0)),
        (ALIVE, LOST, report(0)),
        (ALIVE, HEALTHY, report(5)),
        (ALIVE, HEALTHY, report(30, epoch=0)),
        (ALIVE, unhealthy(4), report(0)),
        (ALIVE, HEALTHY, report(600, heard=False)),
        (like(running_since=NOW - timedelta(seconds=1)), HEALTHY, report(60)),
        (like(running_since=None), HEALTHY, report(60, epoch=0)),
        (like(running_since=None, error=EngineError("Bad", "no")), HEALTHY, report(60)),
        (like(unschedulable_since=NOW - timedelta(seconds=29)), HEALTHY, None),
    ],
    ids=[
        "no pod yet",
        "not on a roster yet",
        "well",
        "cut off from the API server only",
        "slow",
        "slow to start",
        "a neighbour's die",
        "never heard: liveness is the kubelet's",
        "just started again",
        "crashed before it joined: the kubelet backs off",
        "its checkpoint is broken: another die would not help",
        "the scheduler may still find room",
    ],
)
def test_no_faults(pod: PodView | None, health: Health | None, heard: RankReport | None) -> None:
    assert judge(pod, health, heard, PATIENCE, NOW) is None


def test_a_dead_die_is_named() -> None:
    fault = judge(like(dies=frozenset({3, 4, 5})), unhealthy(3, 5, 9), None, PATIENCE, NOW)
    assert fault is not None
    assert "Ascend910-3, Ascend910-5 on n0" in fault.message
