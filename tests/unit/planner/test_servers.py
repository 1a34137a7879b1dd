from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.superpod import SuperPodSpec
from xdeepserve_operator.planner.groups import Departure, GroupView
from xdeepserve_operator.planner.servers import Server, dies_freeing, dies_held, node_health, survey

from .builders import NOW, Object, group, node, pod

SPEC = SuperPodSpec.model_validate(
    {
        "superpodId": "0",
        "pools": [
            {"name": "ub", "chip": "910C", "diesPerNode": 16, "planes": ["UB"]},
            {"name": "roce", "chip": "910B", "diesPerNode": 8, "planes": ["RoCE"]},
        ],
    }
)


def seen(*nodes: Object, pods: tuple[Object, ...] = (), groups: tuple[GroupView, ...] = ()) -> dict[str, Server]:
    return {one.name: one for one in survey("pod-a", SPEC, nodes, dies_held(pods, groups))}


def with_node(**changes: Any) -> Object:
    changed = node()
    for path, value in changes.items():
        first, _, second = path.partition("__")
        changed.setdefault(first, {})[second] = value
    return changed


def test_a_mixed_superpod_knows_both_chips() -> None:
    servers = seen(node("c"), node("b", "910B"))
    assert {name: (one.chip, one.pool, one.free) for name, one in servers.items()} == {
        "c": ("910C", "ub", 16),
        "b": ("910B", "roce", 8),
    }


def test_a_node_of_another_superpod_is_none_of_ours() -> None:
    assert seen(node(**{names.NODE_LABEL_SUPERPOD: "1"})) == {}


def test_a_pools_selector_must_match() -> None:
    picky = SuperPodSpec.model_validate(
        {
            "superpodId": "0",
            "pools": [{"name": "a", "chip": "910C", "diesPerNode": 16, "planes": ["UB"], "nodeSelector": {"row": "7"}}],
        }
    )
    assert survey("pod-a", picky, [node()], {}) == ()
    assert [one.name for one in survey("pod-a", picky, [node(row="7")], {})] == ["n0"]


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ({names.NODE_LABEL_ACCELERATOR_TYPE: "module-910b-8"}, "module-910b-8"),
        ({names.NODE_LABEL_ACCELERATOR_TYPE: ""}, "missing"),
        ({names.NODE_LABEL_CHIP: "310P"}, "is 310P"),
        ({names.NODE_LABEL_CHIP: "910B", names.NODE_LABEL_ACCELERATOR_TYPE: "module-910b-8"}, "shows 16 dies"),
        ({names.NODE_LABEL_CHIP: "910B"}, "no 910B server"),
    ],
)
def test_a_label_that_lies_is_caught(lie: dict[str, str], said: str) -> None:
    one = seen(node(**lie))["n0"]
    assert said in (one.mismatch or "")
    assert (one.usable, one.free) == (False, 0)


@pytest.mark.parametrize(
    "trouble",
    [
        {"spec__unschedulable": True},
        {"spec__taints": [{"key": "k", "effect": "NoSchedule"}]},
        {"spec__taints": [{"key": "k", "effect": "NoExecute"}]},
        {"status__conditions": [{"type": "Ready", "status": "False"}]},
        {"status__conditions": [{"type": "Ready", "status": "Unknown"}]},
        {"status__conditions": []},
    ],
)
def test_a_server_in_trouble_gets_nothing_new(trouble: dict[str, Any]) -> None:
    one = seen(with_node(**trouble))["n0"]
    assert (one.usable, one.free) == (False, 0)


def test_a_soft_taint_is_no_trouble() -> None:
    assert seen(with_node(spec__taints=[{"key": "k", "effect": "PreferNoSchedule"}]))["n0"].free == 16


@pytest.mark.parametrize(("ready", "lost"), [("True", False), ("False", False), ("Unknown", True)])
def test_lost_is_what_nobody_hears(ready: str, lost: bool) -> None:
    assert node_health(with_node(status__conditions=[{"type": "Ready", "status": ready}])).lost is lost


def test_a_node_that_is_gone_is_lost() -> None:
    assert node_health(None).lost


def test_unhealthy_dies_are_read_and_only_allocatable_ones_are_free() -> None:
    sick = with_node(
        metadata__annotations={names.NODE_ANNOTATION_UNHEALTHY: "Ascend910-3,Ascend910-9"},
        status__allocatable={names.RESOURCE_DIE: "14"},
    )
    one = seen(sick)["n0"]
    assert one.health.unhealthy == {3, 9}
    assert one.free == 14


@pytest.mark.parametrize(
    ("phase", "free"), [("Running", 15), ("Pending", 15), ("Unknown", 15), ("Succeeded", 16), ("Failed", 16)]
)
def test_pods_of_anybody_count_until_they_end(phase: str, free: int) -> None:
    foreign = pod(status={"phase": phase})
    foreign["metadata"]["labels"] = None
    assert seen(node(), pods=(foreign,))["n0"].free == free


def test_a_terminating_pod_still_holds_its_dies() -> None:
    ending = pod()
    ending["metadata"]["deletionTimestamp"] = "2025-01-01T12:00:00Z"
    assert seen(node(), pods=(ending,))["n0"].free == 15


def test_a_placed_group_counts_before_its_pod_is_bound_and_once_after() -> None:
    unbound = pod(spec={"containers": pod()["spec"]["containers"]})
    assert seen(node(), groups=(group(),))["n0"].free == 15
    assert seen(node(), pods=(unbound,), groups=(group(),))["n0"].free == 15
    assert seen(node(), pods=(pod(),), groups=(group(),))["n0"].free == 15


def test_an_old_attempts_pod_counts_beside_the_new_place() -> None:
    assert seen(node(), pods=(pod("te-0-dp0-0"),), groups=(group(attempt=1),))["n0"].free == 14


def test_a_group_that_is_about_to_move_does_not_stand_in_its_own_way() -> None:
    held = dies_held([pod("te-0-dp0-0")], [group(), group(1)], {("default", "te-0-dp0")})
    assert held["n0"] == 1, "only the other group"


def test_the_same_name_in_another_namespace_is_another_group() -> None:
    other = pod()
    other["metadata"]["namespace"] = "else"
    assert dies_held([other], [group()])["n0"] == 2


def test_dies_that_come_free_by_themselves() -> None:
    """A pod that ends, one of a group that leaves, one of a group that is gone, the place of a group that leaves."""
    ending = pod("a-0-dp0-0")
    ending["metadata"]["deletionTimestamp"] = "2025-01-01T12:00:00Z"
    leaving, staying, orphan = pod("te-0-dp0-0"), pod("te-1-dp0-0"), pod("te-2-dp0-0")
    mark = Departure("Preempted", NOW)
    groups = [
        group(0, replica=0, leaving=mark),
        group(0, replica=1),
        group(0, replica=3, node="n1", leaving=mark),
    ]
    assert dies_freeing([staying], groups[1:2]) == Counter()
    assert dies_freeing([ending, leaving, staying, orphan], groups) == Counter({"n0": 3, "n1": 1})
    old_attempt = pod("te-1-dp0-0")
    assert dies_freeing([old_attempt], [replace(groups[1], attempt=1)]) == Counter({"n0": 1})


def test_an_instance_that_leaves_frees_the_dies_of_all_its_groups() -> None:
    groups = [group(0, leaving=Departure("Preempted", NOW)), group(1, node="n1"), group(0, replica=1, node="n2")]
    assert dies_freeing([], groups) == Counter({"n0": 1, "n1": 1})
