from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from xdeepserve_operator.planner.conditions import format_time
from xdeepserve_operator.planner.deadline import Part, overdue, resting
from xdeepserve_operator.planner.instance import InstanceView

from .builders import NOW, instance, status

TIMEOUT = 60


def trial(replica: int = 0, *, age: float = 0.0, bound: bool = True) -> InstanceView:
    """An instance that never ran, placed ``age`` seconds ago; its last pod has a server or not."""
    view = instance(status(0), status(1), replica=replica)
    created = NOW - timedelta(seconds=age)
    ranks = [replace(rank, group=replace(rank.group, created=created) if rank.group else None) for rank in view.ranks]
    if not bound and ranks[1].pod is not None:
        ranks[1] = replace(ranks[1], pod=replace(ranks[1].pod, node=""))
    return replace(view, ranks=tuple(ranks))


def running(replica: int = 0) -> InstanceView:
    return instance(status(0, epoch=1, state="Serving"), epoch=1, ready=True, replica=replica)


def back(
    mine: list[InstanceView], *mates: InstanceView, other_decode: InstanceView | None = None, rest: bool = False
) -> list[int]:
    """Replicas of a decode TaskExecutor to give back; ``mates`` are the prefill instances of its gang."""
    others = [Part("Prefill", [replace(view, name=f"mate-{view.replica}") for view in mates])]
    if other_decode is not None:
        others.append(Part("Decode", [replace(other_decode, name="other-0")]))
    found = overdue(Part("Decode", mine), others, TIMEOUT, NOW, mates_rest=rest)
    return [view.replica for view in found.views] if found else []


def test_a_part_that_waits_too_long_for_the_scheduler_gives_everything_back() -> None:
    assert back([trial(0, age=61), trial(1, age=61, bound=False)]) == [0, 1]
    found = overdue(Part("Decode", [trial(age=61, bound=False)]), [], TIMEOUT, NOW)
    assert found is not None
    assert "te-0-dp1-0 has no server after 60 s" in found.message


def test_before_the_deadline_nothing_happens_and_what_is_on_its_server_is_not_late() -> None:
    assert back([trial(age=59, bound=False)]) == []
    assert back([trial(age=9999)]) == [], "loading is no matter of the scheduler"


def test_the_whole_gang_gives_back_as_long_as_a_part_of_it_never_ran() -> None:
    late = trial(age=61, bound=False)
    assert back([trial(age=61)], late) == [0]
    assert back([running()], late) == [0], "alone, it serves nobody"
    assert back([running()], late, running(1)) == []


def test_beside_what_ran_only_the_late_one_is_given_back() -> None:
    assert back([running(0), trial(1, age=61, bound=False)], running(0)) == [1]


def test_one_role_more_that_finds_no_server_takes_nobody_along() -> None:
    late = trial(age=61, bound=False)
    assert back([late], running(), other_decode=running()) == [0]
    assert back([running()], running(), other_decode=late) == []


def test_who_finds_that_its_mates_gave_up_follows() -> None:
    assert back([trial()], rest=True) == [0]
    assert back([running()], rest=True) == []


@pytest.mark.parametrize(("ago", "rests"), [(1, True), (59, True), (60, False)])
def test_a_gang_rests_for_as_long_again(ago: int, rests: bool) -> None:
    placed: dict[str, Any] = {
        "type": "Placed",
        "status": "False",
        "reason": "GaveBack",
        "message": "0 of 1; pod has no server",
        "lastTransitionTime": format_time(NOW - timedelta(seconds=ago)),
    }
    waiting = resting({"metadata": {}, "status": {"conditions": [placed]}}, TIMEOUT, NOW)
    assert (waiting is not None) is rests
    if waiting is not None:
        assert (waiting.message, waiting.reason) == ("pod has no server", "GaveBack")
    other = placed | {"reason": "InsufficientDies"}
    assert resting({"metadata": {}, "status": {"conditions": [other]}}, TIMEOUT, NOW) is None
