from dataclasses import replace

from xdeepserve_operator.planner.instance import InstanceView
from xdeepserve_operator.planner.rollout import half_placed, outdated, surplus

from .builders import instance, status


def serving(replica: int, revision: str = "new") -> InstanceView:
    return instance(status(0, epoch=1, state="Serving"), epoch=1, ready=True, replica=replica, revision=revision)


def starting(replica: int, revision: str = "new") -> InstanceView:
    return instance(status(0), replica=replica, revision=revision)


def without_place(replica: int, draining: int = 0) -> InstanceView:
    return replace(instance(None, replica=replica, placed=False), draining=draining)


def replicas(views: tuple[InstanceView, ...]) -> list[int]:
    return [view.replica for view in views]


def test_scaling_down_starts_at_the_highest() -> None:
    assert replicas(surplus([serving(0), serving(1), serving(2)], 1)) == [2, 1]
    assert surplus([serving(0)], 1) == ()


def test_one_serving_replica_at_a_time() -> None:
    assert replicas(outdated([serving(0, "old"), serving(1, "old")], "new")) == [0]
    assert replicas(outdated([serving(0), serving(1, "old")], "new")) == [1]
    assert outdated([serving(0), serving(1)], "new") == ()


def test_the_next_waits_until_the_last_one_serves() -> None:
    assert outdated([starting(0), serving(1, "old")], "new") == ()
    assert outdated([without_place(0, draining=2), serving(1, "old")], "new") == ()


def test_replicas_that_do_not_serve_are_replaced_at_once_and_hold_nobody_up() -> None:
    views = [starting(0, "old"), starting(1, "old"), serving(2, "old")]
    assert replicas(outdated(views, "new")) == [0, 1]


def test_a_replica_without_room_holds_nobody_up() -> None:
    assert replicas(outdated([serving(0, "old"), without_place(1)], "new")) == [0]


def test_a_revert_in_the_middle_takes_one_at_a_time_too() -> None:
    assert replicas(outdated([serving(0, "new"), serving(1, "old"), serving(2, "old")], "old")) == [0]
    assert outdated([starting(0, "old"), serving(1, "new"), serving(2, "old")], "old") == ()


def test_half_placed_is_what_never_ran() -> None:
    view = instance(status(0), status(1))
    half = replace(view, ranks=(view.ranks[0], replace(view.ranks[1], group=None, pod=None)))
    assert half_placed([half, view]) == (half,)
    assert half_placed([replace(half, epoch=4)]) == (), "it served: what is left of it is kept"
