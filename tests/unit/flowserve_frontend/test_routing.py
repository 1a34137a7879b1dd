"""Route table and picker: pure."""

from collections import Counter
from contextlib import ExitStack

import pytest

from flowserve.epoch import Refused
from flowserve.frontend.routing import NoTarget, Router
from flowserve.wire import Role, Routes, Target


def target(instance: str, role: Role, revision: str = "0") -> Target:
    return Target(instance=instance, role=role, shell_host="127.0.0.1", revision=revision)


def router(*targets: Target) -> Router:
    made = Router("chat")
    made.replace(Routes(deployment="chat", epoch=1, targets=targets))
    return made


P0, P1 = target("p0", "Prefill"), target("p1", "Prefill")
D0, D1, D2 = (target(f"d{i}", "Decode") for i in range(3))


def test_nothing_is_ready_before_the_first_routes():
    empty = Router("chat")
    assert not empty.ready
    assert empty.epoch == 0
    with pytest.raises(NoTarget):
        empty.pick("Prefill")


@pytest.mark.parametrize(
    ("targets", "missing"), [((P0,), "Decode"), ((D0,), "Prefill"), ((P0, target("d9", "Decode", "1")), "Prefill")]
)
def test_a_missing_role_is_named(targets, missing):
    incomplete = router(*targets)
    assert not incomplete.ready
    for role in ("Prefill", "Decode"):
        with pytest.raises(NoTarget) as caught:
            incomplete.pick(role)
        assert caught.value.role == missing


def test_only_revisions_with_both_roles_are_picked():
    mixed = router(P0, target("p1", "Prefill", "1"), target("p3", "Prefill", "3"), D0, target("d2", "Decode", "2"))
    assert {mixed.pick("Prefill").instance for _ in range(3)} == {"p0"}
    assert {mixed.pick("Decode").instance for _ in range(3)} == {"d0"}


def test_a_revision_is_kept():
    two = router(P0, target("p1", "Prefill", "1"), D0, target("d1", "Decode", "1"))
    assert {two.pick("Decode", revision="1").instance for _ in range(3)} == {"d1"}
    with pytest.raises(NoTarget):
        two.pick("Decode", revision="2")


def test_equal_instances_take_turns():
    turns = router(P0, P1, D0, D1, D2)
    assert Counter(turns.pick("Decode").instance for _ in range(12)) == {"d0": 4, "d1": 4, "d2": 4}
    assert Counter(turns.pick("Prefill").instance for _ in range(12)) == {"p0": 6, "p1": 6}


def test_the_least_loaded_is_picked():
    loaded = router(P0, D0, D1)
    with ExitStack() as held:
        for _ in range(2):
            held.enter_context(loaded.hold(D0))
        held.enter_context(loaded.hold(D1))
        assert {loaded.pick("Decode").instance for _ in range(3)} == {"d1"}
    assert {loaded.pick("Decode").instance for _ in range(2)} == {"d0", "d1"}


def test_instances_that_failed_are_the_last_choice():
    either = router(P0, D0, D1)
    assert {either.pick("Decode", {"d0"}).instance for _ in range(3)} == {"d1"}
    assert {either.pick("Decode", {"d0", "d1"}).instance for _ in range(2)} == {"d0", "d1"}


def test_epoch_rules():
    kept = router(P0, D0)
    newer = Routes(deployment="chat", epoch=5, targets=(P1, D1))
    kept.replace(newer)
    kept.replace(newer)
    for refused in (
        Routes(deployment="chat", epoch=4, targets=(P0, D0)),
        Routes(deployment="chat", epoch=5, targets=(P0, D0)),
        Routes(deployment="other", epoch=6, targets=(P0, D0)),
    ):
        with pytest.raises(Refused):
            kept.replace(refused)
    assert kept.epoch == 5
    assert (kept.pick("Prefill"), kept.pick("Decode")) == (P1, D1)


def test_load_survives_new_routes():
    changing = router(P0, D0, D1)
    with changing.hold(D0):
        changing.replace(Routes(deployment="chat", epoch=2, targets=(P0, D0, D2)))
        assert {changing.pick("Decode").instance for _ in range(3)} == {"d2"}


def test_revisions_share_the_requests_by_weight():
    def weighted(instance: str, role: Role, revision: str, weight: int) -> Target:
        return target(instance, role, revision).model_copy(update={"weight": weight})

    roles: tuple[Role, ...] = ("Prefill", "Decode")
    targets = [weighted(f"{role[0]}{n}", role, "old", 75) for role in roles for n in range(3)]
    targets += [weighted(f"{role[0]}9", role, "new", 25) for role in roles]
    shifting = router(*targets)
    picks = Counter(shifting.pick("Prefill").revision for _ in range(40))
    assert picks == {"old": 30, "new": 10}
    assert shifting.pick("Decode", revision="new").instance == "D9"
    shifting.replace(Routes(deployment="chat", epoch=2, targets=targets[:3] + targets[6:]))
    assert shifting.pick("Prefill", {"P9"}).revision == "new", "old lacks decode now"


def test_a_revision_without_weight_gets_requests_only_when_nothing_else_is_left():
    none = [one.model_copy(update={"weight": 0}) for one in (target("p9", "Prefill", "9"), target("d9", "Decode", "9"))]
    mixed = router(P0, D0, *none)
    assert {mixed.pick("Prefill").instance for _ in range(5)} == {"p0"}
    assert mixed.pick("Prefill", {"p0"}).instance == "p9"
