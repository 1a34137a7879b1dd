"""When the operator's event loop lets news gather, and when it does not."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing
from selectors import EVENT_READ

import pytest

from xdeepserve_operator.runtime.moderation import MOMENT_SECONDS, ModeratedSelector, moderated_loop


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    with closing(near), closing(far):
        yield near, far


@pytest.fixture
def selector(time: Time, ends: tuple[socket.socket, socket.socket]) -> Iterator[ModeratedSelector]:
    with closing(ModeratedSelector(monotonic=time.monotonic, sleep=time.sleep)) as one:
        one.register(ends[0], EVENT_READ)
        yield one


def test_after_a_silence_news_are_heard_at_once(selector: ModeratedSelector, ends, time: Time) -> None:
    ends[1].send(b"x")
    assert selector.select(None)
    time.now += MOMENT_SECONDS
    assert selector.select(10)
    assert time.slept == []


def test_in_a_flood_they_gather_for_a_moment(selector: ModeratedSelector, ends, time: Time) -> None:
    ends[1].send(b"x")
    selector.select(None)
    assert selector.select(None)
    assert selector.select(10)
    assert time.slept == [MOMENT_SECONDS] * 2


def test_work_at_hand_is_never_held_up(selector: ModeratedSelector, ends, time: Time) -> None:
    ends[1].send(b"x")
    selector.select(None)
    assert selector.select(0)
    assert time.slept == []


def test_a_timer_is_not_late(selector: ModeratedSelector, ends, time: Time) -> None:
    ends[1].send(b"x")
    selector.select(None)
    ends[0].recv(1)
    assert selector.select(MOMENT_SECONDS / 4) == []
    assert time.slept == [MOMENT_SECONDS / 4]


def test_a_timeout_is_no_news(selector: ModeratedSelector, ends, time: Time) -> None:
    assert selector.select(0.001) == []
    assert selector.select(0.001) == []
    assert time.slept == []


def test_the_loop_works() -> None:
    async def answer() -> list[int]:
        return list(await asyncio.gather(*(asyncio.sleep(0.001, number) for number in range(3))))

    with asyncio.Runner(loop_factory=moderated_loop) as runner:
        assert runner.run(answer()) == [0, 1, 2]
