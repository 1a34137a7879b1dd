"""Protocols as generators, and the drivers that run them.

A protocol is written once, as `Steps[T]`: it yields wherever it would block and returns a `T`. Who calls `next`
decides what waiting means: `run` blocks the thread, `arun` keeps an event loop alive, a test explores every
interleaving of several protocols.

No driver spins bare. With more processes than cores the peer that is waited for may need this very core, so each
round gives the core away (`sched_yield`); after that a wait naps for an eighth of the time it has lasted, at most
a millisecond: naps stay small against the wait, and a long wait costs next to nothing.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Generator
from typing import Final, TypeAlias, TypeVar

from xccl.errors import Timeout

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]

_LONGEST_NAP: Final = 1e-3
_SHORTEST_NAP: Final = 50e-6  # the kernel's timer slack: a shorter nap would not be shorter
_LOOP_SPIN: Final = 150e-6  # how long `arun` keeps the loop waiting before it first goes around
_LOOP_SHORTEST_NAP: Final = 250e-6  # epoll counts milliseconds, so that a nap here takes one


def _nap(waited: float, shortest: float) -> float:
    nap = waited / 8
    return 0.0 if nap < shortest else min(nap, _LONGEST_NAP)


def run(steps: Steps[T], *, timeout: float) -> T:
    """Drive `steps` to its result, blocking the thread. Raises Timeout after `timeout` seconds.

    Timeout is raised at the point where the steps were waiting, so that the traceback says what for.
    """
    began = time.monotonic()
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
        waited = time.monotonic() - began
        if waited >= timeout:
            steps.throw(_expired(timeout))
        if nap := _nap(waited, _SHORTEST_NAP):
            time.sleep(nap)
        else:
            os.sched_yield()


async def arun(steps: Steps[T], *, timeout: float) -> T:
    """Drive `steps` to its result, letting the event loop go around while waiting. Raises Timeout.

    The loop is held for at most about 150 µs at a time. Cancelling the task closes the steps.
    """
    began = time.monotonic()
    try:
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                result: T = stop.value
                return result
            waited = time.monotonic() - began
            if waited >= timeout:
                steps.throw(_expired(timeout))
            os.sched_yield()
            if waited >= _LOOP_SPIN:
                await asyncio.sleep(_nap(waited, _LOOP_SHORTEST_NAP))
    finally:
        steps.close()


def _expired(timeout: float) -> Timeout:
    return Timeout(f"not finished within {timeout:g} s; the traceback names what was waited for")
