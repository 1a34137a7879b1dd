from dataclasses import replace
from typing import Any

import pytest

from xdeepserve_operator.api.v1alpha1.base import RoleType
from xdeepserve_operator.api.v1alpha1.scaling import ScalingPolicySpec
from xdeepserve_operator.planner.scaling import Decision, Seen, State, begin, decide
from xdeepserve_operator.planner.scaling_demand import Objective, RoleLoad
from xdeepserve_operator.planner.scaling_latency import Latency

OBJECTIVE = Objective(ttft=1000, tpot=50, load_percent=100, cache_percent=80)
AT_ONCE = {
    "up": {"windowSeconds": 0, "maxStep": 100, "periodSeconds": 0},
    "down": {"windowSeconds": 0, "maxStep": 100, "periodSeconds": 0},
    "idleSeconds": 60,
}


def policy(
    low: int = 1, high: int = 10, names: tuple[str, ...] = ("prefill", "decode"), **fields: Any
) -> ScalingPolicySpec:
    """A policy that follows at once, with the same bounds for every role."""
    roles = [{"name": name, "minReplicas": low, "maxReplicas": high} for name in names]
    return ScalingPolicySpec.model_validate(
        {"targetRef": {"name": "chat"}, "roles": roles, "behavior": AT_ONCE, **fields}
    )


def role(kind: RoleType, replicas: int, *, running: float = 0, silent: int = 0) -> RoleLoad:
    """One group an instance; ten sequences a decode instance."""
    return RoleLoad(kind.lower(), kind, replicas, replicas, 1, 10, running, silent=silent)


def look(
    spec: ScalingPolicySpec, *roles: RoleLoad, now: float = 100.0, state: State | None = None, **fields: Any
) -> dict[str, Decision]:
    seen = Seen(**{"roles": roles, "latency": Latency(answers=1, news=1), **fields})
    decisions, _ = decide(spec, OBJECTIVE, seen, state or begin(now), now)
    return {one.role: one for one in decisions}


def test_each_role_follows_its_own_need() -> None:
    found = look(policy(), role("Prefill", 1, running=3), role("Decode", 4, running=15))
    assert {name: (one.before, one.after) for name, one in found.items()} == {"prefill": (1, 3), "decode": (4, 2)}
    assert found["prefill"].reason == "Load"


def test_bounds_hold_and_are_told() -> None:
    found = look(policy(2, 4), role("Prefill", 3, running=0), role("Decode", 4, running=90))
    assert (found["prefill"].after, found["decode"].after) == (2, 4)
    assert found["decode"].reason == "AtMaximum"


def test_a_role_without_bounds_is_left_alone_but_counts_for_the_ratio() -> None:
    spec = policy(names=("decode",), prefillRatio={"maxPercent": 100})
    found = look(spec, role("Prefill", 5), role("Decode", 1))
    assert list(found) == ["decode"]
    assert (found["decode"].after, found["decode"].reason) == (5, "Ratio")


def test_the_ratio_adds_to_who_is_too_few_and_takes_from_nobody() -> None:
    spec = policy(prefillRatio={"minPercent": 50, "maxPercent": 200})
    few = look(spec, role("Prefill", 1), role("Decode", 6, running=60))
    assert (few["prefill"].after, few["decode"].after) == (3, 6)
    many = look(spec, role("Prefill", 6, running=6), role("Decode", 1))
    assert (many["prefill"].after, many["decode"].after) == (6, 3)


def test_frozen_and_unheard_roles_keep_what_they_have() -> None:
    busy = role("Prefill", 1, running=5), role("Decode", 1)
    frozen = look(policy(), *busy, frozen="role decode: Updating")
    assert {(one.after, one.reason, one.message) for one in frozen.values()} == {(1, "Frozen", "role decode: Updating")}
    silent = look(policy(), role("Prefill", 1, running=5), role("Decode", 4, silent=2))
    assert (silent["decode"].after, silent["decode"].reason) == (4, "NoData")
    assert silent["prefill"].after == 5, "the other role goes on"


def test_a_number_that_somebody_else_chose_is_left_alone() -> None:
    spec = policy(prefillRatio={"minPercent": 100})
    found = look(spec, role("Prefill", 2), role("Decode", 8), foreign=frozenset({"decode"}))
    assert (found["decode"].after, found["decode"].reason) == (8, "ScaledByUser")
    assert found["prefill"].after == 8, "but it counts"


def test_idle_time_ends_each_role_that_may_have_none() -> None:
    quiet: dict[str, Any] = {"state": State({}, begun=30.0), "latency": Latency()}
    none = look(policy(0), role("Prefill", 1), role("Decode", 2), **quiet)
    assert {(one.after, one.reason) for one in none.values()} == {(0, "Idle")}
    mixed = policy(0)
    mixed.roles[0].min_replicas = 1
    found = look(mixed, role("Prefill", 1), role("Decode", 1), **quiet)
    assert {name: one.after for name, one in found.items()} == {"prefill": 1, "decode": 0}
    early = look(policy(0), role("Prefill", 1), role("Decode", 1), latency=Latency(), state=State({}, begun=50.0))
    assert {one.after for one in early.values()} == {1}


def test_a_request_anywhere_keeps_the_first_role_of_a_type_and_brings_it_back() -> None:
    spec = policy(0, names=("prefill", "long", "decode"))
    roles = [role("Prefill", 1), replace(role("Prefill", 1), name="long"), role("Decode", 1, running=1)]
    _, state = decide(spec, OBJECTIVE, Seen(tuple(roles), Latency(), active=1), begin(0.0), 0.0)
    found = look(spec, *roles, state=state, now=100.0, active=1)
    assert {name: one.after for name, one in found.items()} == {"prefill": 1, "long": 0, "decode": 1}
    roles[:2] = [replace(one, replicas=0, serving=0) for one in roles[:2]]
    found = look(spec, *roles, state=state, now=100.0, active=1)
    assert {name: one.after for name, one in found.items()} == {"prefill": 1, "long": 0, "decode": 1}


@pytest.mark.parametrize(("running", "after"), [(3.0, 0), (9.0, 1)])
def test_a_second_role_comes_back_when_the_first_may_not_grow(running: float, after: int) -> None:
    spec = policy(0, 4, names=("prefill", "long", "decode"))
    roles = role("Prefill", 4, running=running), replace(role("Prefill", 0), name="long"), role("Decode", 2, running=9)
    found = look(spec, *roles, active=9)["long"]
    assert (found.after, found.reason) == (after, "Demand" if after else "Idle")


def test_a_refused_request_brings_both_roles_back_at_once() -> None:
    slow = {**AT_ONCE, "up": {"windowSeconds": 600, "maxStep": 1, "periodSeconds": 600}}
    roles = role("Prefill", 0), role("Decode", 0)
    found = look(policy(0, behavior=slow), *roles, latency=Latency(refused=1, news=1))
    assert {(one.after, one.reason) for one in found.values()} == {(1, "Demand")}
    quiet = look(policy(0, behavior=slow), *roles, latency=Latency(), state=State({}, 0.0))
    assert {(one.after, one.reason) for one in quiet.values()} == {(0, "Idle")}


def test_a_wish_that_the_pace_holds_is_told() -> None:
    patient = {**AT_ONCE, "down": {"windowSeconds": 300, "maxStep": 1, "periodSeconds": 0}}
    found = look(policy(behavior=patient), role("Prefill", 3), role("Decode", 3, running=25))
    assert (found["prefill"].after, found["prefill"].reason) == (3, "Stabilising")
    assert "1 are wished for" in found["prefill"].message


def test_steady_says_nothing() -> None:
    found = look(policy(), role("Prefill", 1, running=0.5), role("Decode", 2, running=15))
    assert {(one.reason, one.message) for one in found.values()} == {("Steady", "")}


def test_the_first_look_after_a_start_takes_nothing_down() -> None:
    patient = {**AT_ONCE, "down": {"windowSeconds": 60, "maxStep": 9, "periodSeconds": 0}}
    spec, roles = policy(behavior=patient), (role("Prefill", 1), role("Decode", 5))
    state = begin(0.0)
    for second in range(0, 70, 10):
        decisions, state = decide(spec, OBJECTIVE, Seen(roles, Latency(answers=1, news=1)), state, float(second))
        assert decisions[1].after == (5 if second < 60 else 1)
