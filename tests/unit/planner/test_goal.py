from hypothesis import given
from hypothesis import strategies as st

from xdeepserve_operator.api.v1alpha1.update import UpdateStrategy
from xdeepserve_operator.planner.goal import Goal, stable_revision


def goal(replicas: int = 3, *, surge: int = 0, partition: int = 0, paused: bool = False, stable: str = "old") -> Goal:
    return Goal(replicas, "new", stable, UpdateStrategy(max_surge=surge, partition=partition), paused)


def test_what_is_missing_is_made_at_the_target() -> None:
    assert goal().made_at({}) == {0: "new", 1: "new", 2: "new"}
    assert goal(0).made_at({}) == {}


def test_a_first_start_knows_no_surge() -> None:
    assert goal(surge=2).made_at({}) == {0: "new", 1: "new", 2: "new"}


def test_what_is_to_be_replaced_is_not_completed() -> None:
    assert goal().made_at({0: "old", 1: "new"}) == {1: "new", 2: "new"}


def test_surge_runs_beside_old_replicas_as_long_as_there_are_enough_of_them() -> None:
    assert goal(surge=2).made_at({0: "old", 1: "old", 2: "old"}) == {3: "new", 4: "new"}
    assert goal(surge=2).made_at({0: "old", 1: "new", 2: "new", 3: "new"}) == {1: "new", 2: "new", 3: "new"}
    assert goal(surge=2).made_at({0: "new", 1: "new", 2: "new", 3: "new"}) == {0: "new", 1: "new", 2: "new"}


def test_below_the_partition_the_stable_revision_is_kept_and_made_anew() -> None:
    assert goal(partition=2).made_at({1: "old", 2: "old"}) == {0: "old", 1: "old"}
    assert goal(partition=2).made_at({2: "new"}) == {0: "old", 1: "old", 2: "new"}
    assert goal(partition=2).fits(1, "old")
    assert not goal(partition=2).fits(2, "old")


def test_a_pause_keeps_what_there_is_and_mends_it_as_it_was() -> None:
    assert goal(paused=True).made_at({0: "old", 2: "new"}) == {0: "old", 1: "old", 2: "new"}
    assert goal(paused=True, surge=1).made_at({0: "old", 1: "old", 2: "old", 3: "new"})[3] == "new"
    assert 3 not in goal(paused=True, surge=1).made_at({0: "old", 1: "old", 2: "old"}), "and begins nothing"


def test_the_stable_revision_is_the_target_when_nobody_remembers_another() -> None:
    assert stable_revision("new", "old", known=True) == "old"
    assert stable_revision("new", "old", known=False) == "new"
    assert stable_revision("new", "", known=False) == "new"


@given(
    held=st.dictionaries(st.integers(0, 7), st.sampled_from(["old", "new", "older"])),
    replicas=st.integers(0, 5),
    surge=st.integers(0, 3),
    partition=st.integers(0, 6),
    paused=st.booleans(),
)
def test_never_more_than_replicas_and_surge_and_never_another_revision_than_one_that_is_held(
    held: dict[int, str], replicas: int, surge: int, partition: int, paused: bool
) -> None:
    one = goal(replicas, surge=surge, partition=partition, paused=paused)
    for replica, revision in one.made_at(held).items():
        assert replica < replicas + surge
        assert revision in ("old", "new") or held[replica] == revision
        if replica < replicas and replica in held:
            assert revision == held[replica], "a replica is completed as it is"
