from dataclasses import replace
from datetime import timedelta

import pytest

from xdeepserve_operator.api.v1alpha1.update import LeaveReason, UpdateStrategy
from xdeepserve_operator.planner.goal import Goal
from xdeepserve_operator.planner.groups import Departure
from xdeepserve_operator.planner.instance import InstanceView
from xdeepserve_operator.planner.rollout import exits, half_placed, is_gone, may_stay

from .builders import NOW, instance, status


def serving(replica: int, revision: str = "new", *, running: int = 0) -> InstanceView:
    engine = status(0, epoch=1, state="Serving").model_copy(update={"running": running})
    return instance(engine, epoch=1, ready=True, replica=replica, revision=revision)


def starting(replica: int, revision: str = "new") -> InstanceView:
    return instance(status(0), replica=replica, revision=revision)


def without_place(replica: int, draining: int = 0) -> InstanceView:
    return replace(instance(None, replica=replica, placed=False), draining=draining)


def leaves(
    view: InstanceView, reason: LeaveReason = "Outdated", seconds: float = 0.0, *, running: int = 0
) -> InstanceView:
    mark = Departure(reason, NOW - timedelta(seconds=seconds))
    groups = [replace(rank.group, leaving=mark) if rank.group else None for rank in view.ranks]
    return replace(view, ranks=tuple(replace(rank, group=one) for rank, one in zip(view.ranks, groups, strict=True)))


def goal(replicas: int, target: str = "new", **strategy: int) -> Goal:
    return Goal(replicas, target, "old", UpdateStrategy.model_validate(strategy))


def leaving(views: list[InstanceView], aim: Goal) -> list[tuple[int, str]]:
    return [(one.view.replica, one.reason) for one in exits(views, aim, lambda _gone, _replica: None)[0]]


def test_scaling_down_starts_at_the_highest_and_asks_for_no_budget() -> None:
    views = [starting(0), serving(1), serving(2), serving(3)]
    assert leaving(views, goal(1)) == [(3, "ScaledDown"), (2, "ScaledDown"), (1, "ScaledDown")]
    assert leaving([serving(0)], goal(1)) == []


def test_one_serving_replica_at_a_time_from_the_highest() -> None:
    assert leaving([serving(0, "old"), serving(1, "old")], goal(2)) == [(1, "Outdated")]
    assert leaving([serving(0, "old"), serving(1)], goal(2)) == [(0, "Outdated")]
    assert leaving([serving(0), serving(1)], goal(2)) == []


def test_as_many_at_a_time_as_the_budget_says() -> None:
    old = [serving(replica, "old") for replica in range(5)]
    assert leaving(old, goal(5, max_unavailable=3)) == [(4, "Outdated"), (3, "Outdated"), (2, "Outdated")]


def test_the_next_waits_until_the_last_one_serves() -> None:
    assert leaving([starting(0), serving(1, "old")], goal(2)) == []
    assert leaving([without_place(0, draining=2), serving(1, "old")], goal(2)) == []
    assert leaving([leaves(serving(1, "old")), serving(0, "old")], goal(2)) == [], "one that leaves is missing already"


def test_replicas_that_do_not_serve_are_replaced_at_once_and_hold_nobody_up() -> None:
    views = [starting(0, "old"), starting(1, "old"), serving(2, "old")]
    assert leaving(views, goal(3)) == [(1, "Outdated"), (0, "Outdated")]
    assert leaving([starting(0, "old"), *map(serving, (1, 2))], goal(3, max_unavailable=0, max_surge=1)) == [
        (0, "Outdated")
    ]


def test_a_replica_without_room_holds_nobody_up() -> None:
    assert leaving([serving(0, "old"), without_place(1)], goal(2)) == [(0, "Outdated")]


def test_a_revert_in_the_middle_keeps_the_budget() -> None:
    assert leaving([serving(0), serving(1, "old"), serving(2, "old")], goal(3, "old")) == [(0, "Outdated")]
    assert leaving([starting(0, "old"), serving(1), serving(2, "old")], goal(3, "old")) == []


def test_with_surge_and_no_budget_the_old_one_waits_for_the_new() -> None:
    aim = goal(1, max_unavailable=0, max_surge=1)
    assert leaving([serving(0, "old")], aim) == []
    assert leaving([serving(0, "old"), starting(1)], aim) == [], "a checkpoint that cannot load takes nothing down"
    assert leaving([serving(0, "old"), serving(1)], aim) == [(0, "Outdated")]


def test_surge_leaves_when_the_numbered_ones_are_back() -> None:
    aim = goal(1, max_unavailable=0, max_surge=1)
    assert leaving([without_place(0, draining=1), serving(1)], aim) == []
    assert leaving([starting(0), serving(1)], aim) == []
    assert leaving([serving(0), serving(1)], aim) == [(1, "Surplus")]


def test_surge_that_serves_is_not_given_up_for_what_still_starts() -> None:
    generous = goal(1, max_unavailable=1, max_surge=1)
    assert leaving([starting(0), serving(1)], generous) == []
    old = leaves(serving(0, "old"))
    assert leaving([old, serving(1)], generous) == []
    assert not may_stay(leaves(serving(1), "Surplus"), generous, {}), "nothing old is left to surge for"


def test_a_revert_keeps_a_surge_replica_of_the_wrong_revision_while_it_is_all_there_is() -> None:
    aim = goal(1, "old", max_unavailable=0, max_surge=1)
    assert leaving([starting(0, "old"), serving(1, "new")], aim) == []
    assert leaving([serving(0, "old"), serving(1, "new")], aim) == [(1, "Surplus")]


def test_below_the_partition_nothing_moves() -> None:
    old = [serving(replica, "old") for replica in range(3)]
    assert leaving(old, goal(3, partition=3)) == []
    assert leaving(old, goal(3, partition=2, max_unavailable=3)) == [(2, "Outdated")]


def test_a_pause_moves_nothing_but_scaling_goes_on() -> None:
    paused = replace(goal(2), paused=True)
    assert leaving([serving(0, "old"), starting(1, "old")], paused) == []
    assert leaving([serving(0, "old"), serving(1, "old"), serving(2, "old")], paused) == [(2, "ScaledDown")]


def test_what_the_other_roles_object_to_is_told() -> None:
    views = [serving(0, "old"), serving(1, "old")]
    found, why = exits(views, goal(2), lambda _gone, replica: f"decode needs {replica}")
    assert (found, why) == ([], "decode needs 1")
    found, why = exits(views, goal(2, max_unavailable=0, max_surge=1), lambda _gone, _replica: None)
    assert (found, why) == ([], "2 of 2 instances serve, the budget says 2 at least")


@pytest.mark.parametrize(
    ("seconds", "running", "gone"),
    [(0.5, 0, False), (2.5, 0, True), (2.5, 3, False), (29.0, 1, False), (30.0, 1, True)],
)
def test_one_that_leaves_is_gone_when_idle_after_notice_or_at_its_deadline(
    seconds: float, running: int, gone: bool
) -> None:
    assert is_gone(leaves(serving(0, running=running), seconds=seconds), 30, NOW) is gone


def test_one_that_leaves_and_breaks_is_gone_at_once() -> None:
    assert is_gone(leaves(starting(0)), 30, NOW)
    assert not is_gone(serving(0), 30, NOW)


def test_what_is_wanted_again_stays_unless_it_was_preempted() -> None:
    others = {0: "new"}
    assert may_stay(leaves(serving(1), "ScaledDown"), goal(2), others)
    assert not may_stay(leaves(serving(1), "ScaledDown"), goal(1), others)
    assert not may_stay(leaves(serving(1), "Preempted"), goal(2), others)
    assert not may_stay(leaves(serving(1, "old")), goal(2), others)
    assert may_stay(leaves(serving(1, "old")), goal(2, "old"), others), "after a revert"


def test_half_placed_is_what_never_ran() -> None:
    view = instance(status(0), status(1))
    half = replace(view, ranks=(view.ranks[0], replace(view.ranks[1], group=None, pod=None)))
    assert half_placed([half, view]) == (half,)
    assert half_placed([replace(half, epoch=4)]) == (), "it served: what is left of it is kept"
