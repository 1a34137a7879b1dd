"""The drivers of steps, and the doorbell."""

from __future__ import annotations

import asyncio
import traceback

import pytest

from xccl import Doorbell, Steps, Timeout, arun, run, within
from xccl.steps import together


def count_to(number: int) -> Steps[int]:
    for _ in range(number):
        yield True
    return number


def wait_for_nothing() -> Steps[None]:
    while True:
        yield False


def test_run_returns_the_result() -> None:
    assert run(count_to(3), timeout=1) == 3
    assert run(count_to(0), timeout=0) == 0


async def test_arun_returns_the_result() -> None:
    assert await arun(count_to(3), timeout=1) == 3


def test_a_timeout_says_where_the_steps_were_waiting() -> None:
    with pytest.raises(Timeout, match=r"within 0\.01 s") as raised:
        run(wait_for_nothing(), timeout=0.01)
    assert "wait_for_nothing" in "".join(traceback.format_tb(raised.value.__traceback__))


def test_a_part_may_have_a_limit_of_its_own() -> None:
    ticks = iter([0.0, 1.0, 2.0, 3.0])
    with pytest.raises(Timeout, match="within 3 s"):
        run(within(wait_for_nothing(), timeout=3, clock=ticks.__next__), timeout=60)
    assert run(within(count_to(3), timeout=1), timeout=60) == 3


def test_a_limit_passes_on_where_waits_begin() -> None:
    def two_waits() -> Steps[None]:
        yield True
        yield False
        yield True

    assert list(within(two_waits(), timeout=1)) == [True, False, True]


class _Clock:
    """Time in which a look takes 10 µs, and that counts naps."""

    def __init__(self) -> None:
        self.now, self.naps = 0.0, list[float]()

    def monotonic(self) -> float:
        self.now += 10e-6
        return self.now

    def sleep(self, seconds: float) -> None:
        self.naps.append(self.now)
        self.now += seconds


@pytest.mark.parametrize("awake", [0.0, 1e-3, 5e-3])
def test_a_wait_naps_only_after_the_time_that_it_stays_awake(monkeypatch: pytest.MonkeyPatch, awake: float) -> None:
    clock = _Clock()
    monkeypatch.setattr("xccl.steps.time", clock)

    def wait() -> Steps[None]:
        while clock.now < 10e-3:
            yield False

    run(wait(), timeout=60, awake=awake)
    assert clock.naps[0] == pytest.approx(max(awake, 8 * 50e-6), abs=20e-6), "a nap is an eighth of the wait, or longer"
    assert len(clock.naps) > 3, "it does nap in the end"


async def test_the_loop_goes_around_while_arun_waits() -> None:
    rounds = 0

    async def heartbeat() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    beating = asyncio.create_task(heartbeat())
    with pytest.raises(Timeout):
        await arun(wait_for_nothing(), timeout=0.05)
    beating.cancel()
    assert rounds > 20


async def test_cancelling_closes_the_steps() -> None:
    closed = asyncio.Event()

    def steps() -> Steps[None]:
        try:
            yield from wait_for_nothing()
        finally:
            closed.set()

    task = asyncio.create_task(arun(steps(), timeout=10))
    await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed.is_set()


async def test_a_ring_wakes_and_many_rings_wake_once() -> None:
    with Doorbell("127.0.0.1") as mine, Doorbell("127.0.0.1") as peers:
        for _ in range(3):
            peers.ring(mine.address)
        await asyncio.wait_for(mine.wait(), 5)
        waiting = asyncio.create_task(mine.wait())
        await asyncio.sleep(0.01)
        assert not waiting.done()
        peers.ring(mine.address)
        await asyncio.wait_for(waiting, 5)


async def test_ringing_where_nobody_listens_is_harmless() -> None:
    with Doorbell("127.0.0.1") as mine, Doorbell("127.0.0.1") as peers:
        with Doorbell("127.0.0.1") as gone:
            nowhere = gone.address
        for _ in range(3):
            mine.ring(nowhere)
        peers.ring(mine.address)
        await asyncio.wait_for(mine.wait(), 5)


class TestTogether:
    """Several Steps at once."""

    def test_all_go_on_while_one_waits_and_results_are_in_order(self) -> None:
        seen: list[str] = []

        def waits(name: str, times: int) -> Steps[str]:
            for _ in range(times):
                seen.append(name)
                yield False
            return name

        assert run(together([waits("a", 3), waits("b", 1), waits("c", 2)]), timeout=1) == ["a", "b", "c"]
        assert seen == ["a", "b", "c", "a", "c", "a"]

    def test_the_first_error_ends_the_others(self) -> None:
        closed = []

        def never() -> Steps[None]:
            try:
                while True:
                    yield False
            finally:
                closed.append(True)

        def fails() -> Steps[None]:
            yield True
            raise KeyError("lost")

        with pytest.raises(KeyError):
            run(together([never(), fails()]), timeout=1)
        assert closed == [True]

    def test_none_is_nothing_to_wait_for(self) -> None:
        assert run(together([]), timeout=0) == []
