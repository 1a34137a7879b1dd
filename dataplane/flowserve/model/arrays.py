"""The array types of the runtime, and the way its functions wait for other ranks.

A forward pass is a generator: it yields whenever another rank has to act first (in a collective of a MoE layer), so
that the caller, a lockstep engine inside an event loop, decides how to wait. It computes; it never blocks.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]

T = TypeVar("T")
Steps = Generator[None, None, T]


def finish(steps: Steps[T]) -> T:
    """Runs `steps` to its end and returns its result: for callers that have nobody to wait for."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
