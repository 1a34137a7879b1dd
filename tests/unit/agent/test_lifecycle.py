"""What follows when a container's process ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdeepserve_cluster.agent.lifecycle import Backoff, Record, Running, Terminated, Waiting, init_policy, restarts


def test_back_off_doubles_to_its_limit() -> None:
    backoff = Backoff()
    assert [backoff.after(1.0) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]


@given(st.lists(st.floats(0, 1200), max_size=30))
def test_back_off_starts_again_after_ten_good_minutes(runs: list[float]) -> None:
    backoff, failures = Backoff(), 0
    for ran_for in runs:
        failures = 0 if ran_for >= 600 else failures
        assert backoff.after(ran_for) == (min(10 * 2 ** (failures - 1), 300) if failures else 0)
        failures += 1


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
@pytest.mark.parametrize("code", [0, 1])
def test_policies(policy: str, code: int) -> None:
    assert restarts(policy, code) is (policy == "Always" or (policy == "OnFailure" and code == 1))
    assert restarts(init_policy(policy), 0) is False


def test_a_container_that_fails_and_comes_back() -> None:
    record = Record("c", "image")
    record.run(100.0)
    record.started = record.ready = True
    first = record.end(3, "bye", 105.0)
    assert (record.state, record.started, record.ready) == (Terminated(3, 100.0, 105.0, "bye"), False, False)
    record.wait("CrashLoopBackOff", "back-off 10s")
    assert (record.state, record.last) == (Waiting("CrashLoopBackOff", "back-off 10s"), first)
    record.run(115.0)
    assert (record.state, record.last, record.restarts) == (Running(115.0), first, 1)
    second = record.end(0, "", 116.0)
    record.run(116.0)
    assert (record.last, record.restarts) == (second, 2)


def test_waiting_before_the_first_start_is_no_restart() -> None:
    record = Record("c", "image")
    record.wait("CreateContainerConfigError")
    record.wait("CreateContainerConfigError")
    record.run(1.0)
    assert (record.restarts, record.last) == (0, None)


def test_reasons() -> None:
    assert Terminated(0, 0, 0).reason == "Completed"
    assert Terminated(137, 0, 0).reason == "Error"
