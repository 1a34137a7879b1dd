"""Statuses of DPGroups and SuperPods, and the times of FaultInjections."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from xdeepserve_operator.planner.conditions import format_time
from xdeepserve_operator.planner.groupstatus import group_status
from xdeepserve_operator.planner.injury import Injury, assess, milliseconds
from xdeepserve_operator.planner.instance import RankView
from xdeepserve_operator.planner.inventory import inventory, superpod_verdict
from xdeepserve_operator.planner.recovery import Fault

from .builders import NOW, Object, instance, server, status

GROUP: Object = {"metadata": {"name": "te-0-dp0", "generation": 4}}


def said(rank: RankView) -> dict[str, Any]:
    found = group_status(GROUP, rank, NOW)
    assert found is not None
    return found


def test_nothing_is_said_before_the_dies_are_known() -> None:
    rank = instance(None).ranks[0]
    assert rank.pod is not None
    assert group_status(GROUP, RankView(0), NOW) is None
    assert group_status(GROUP, replace(rank, pod=replace(rank.pod, node="")), NOW) is None
    assert group_status(GROUP, replace(rank, pod=replace(rank.pod, dies=frozenset())), NOW) is None


@pytest.mark.parametrize(
    ("rank", "state", "epoch"),
    [
        (instance(None).ranks[0], "Starting", 0),
        (instance(status(0)).ranks[0], "Starting", 0),
        (instance(status(0, epoch=3, state="Serving")).ranks[0], "Joined", 3),
        (instance(status(0, epoch=3, state="Broken")).ranks[0], "Starting", 3),
        (instance(None, fault=Fault("Hung", "silent")).ranks[0], "Silent", 0),
        (instance(None, fault=Fault("DieUnhealthy", "dead")).ranks[0], "Failed", 0),
    ],
)
def test_states(rank: RankView, state: str, epoch: int) -> None:
    found = said(rank)
    assert (found["ranks"][0]["state"], found["epoch"], found["observedGeneration"]) == (state, epoch, 4)
    assert found["ranks"][0]["die"] == 3
    assert found["admission"] == ("Open" if state == "Joined" else "Closed")
    assert (found["conditions"][0]["status"] == "True") == (state == "Joined")


def test_a_group_of_two_dies_has_two_ranks() -> None:
    rank = instance(None, None).ranks[1]
    assert rank.group is not None
    assert rank.pod is not None
    wide = replace(rank, group=replace(rank.group, dies=2), pod=replace(rank.pod, dies=frozenset({5, 4})))
    assert [(one["rank"], one["die"]) for one in said(wide)["ranks"]] == [(2, 4), (3, 5)]


def test_kv_use_is_rounded_so_that_requests_do_not_write() -> None:
    def used(share: float) -> int:
        busy = status(0, epoch=1, state="Serving").model_copy(update={"kv_usage": share})
        percent: int = said(instance(busy).ranks[0])["kvUsagePercent"]
        return percent

    assert [used(0.0), used(0.012), used(0.26), used(1.0)] == [0, 0, 30, 100]


def test_a_superpod_counts_what_can_be_used_and_lists_the_rest() -> None:
    liar = replace(server("liar", 16), mismatch="lies")
    sick = server("sick", 10)
    sick = replace(sick, health=replace(sick.health, unhealthy=frozenset({1, 2})))
    found = inventory(3, [liar, sick, server("b", 8, chip="910B")])
    assert found["dies"] == [
        {"chip": "910B", "capacity": 8, "allocated": 0, "faulted": 0, "largestFreeBlock": 8},
        {"chip": "910C", "capacity": 16, "allocated": 6, "faulted": 2, "largestFreeBlock": 10},
    ]
    by_name = {one["name"]: one for one in found["nodes"]}
    assert (by_name["liar"]["mismatch"], by_name["liar"]["free"]) == ("lies", 0)
    assert by_name["sick"]["faulted"] == [1, 2]
    assert "mismatch" not in by_name["b"]


def test_a_superpod_is_ready_when_every_pool_has_a_server() -> None:
    spec = {"pools": [{"name": "pool"}]}
    assert superpod_verdict(spec, [server("a", 0)]).reason == "Ready"
    assert superpod_verdict(spec, []).reason == "NoServers"
    mismatch = superpod_verdict(spec, [replace(server("liar", 16), mismatch="lies")])
    assert (mismatch.reason, "liar: lies" in mismatch.message) == ("Mismatch", True)


def turned(ready: str, seconds: float) -> Object:
    moment = format_time(NOW + timedelta(seconds=seconds))
    return {"status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": moment}]}}


def at(seconds: float) -> Any:
    return NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("observed", "executors", "expected"),
    [
        (None, [turned("True", -60)], Injury(None, None)),
        (None, [turned("False", 2)], Injury(at(2), None)),
        (None, [turned("False", -60)], Injury(at(0), None)),
        (None, [turned("False", 3), turned("False", 2)], Injury(at(2), None)),
        (2, [turned("True", 7)], Injury(at(2), at(7))),
        (2, [turned("True", 7), turned("False", 4)], Injury(at(2), None)),
        (2, [turned("True", 7), turned("True", -60)], Injury(at(2), at(7))),
        (None, [turned("True", 7)], Injury(at(7), at(7))),
        (None, [{}], Injury(None, None)),
        (None, [], Injury(None, None)),
    ],
    ids=[
        "no effect",
        "down",
        "down before",
        "the earlier turn",
        "back",
        "half back",
        "the one that was hit is back",
        "over before anybody looked",
        "no status yet",
        "nothing hit",
    ],
)
def test_an_injury_is_read_from_conditions(observed: float | None, executors: list[Object], expected: Injury) -> None:
    assert assess(NOW, None if observed is None else at(observed), executors) == expected


def test_recovery_is_in_milliseconds() -> None:
    assert milliseconds(NOW, at(1.25)) == 1250
    assert milliseconds(at(1), NOW) == 0


def test_of_many_groups_only_the_unusual_is_told() -> None:
    def told(before: dict[str, Any] | None, rank: RankView) -> dict[str, Any] | None:
        obj = GROUP | ({"status": before} if before is not None else {})
        return group_status(obj, rank, NOW, mates=768)

    joined = instance(status(0, epoch=3, state="Serving")).ranks[0]
    later = instance(status(0, epoch=4, state="Serving")).ranks[0]
    hung = instance(status(0, epoch=3, state="Serving"), fault=Fault("Hung", "silent")).ranks[0]
    assert told(None, joined) is None, "its TaskExecutor says that the whole instance serves"
    trouble = told(None, hung)
    assert trouble is not None
    assert trouble["conditions"][0]["reason"] == "Hung"
    assert told(trouble, hung) is None, "said once"
    recovered = told(trouble, joined)
    assert recovered is not None
    assert recovered["conditions"][0]["status"] == "True"
    assert told(recovered, later) is None, "a new epoch changes every group: it is not written"
