"""No garbage is collected during an iteration, what is made is collected all the same, and no pause is long."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from flowserve import garbage
from flowserve.cache import BlockPool, SequenceKV
from flowserve.garbage import YOUNG
from flowserve.model import LocalExperts, Model

from .driver import finish

LONGEST_PAUSE = 0.010  # seconds of this thread's own time


class Cycle:
    """Lives until it is collected."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def settled() -> Iterator[None]:
    garbage.settle()
    yield
    garbage.release()


@contextmanager
def collections() -> Iterator[list[float]]:
    """How long each collection takes."""
    pauses: list[float] = []
    begun = 0.0

    def watch(phase: str, _info: dict[str, int]) -> None:
        nonlocal begun
        if phase == "start":
            begun = time.thread_time()
        else:
            pauses.append(time.thread_time() - begun)

    gc.callbacks.append(watch)
    try:
        yield pauses
    finally:
        gc.callbacks.remove(watch)


@pytest.mark.usefixtures("settled")
def test_iterations_run_through_and_pauses_are_short(model: Model, local: LocalExperts, pool: BlockPool) -> None:
    sequence = SequenceKV(pool)
    finish(model.prefill(np.arange(3, 19, dtype=np.int32), 0, sequence, local))
    told = []
    with collections() as pauses:
        for _ in range(60):
            before = len(pauses)
            position = np.array([sequence.length], np.int32)
            finish(model.decode(np.array([5], np.int32), position, [sequence], local))
            made = [Cycle() for _ in range(500)]  # as much as a request's documents
            del made
            assert len(pauses) == before, "collected during an iteration"
            told.append(garbage.tidy())
    assert pauses, "nothing was ever collected"
    assert max(pauses) < LONGEST_PAUSE
    assert sum(each > 0 for each in told) == len(pauses)
    assert max(told) >= max(pauses) * 0.9


@pytest.mark.usefixtures("settled")
def test_what_nobody_holds_goes() -> None:
    gone = weakref.ref(Cycle())
    assert gone() is not None
    for _ in range(40):
        cycles = [Cycle() for _ in range(YOUNG + 1)]
        del cycles
        garbage.tidy()
    assert gone() is None
    assert gc.get_count()[0] < YOUNG


@pytest.mark.usefixtures("settled")
def test_a_quiet_engine_collects_nothing() -> None:
    gc.collect()
    with collections() as pauses:
        for _ in range(1000):
            garbage.tidy()
    assert not pauses


def test_python_gets_its_collector_back() -> None:
    garbage.settle()
    assert not gc.isenabled()
    assert gc.get_freeze_count() > 0
    garbage.release()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
