"""Leader election: one holder at a time, whatever the order of steps, and none that writes after its time."""

import asyncio

import pytest

from xdeepserve_operator.runtime.lease import Lease, LeaseSettings

from .fake_api import FakeApi


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def contenders(api, clock, *names):
    return [Lease(api, LeaseSettings("ns", name, lease_seconds=12, renew_seconds=4), monotonic=clock) for name in names]


async def test_of_two_candidates_one_wins():
    api, clock = FakeApi(), Clock()
    first, second = contenders(api, clock, "a", "b")
    assert sorted(await asyncio.gather(first._try(), second._try())) == [False, True]
    assert [first.held(), second.held()].count(True) == 1


async def test_a_holder_that_cannot_renew_stops_before_another_may_start():
    api, clock = FakeApi(), Clock()
    first, second = contenders(api, clock, "a", "b")
    assert await first._try()
    assert not await second._try()
    overlap = []
    for _ in range(40):
        clock.now += 0.5
        await second._try()
        overlap.append((first.held(), second.held()))
    assert (True, True) not in overlap
    assert overlap[-1] == (False, True)


async def test_a_renewing_holder_keeps_it():
    api, clock = FakeApi(), Clock()
    first, second = contenders(api, clock, "a", "b")
    assert await first._try()
    for _ in range(20):
        clock.now += 4
        assert await first._try()
        assert not await second._try()


async def test_a_hanging_server_ends_the_hold_by_the_clock_alone():
    api, clock = FakeApi(), Clock()
    (lease,) = contenders(api, clock, "a")
    assert await lease._try()
    api.down = True
    clock.now += 7
    assert lease.held()
    assert not await lease._try()
    clock.now += 1.5
    assert not lease.held()


async def test_a_released_lease_is_taken_at_once():
    api, clock = FakeApi(), Clock()
    first, second = contenders(api, clock, "a", "b")
    assert await first._try()
    await first.release()
    assert not first.held()
    assert await second._try()


async def test_the_same_identity_takes_its_own_lease_back():
    api, clock = FakeApi(), Clock()
    first, again = contenders(api, clock, "a", "a")
    assert await first._try()
    assert await again._try()


@pytest.mark.parametrize("phase", [number / 4 for number in range(17)])
async def test_a_dead_leader_is_succeeded_within_15_seconds(phase):
    """Default settings; the leader dies ``phase`` seconds after a renewal, the candidate looks as often as it does."""
    api, clock = FakeApi(), Clock()
    leader, candidate = contenders(api, clock, "a", "b")
    assert await leader._try()
    died, looked = phase, 0.0
    while not await candidate._try():
        looked += 1.0  # renew_seconds / 4
        clock.now = looked
    assert 12 - phase <= clock.now - died <= 15


async def test_clocks_of_two_machines_are_never_compared():
    api, ours, theirs = FakeApi(), Clock(), Clock()
    (first,) = contenders(api, ours, "a")
    (second,) = contenders(api, theirs, "b")
    theirs.now = 1e9
    assert await first._try()
    assert not await second._try()
    theirs.now += 11
    assert not await second._try()
