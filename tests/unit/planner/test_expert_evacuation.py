"""Which ranks recovery wants to hold no expert."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from xdeepserve_operator.planner.expert_evacuation import Evacuation, evacuation
from xdeepserve_operator.planner.groups import Departure, GroupView
from xdeepserve_operator.planner.instance import InstanceView, RankView
from xdeepserve_operator.planner.recovery import Fault
from xdeepserve_operator.planner.servers import Health

WELL = Health(ready=True, lost=False, schedulable=True, unhealthy=frozenset())
SICK = replace(WELL, ready=False, schedulable=False)
CORDONED = replace(WELL, schedulable=False)
LOST = replace(SICK, lost=True)


def group(index: int) -> GroupView:
    return GroupView("ns", f"d-0-dp{index}", "d", 0, index, 1, "910C", f"n{index}", 0, "r", deleted=False)


def instance(ranks: int = 4, *faults: int) -> InstanceView:
    fault = Fault("DieUnhealthy", "die 3 is unhealthy", dead=True)
    views = (RankView(index, group(index), fault=fault if index in faults else None) for index in range(ranks))
    return InstanceView("d-0", 0, tuple(views))


def asked(view: InstanceView, **servers: Health) -> set[int]:
    return set(evacuation(view, {f"n{index}": WELL for index in range(len(view.ranks))} | servers).ranks)


def test_where_all_is_well_nobody_is_evacuated() -> None:
    assert evacuation(instance(), {}) == Evacuation()
    assert asked(instance()) == set()


def test_ranks_with_a_fault_or_on_an_unready_server_are_and_it_says_why() -> None:
    assert asked(instance(4, 1)) == {1}
    assert asked(instance(4, 1), n3=SICK) == {1, 3}
    why = evacuation(instance(4, 1), {"n3": SICK}).why
    assert why == "rank 1, 3 is to hold no expert: die 3 is unhealthy; node n3 is not ready"


def test_a_server_that_nobody_hears_or_that_takes_no_new_pods_keeps_its_experts() -> None:
    assert asked(instance(), n1=LOST, n2=CORDONED) == set()


def test_an_instance_that_leaves_takes_its_experts_with_it() -> None:
    view = instance(4, 1)
    leaving = replace(group(0), leaving=Departure("ScaleDown", datetime(2025, 1, 1, tzinfo=UTC)))
    assert asked(replace(view, ranks=(replace(view.ranks[0], group=leaving), *view.ranks[1:]))) == set()


def test_more_than_half_of_the_ranks_are_too_many() -> None:
    assert asked(instance(4, 0, 1)) == {0, 1}
    assert asked(instance(2, 0)) == {0}
    assert asked(instance(4, 0, 1, 2)) == set()
    assert asked(instance(1, 0)) == set()
    assert "3 of 4 ranks keep their experts" in evacuation(instance(4, 0, 1, 2), {}).why
