"""Scaling played out in virtual time: bursts, ramps, days, flapping, and two recorded hours."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from xdeepserve_operator.api.v1alpha1.scaling import ScalingPolicySpec

from .load_world import LoadWorld
from .traces import CODING, CONVERSATION


def policy(low: int = 1, high: int = 12, **fields: Any) -> ScalingPolicySpec:
    """A policy for both roles; ``behavior`` as in the API."""
    bounds = [{"name": name, "minReplicas": low, "maxReplicas": high} for name in ("prefill", "decode")]
    return ScalingPolicySpec.model_validate({"targetRef": {"name": "chat"}, "roles": bounds, **fields})


def recorded(counts: tuple[int, ...]) -> Callable[[int], float]:
    """Requests a second from counts of 10 s."""
    return lambda second: counts[second // 10] / 10 if second // 10 < len(counts) else 0.0


def changes(world: LoadWorld) -> list[tuple[int, str, int]]:
    return [(second, one.role, one.after - one.before) for second, one in world.decisions]


def test_quiet_load_changes_nothing() -> None:
    world = LoadWorld(policy(), lambda _second: 0.5).run(1800)
    assert world.decisions == []


def test_a_burst_is_followed_within_seconds_and_given_back_after_the_window() -> None:
    world = LoadWorld(policy(), lambda second: 4.0 if 300 <= second < 900 else 0.5).run(2700)
    assert 300 <= min(second for second, _, step in changes(world) if step > 0) <= 320
    assert all(prefill >= 3 and decode >= 5 for prefill, decode in world.counts[400:1200])
    assert world.counts[-1] == (1, 1)


def test_a_ramp_is_climbed_without_a_step_back_and_within_the_objective() -> None:
    world = LoadWorld(policy(), lambda second: 0.5 + second / 1200).run(3600)
    assert all(step > 0 for _, _, step in changes(world))
    assert world.slow / world.total < 0.1


def test_a_day_costs_few_steps_and_much_less_than_its_peak() -> None:
    day = 7200
    world = LoadWorld(policy(), lambda second: 2 + 1.9 * math.sin(2 * math.pi * second / day)).run(2 * day)
    assert world.slow / world.total < 0.1
    peak = [max(counts[role] for counts in world.counts) for role in (0, 1)]
    mean = [sum(counts[role] for counts in world.counts) / len(world.counts) for role in (0, 1)]
    assert mean[1] < 0.85 * peak[1]
    assert len(world.decisions) <= 8 * sum(peak), "no level is tried again and again"


def test_load_that_flaps_within_the_window_is_not_followed_down() -> None:
    world = LoadWorld(policy(), lambda second: 3.0 if second // 30 % 2 else 0.5).run(3600)
    settled = [one for one in changes(world) if one[0] > 900]
    assert settled == []
    assert len(world.decisions) <= 20, "one overshoot at the start, then its way back"


def test_the_bounds_are_never_left() -> None:
    world = LoadWorld(policy(2, 3), lambda second: 50.0 if second > 100 else 0.0, prefill=2, decode=2).run(1200)
    assert {count for counts in world.counts for count in counts} <= {2, 3}
    assert world.counts[-1] == (3, 3)


def test_instances_that_find_no_room_hold_up_neither_the_other_role_nor_the_way_down() -> None:
    world = LoadWorld(policy(), lambda second: 1.2 if second < 600 else 0.1, prefill_seconds=2.0)
    world.pools["Decode"].room = 1
    world.run(3600)
    assert max(prefill for prefill, _ in world.counts) >= 3, "prefill grows all the same"
    assert max(decode for _, decode in world.counts) > 1
    assert world.counts[-1] == (1, 1)


@pytest.mark.parametrize("boot", [5, 60])
def test_nothing_is_left_after_idle_time_and_the_first_request_brings_it_back(boot: int) -> None:
    spec = policy(0, behavior={"idleSeconds": 120})
    world = LoadWorld(spec, lambda second: 1.0 if second < 60 or second > 900 else 0.0, boot_seconds=boot).run(1300)
    assert (0, 0) in world.counts[300:900]
    back = next(second for second, one in world.decisions if one.before == 0)
    assert 900 < back <= 910
    assert min(world.counts[-1]) >= 1


def test_a_rollout_freezes_it() -> None:
    world = LoadWorld(policy(), lambda _second: 4.0)
    world.frozen = "role decode: Updating"
    world.run(600)
    assert world.decisions == []
    world.frozen = ""
    world.run(60)
    assert world.decisions != []


def test_a_recorded_hour_of_conversations() -> None:
    """About five requests a second with slow swings: the objective is kept for less than the peak all the time."""
    world = LoadWorld(policy(), recorded(CONVERSATION), prefill=2, decode=3, prefill_seconds=0.3).run(3500)
    assert world.slow / world.total < 0.05
    assert len(world.decisions) < 40


def test_a_recorded_hour_of_coding() -> None:
    """Bursts out of nothing, up to 33 requests a second: followed up at once, never down and up within a window."""
    world = LoadWorld(policy(high=24), recorded(CODING), prefill_seconds=0.2, tokens=28, boot_seconds=5).run(3430)
    static = LoadWorld(policy(8, 8), recorded(CODING), prefill=8, decode=8, prefill_seconds=0.2, tokens=28).run(3430)
    assert sum(sum(counts) for counts in world.counts) < sum(sum(counts) for counts in static.counts)
    for role in ("prefill", "decode"):
        moves = [(second, step) for second, name, step in changes(world) if name == role]
        for (before, first), (now, second) in pairwise(moves):
            if first > 0 > second:
                assert now - before >= 300, "what came up stays for the window"
