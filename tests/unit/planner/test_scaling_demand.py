import pytest

from xdeepserve_operator.api.v1alpha1.base import RoleType
from xdeepserve_operator.planner.scaling_demand import Need, Objective, RoleLoad, mean_of, need_of
from xdeepserve_operator.planner.scaling_latency import Latency

OBJECTIVE = Objective(ttft=1000, tpot=50, load_percent=80, cache_percent=80)
CALM = Latency(ttft=100, tpot=10, answers=100)


def load(
    kind: RoleType = "Decode",
    *,
    running: float = 0,
    waiting: float = 0,
    serving: int = 2,
    replicas: int | None = None,
    kv_usage: float = 0.0,
) -> RoleLoad:
    """A role of instances with two DP groups and ten sequences each."""
    wanted = serving if replicas is None else replicas
    return RoleLoad(kind.lower(), kind, wanted, serving, 2, 10, running, waiting, kv_usage)


def need(role: RoleLoad, *others: RoleLoad, latency: Latency = CALM) -> Need:
    return need_of(role, others, latency, OBJECTIVE)


@pytest.mark.parametrize(
    ("running", "waiting", "instances"), [(0, 0, 0), (8, 0, 1), (9, 0, 2), (16, 0, 2), (20, 20, 5)]
)
def test_decode_is_sized_by_what_runs_and_waits_over_its_batch(running: int, waiting: int, instances: int) -> None:
    assert need(load(running=running, waiting=waiting)).instances == instances


def test_prefill_is_sized_by_its_groups_whatever_its_batch() -> None:
    assert need(load("Prefill", running=3.2)).instances == 2
    assert need(load("Prefill", running=3.2, waiting=4)).instances == 5


def test_a_queue_is_seen_however_many_instances_were_asked_for() -> None:
    assert need(load(running=16, waiting=8, serving=2, replicas=7)).instances == 3
    assert need(load(running=0, serving=1, replicas=7)).instances == 0, "nor does one that pends hold up the way down"


def test_a_full_cache_asks_for_more_although_the_batch_has_room() -> None:
    found = need(load(running=4, kv_usage=0.95))
    assert (found.instances, found.reason) == (3, "Cache")


def test_slow_tokens_ask_for_decode_only() -> None:
    slow = Latency(ttft=100, tpot=75, answers=100)
    found = need(load(running=10, serving=2), load("Prefill"), latency=slow)
    assert (found.instances, found.reason, found.score) == (3, "Latency", 150)
    assert need(load("Prefill", running=5), load(), latency=slow).reason == "Load"


def test_a_slow_first_token_is_the_side_where_the_queue_stands() -> None:
    slow = Latency(ttft=3000, tpot=10, answers=100)
    prefill, decode = load("Prefill", running=3.2, waiting=1), load(running=10)
    assert need(prefill, decode, latency=slow).reason == "Latency"
    assert need(decode, prefill, latency=slow).reason == "Load"
    blocked = load(running=10, waiting=4, serving=2)
    assert need(blocked, load("Prefill", running=4), latency=slow).reason == "Latency"


def test_latency_asks_at_most_for_twice_of_what_serves() -> None:
    slow = Latency(ttft=100, tpot=5000, answers=100)
    assert need(load(running=10, serving=2), latency=slow).instances == 4


def test_latency_asks_for_nothing_where_more_instances_cannot_help() -> None:
    slow = Latency(ttft=100, tpot=500, answers=100)
    assert need(load(running=4, serving=2), latency=slow).reason == "Load", "every group has one sequence only"


def test_latency_waits_for_what_was_asked_for_before_it_asks_again() -> None:
    slow = Latency(ttft=100, tpot=500, answers=100)
    assert need(load(running=10, serving=2, replicas=4), latency=slow).instances == 4
    assert need(load(running=10, serving=2, replicas=4), latency=slow).score == 200


def test_near_the_objective_nothing_goes() -> None:
    near = Latency(ttft=100, tpot=46, answers=100)
    assert need(load(running=10, serving=4), latency=near).instances == 4
    assert need(load(running=10, serving=4)).instances == 2


def test_a_few_answers_are_no_percentile() -> None:
    assert need(load(running=10), latency=Latency(ttft=9000, tpot=9000, answers=4)).reason == "Load"


def test_loads_are_means_and_all_else_is_the_newest() -> None:
    mean = mean_of([load(running=2, waiting=8, serving=1), load(running=4, serving=3)])
    assert (mean.running, mean.waiting, mean.serving) == (3, 4, 3)
