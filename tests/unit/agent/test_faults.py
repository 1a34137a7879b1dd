"""What faults strike, and what it does to the servers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdeepserve_cluster.agent.faults import (
    WHOLE_SERVER,
    Health,
    Place,
    Strike,
    Tenant,
    choose,
    health_of,
    no_target,
    struck,
    tenant,
)
from xdeepserve_operator.api.v1alpha1.fault import FaultTarget, RandomChoice

SERVERS = {"c-0": range(16), "c-1": range(16), "b-0": range(8)}
DECODE = [Tenant("team", f"d-{number}", "chat-decode", f"c-{number % 2}", (number,)) for number in range(4)]
OTHERS = [Tenant("else", "x", "chat-decode", "c-0", (9,)), Tenant("team", "p", "chat-prefill", "b-0", (0, 1))]
WHOLE = Health({}, frozenset())


def pick(kind: str, tenants: list[Tenant] = DECODE + OTHERS, health: Health = WHOLE, **target: Any) -> Place | None:
    seed = target.pop("seed", 0)
    wanted = FaultTarget(random=RandomChoice(seed=seed), **target)
    return choose(kind, wanted, "team", SERVERS, tenants, health)


@given(st.integers(0, 1000), st.permutations(DECODE + OTHERS))
def test_the_choice_depends_on_the_seed_alone(seed: int, tenants: list[Tenant]) -> None:
    place = pick("DieKill", tenants, task_executor="chat-decode", seed=seed)
    assert place == pick("DieKill", task_executor="chat-decode", seed=seed)
    assert place in {(pod.server, pod.dies[0]) for pod in DECODE}  # not the other namespace's


def test_every_candidate_is_picked_by_some_seed() -> None:
    picked = {pick("DieKill", task_executor="chat-decode", seed=seed) for seed in range(50)}
    assert picked == {("c-0", 0), ("c-1", 1), ("c-0", 2), ("c-1", 3)}


def test_a_named_die_is_taken_as_named() -> None:
    assert pick("DieKill", node="c-1", die=7) == ("c-1", 7)
    assert pick("DieKill", node="b-0", die=8) is None  # a 910B server has 8
    assert pick("DieKill", node="elsewhere") is None


def test_a_broken_die_is_not_picked_again() -> None:
    broken = Health({"c-0": frozenset({0, 2}), "c-1": frozenset({1})}, frozenset())
    assert {pick("DieKill", health=broken, task_executor="chat-decode", seed=seed) for seed in range(20)} == {
        ("c-1", 3)
    }
    assert pick("DieKill", health=Health({}, frozenset({"c-1"})), node="c-1", die=3) is None


def test_a_hang_needs_a_process() -> None:
    assert pick("DieHang", node="c-0", die=2) == ("c-0", 2)
    assert pick("DieHang", node="c-0", die=5) is None


def test_a_node_is_lost_as_a_whole() -> None:
    assert pick("NodeLoss", node="b-0") == ("b-0", WHOLE_SERVER)
    assert pick("NodeLoss", task_executor="chat-prefill") == ("b-0", WHOLE_SERVER)


def test_who_is_struck() -> None:
    assert [pod.key for pod in struck(("c-0", WHOLE_SERVER), DECODE + OTHERS)] == ["else/x", "team/d-0", "team/d-2"]
    assert [pod.key for pod in struck(("b-0", 1), DECODE + OTHERS)] == ["team/p"]


def test_health_is_a_function_of_the_strikes() -> None:
    strikes = [
        Strike("DieKill", "c-0", 3),
        Strike("DieKill", "c-0", 4),
        Strike("DieHang", "c-1", 1),
        Strike("NodeLoss", "b-0", WHOLE_SERVER),
    ]
    assert health_of(strikes) == Health({"c-0": frozenset({3, 4})}, frozenset({"b-0"}))
    assert health_of(strikes[1:3]) == Health({"c-0": frozenset({4})}, frozenset())


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"node": "c-9"}, "c-9 is not one of the servers: b-0, c-0, c-1"),
        ({"task_executor": "chat"}, "no running pod on healthy hardware matches taskExecutor chat; waiting for one"),
    ],
)
def test_why_nothing_matches(target: dict[str, Any], message: str) -> None:
    assert no_target(FaultTarget(**target), SERVERS.keys()) == message


def test_a_pod_is_a_tenant_by_its_label() -> None:
    labels = {"serving.xdeepserve.io/task-executor": "chat-decode"}
    pod = {"metadata": {"namespace": "n", "name": "p", "labels": labels}, "spec": {"nodeName": "c-0"}}
    assert tenant(pod, (1,)) == Tenant("n", "p", "chat-decode", "c-0", (1,))
