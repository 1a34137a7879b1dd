"""Protocols as generators, and the drivers that run them.

A protocol is written once, as `Steps[T]`: it yields wherever it would block and returns a `T`. Who calls `next`
decides what waiting means: `run` blocks the thread, `arun` keeps an event loop alive, a test explores every
interleaving of several protocols. What it yields says whether a new wait begins or the same one goes on.

No driver spins bare. With more processes than cores the peer that is waited for may need this very core, so that
after a glance of 2 µs each round gives the core away (`sched_yield`); after that a wait naps for an eighth of the time
it has lasted, at most a millisecond: naps stay small against the wait, and a long wait costs next to nothing.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable, Generator, Iterable
from typing import Final, TypeAlias, TypeVar

from xccl.errors import Timeout

T = TypeVar("T")
Steps: TypeAlias = Generator[bool, None, T]

_LONGEST_NAP: Final = 1e-3
_SHORTEST_NAP: Final = 50e-6  # the kernel's timer slack: a shorter nap would not be shorter
GLANCE: Final = 2e-6
_LOOP_SPIN: Final = 150e-6  # how long `arun` keeps the loop from going around
_LOOP_SHORTEST_NAP: Final = 250e-6  # epoll counts milliseconds, so that a nap here takes one

# Other threads of the process must run too, the one that serves TCP peers for instance; but before Python 3.12
# `os.sched_yield` keeps the interpreter's lock, which a foreign function does not.
_give_way: Final[Callable[[], object]] = (
    os.sched_yield if sys.version_info >= (3, 12) else ctypes.CDLL(None).sched_yield
)


def _nap(waited: float, shortest: float) -> float:
    nap = waited / 8
    return 0.0 if nap < shortest else min(nap, _LONGEST_NAP)


def within(steps: Steps[T], *, timeout: float, clock: Callable[[], float] = time.monotonic) -> Steps[T]:
    """`steps`, in which Timeout is raised once they have waited for longer than `timeout` seconds.

    Timeout is raised at the point where the steps were waiting, so that the traceback says what for.
    """
    began = clock()
    try:
        while True:
            try:
                fresh = next(steps)
            except StopIteration as stop:
                result: T = stop.value
                return result
            if clock() - began >= timeout:
                steps.throw(Timeout(f"not finished within {timeout:g} s; the traceback names what was waited for"))
            yield fresh
    finally:
        steps.close()


def together(several: Iterable[Steps[T]]) -> Steps[list[T]]:
    """All of them at once: while one waits, the others go on, so that a transport's answers are waited for together.

    Returns the results in order. The first error ends all. Over mapped memory, which never waits, they run one after
    the other.
    """
    waiting = dict(enumerate(several))
    results: dict[int, T] = {}
    try:
        while waiting:
            fresh = False
            for number, steps in list(waiting.items()):
                try:
                    begins = next(steps)
                except StopIteration as stop:
                    results[number] = stop.value
                    del waiting[number]
                    continue
                if begins:
                    fresh = True
                    yield True
            if waiting and not fresh:
                yield False
    finally:
        for steps in waiting.values():
            steps.close()
    return [results[number] for number in range(len(results))]


def run(steps: Steps[T], *, timeout: float, glance: float = GLANCE, awake: float = 0.0) -> T:
    """Drive `steps` to its result, blocking the thread. Raises Timeout as `within` does.

    A wait keeps the core for `glance` seconds; more than the default suits a peer that has a core of its own. It naps
    at the earliest after `awake` seconds: a nap of a wait whose length is known only makes it longer.
    """
    limited = within(steps, timeout=timeout)
    since = time.monotonic()
    while True:
        try:
            fresh = next(limited)
        except StopIteration as stop:
            result: T = stop.value
            return result
        now = time.monotonic()
        if fresh:
            since = now
        waited = now - since
        if waited >= awake and (nap := _nap(waited, _SHORTEST_NAP)):
            time.sleep(nap)
        elif waited >= glance:
            _give_way()


async def arun(steps: Steps[T], *, timeout: float) -> T:
    """Drive `steps` to its result, letting the event loop go around while waiting. Raises Timeout as `within` does.

    A wait holds the loop for about 150 µs at a time. Cancelling the task closes the steps.
    """
    limited = within(steps, timeout=timeout)
    since = went_around = time.monotonic()
    try:
        while True:
            try:
                fresh = next(limited)
            except StopIteration as stop:
                result: T = stop.value
                return result
            now = time.monotonic()
            if fresh:
                since = now
            _give_way()
            nap = _nap(now - since, _LOOP_SHORTEST_NAP)
            if nap or now - went_around >= _LOOP_SPIN:
                await asyncio.sleep(nap)
                went_around = time.monotonic()
    finally:
        limited.close()
