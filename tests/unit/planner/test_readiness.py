from dataclasses import replace

import pytest

from xdeepserve_operator.api.v1alpha1.update import UpdateStrategy
from xdeepserve_operator.planner.gang import Waiting
from xdeepserve_operator.planner.goal import Goal
from xdeepserve_operator.planner.instance import InstanceView
from xdeepserve_operator.planner.pods import EngineError
from xdeepserve_operator.planner.readiness import executor_verdict, placed_verdict
from xdeepserve_operator.planner.recovery import Fault

from .builders import NOW, instance, status

UP = instance(status(0, epoch=1, state="Serving"), epoch=1, ready=True)
SECOND = instance(status(0, epoch=1, state="Serving"), epoch=1, ready=True, replica=1)
LOST = Fault("DieUnhealthy", "die 3 is unhealthy")


def verdict(
    *views: InstanceView, wanted: int = 1, waiting: dict[int, Waiting] | None = None, before: str = "Ready"
) -> str:
    goal = Goal(wanted, "r1", "r1", UpdateStrategy())
    found = executor_verdict(views, goal, waiting or {}, before)
    assert found.holds == (found.reason == "Ready")
    return f"{found.reason}: {found.message}"


def with_error(view: InstanceView) -> InstanceView:
    rank = view.ranks[0]
    assert rank.pod is not None
    broken = replace(rank, pod=replace(rank.pod, error=EngineError("BadShape", "model.norm")))
    return replace(view, ranks=(broken, *view.ranks[1:]))


DRAINING = replace(instance(None, placed=False), draining=1)
OUTDATED = replace(UP, ranks=instance(status(0), revision="r0").ranks)
NO_ROOM = {0: Waiting("needs 1 x 1")}
NO_GANG = {0: Waiting("gang has 1 of 2", "Placing")}


@pytest.mark.parametrize(
    ("view", "waiting", "said"),
    [
        (UP, {}, "Ready: 1 of 1 instances serve"),
        (None, {}, "Starting: 0 of 1 instances serve; replica 0 is being placed"),
        (None, NO_ROOM, "InsufficientDies: 0 of 1 instances serve; needs 1 x 1"),
        (None, NO_GANG, "Starting: 0 of 1 instances serve; gang has 1 of 2"),
        (DRAINING, NO_ROOM, "Updating: 0 of 1 instances serve; te-0: old pods are ending"),
        (instance(None), {}, "Starting: 0 of 1 instances serve; te-0: rank 0: not heard yet"),
        (instance(status(0)), {}, "Joining: 0 of 1 instances serve; te-0: not every rank serves yet"),
        (instance(None, known=2), {}, "Faulted: 0 of 1 instances serve; te-0: coming back, rank 0: not heard yet"),
        (instance(None, fault=LOST), NO_ROOM, "Faulted: 0 of 1 instances serve; te-0: die 3 is unhealthy; needs 1 x 1"),
        (OUTDATED, {}, "Updating: 0 of 1 instances serve; te-0 runs an old revision"),
        (with_error(instance(None)), {}, "ModelLoadFailed: 0 of 1 instances serve; te-0-dp0-0: BadShape: model.norm"),
        (with_error(UP), {}, "Ready: 1 of 1 instances serve"),
    ],
)
def test_one_replica(view: InstanceView | None, waiting: dict[int, Waiting], said: str) -> None:
    assert verdict(*([view] if view else []), waiting=waiting) == said


@pytest.mark.parametrize("before", ["", "Starting", "Joining", "InsufficientDies"])
def test_what_never_served_is_not_faulted(before: str) -> None:
    """Its first epoch is out, so it has one; it still joins."""
    assert verdict(instance(status(0), epoch=1), before=before).startswith("Joining")


def test_old_instances_that_serve_are_not_ready() -> None:
    old = instance(status(0, epoch=1, state="Serving"), epoch=1, ready=True, revision="r0")
    assert verdict(old).startswith("Updating: 1 of 1")


@pytest.mark.parametrize("before", ["Ready", "Faulted", "Degraded"])
def test_only_what_served_comes_back(before: str) -> None:
    assert verdict(instance(None, known=2), before=before).startswith("Faulted: 0 of 1 instances serve; te-0: coming")
    assert verdict(instance(None, known=2), before="Joining").startswith("Starting")


def test_a_fault_beside_a_serving_replica_degrades() -> None:
    returning = instance(None, known=2, replica=1)
    assert verdict(UP, returning, wanted=2, before="Ready").startswith("Degraded: 1 of 2")


def test_the_worst_replica_gives_the_reason() -> None:
    views = [instance(status(0)), with_error(instance(None, replica=1)), instance(None, known=1, replica=2)]
    assert verdict(*views, wanted=3).startswith("ModelLoadFailed")


def test_an_update_goes_on_until_its_replacement_serves() -> None:
    assert verdict(instance(None), before="Updating").startswith("Updating")
    assert verdict(UP, before="Updating").startswith("Ready")
    assert verdict(with_error(instance(None)), before="Updating").startswith("ModelLoadFailed")


def test_no_replica_asked_for_is_ready_and_leftovers_do_not_count() -> None:
    assert verdict(UP, wanted=0).startswith("Ready")
    assert verdict(UP, instance(None, replica=1), wanted=1).startswith("Ready")


@pytest.mark.parametrize(
    ("views", "waiting", "reason"),
    [
        ([UP, SECOND], {}, "Placed"),
        ([UP], {1: Waiting("needs")}, "InsufficientDies"),
        ([UP], {}, "Placing"),
        ([], {0: Waiting("gang", "Placing")}, "Placing"),
    ],
)
def test_placed(views: list[InstanceView], waiting: dict[int, Waiting], reason: str) -> None:
    found = placed_verdict(views, 2, waiting)
    assert (found.holds, found.reason) == (reason == "Placed", reason)


def test_a_pod_that_the_scheduler_refuses_is_told_apart_from_a_fault_and_from_a_start() -> None:
    view = instance(None)
    rank = view.ranks[0]
    assert rank.pod is not None
    pending = replace(rank, pod=replace(rank.pod, node="", unschedulable_since=NOW))
    told = "Unschedulable: 0 of 1 instances serve; te-0: the scheduler finds no server for te-0-dp0-0"
    assert verdict(replace(view, ranks=(pending,))) == told
    late = Fault("Unschedulable", "te-0-dp0-0 does not get its dies from the scheduler")
    assert verdict(instance(None, fault=late)).startswith(
        "Unschedulable: 0 of 1 instances serve; te-0: te-0-dp0-0 does"
    )
    beside = instance(None, fault=late, replica=1)
    assert verdict(UP, beside, wanted=2).startswith("Unschedulable: 1 of 2"), "nothing that served was lost"


def test_a_pod_that_cannot_start_is_named() -> None:
    view = instance(None)
    rank = view.ranks[0]
    assert rank.pod is not None
    stuck = replace(rank.pod, stuck="ImagePullBackOff: Back-off pulling image")
    told = "Starting: 0 of 1 instances serve; te-0: te-0-dp0-0: ImagePullBackOff: Back-off pulling image"
    assert verdict(replace(view, ranks=(replace(rank, pod=stuck),))) == told
    assert verdict(replace(view, shell=replace(stuck, name="te-0-shell"))).startswith(
        "Starting: 0 of 1 instances serve; te-0: te-0-shell: ImagePullBackOff"
    )
