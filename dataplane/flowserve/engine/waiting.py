"""How long one rank waits for another.

The limit belongs to a single collective, not to an iteration: what a rank computes itself may take as long as it
takes, but in a collective it only waits, and a rank that lets the others wait for too long is treated as lost.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

from xccl import Steps, Timeout, arun

T = TypeVar("T")


def within(seconds: float, steps: Steps[T], clock: Callable[[], float] = time.monotonic) -> Steps[T]:
    """``steps``, in which Timeout is raised once they have taken ``seconds`` without finishing."""
    began = clock()
    try:
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                result: T = stop.value
                return result
            if clock() - began >= seconds:
                steps.throw(Timeout(f"a peer did not take part within {seconds:g} s"))
            yield
    finally:
        steps.close()


async def drive(steps: Steps[T]) -> T:
    """Runs ``steps``, whose waits have limits of their own, while the event loop goes around."""
    return await arun(steps, timeout=math.inf)
