"""Explores every interleaving of a few protocols that share memory.

A world is a set of processes (generators) over shared bytearrays. Its memories yield before every word and in the
middle of every copy, so that a step is one access. The search runs a world along one schedule, leaves the other
choices of each new state for later, and replays them from the start; a state met before is not searched again.
A state is the shared bytes, and for each process the lines it stands at and the values it holds there.

A protocol is right when every schedule ends, ends right, and can always still end (no deadlock, no livelock).
"""

from __future__ import annotations

import inspect
import textwrap
from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xccl_a2e_world import Batch

from xccl.a2e_attention import Attention, Sent
from xccl.a2e_die import Traffic
from xccl.a2e_expert import Arrived, Expert
from xccl.a2e_layout import A2EMap
from xccl.a2e_plan import Plan
from xccl.alltoall import AllToAll, Dispatched
from xccl.atomics import Offsets
from xccl.layout import GroupMap, Layout, RingMap
from xccl.memory import Buffer, MappedMemory, Rows, octets
from xccl.operations import Read, Store
from xccl.push import Push, Pushed
from xccl.region import Reference
from xccl.ring import Ring
from xccl.routing import Route
from xccl.steps import Steps

_WORD = 8  # bytes that memory moves at once


class Violation(AssertionError):
    """Some interleaving goes wrong; the message holds its schedule."""


class ExploredMemory(MappedMemory):
    """Memory in which others may run before every word access and in the middle of every longer copy."""

    before_access = (True,)

    def __init__(self, buffer: bytearray, label: str) -> None:
        super().__init__(buffer)
        self.label = label

    def read(self, offset: int, into: Buffer) -> Steps[None]:
        target = octets(into)
        half = len(target) // 2 if len(target) > _WORD else 0
        if half:
            yield from super().read(offset, target[:half])
        yield from super().read(offset + half, target[half:])

    def write(self, offset: int, data: Buffer) -> Steps[None]:
        source = octets(data)
        half = len(source) // 2 if len(source) > _WORD else 0
        if half:
            yield from super().write(offset, source[:half])
        yield from super().write(offset + half, source[half:])

    def read_rows(self, offset: int, rows: Rows, into: NDArray[Any]) -> Steps[None]:
        for i, row in enumerate(rows.tolist()):
            yield from self.read(offset + row * into.strides[0], into[i])

    def write_rows(self, offset: int, rows: Rows, data: NDArray[Any]) -> Steps[None]:
        for i, row in enumerate(rows.tolist()):
            yield from self.write(offset + row * data.strides[0], data[i])

    def add_each(self, offsets: Offsets, value: int) -> Steps[None]:
        for offset in offsets.tolist():
            yield from self.add(offset, value)


@dataclass
class World:
    """Freshly made processes, the memory they share, and a check of their results."""

    memories: Sequence[bytearray]
    processes: Sequence[Steps[Any]]
    check: Callable[[list[Any]], None]


def explore(make: Callable[[], World]) -> int:
    """Search every interleaving of the worlds that `make` builds; returns the number of states. Raises Violation."""
    parents: dict[Hashable, list[Hashable]] = defaultdict(list)
    states: set[Hashable] = set()
    ends: set[Hashable] = set()
    frontier: list[tuple[Hashable, tuple[int, ...]]] = [(None, ())]
    while frontier:
        parent, schedule = frontier.pop()
        run = _Run(make(), schedule)
        while True:
            state = run.state()
            parents[state].append(parent)
            if state in states:
                break
            states.add(state)
            runnable = run.runnable()
            if not runnable:
                run.check()
                ends.add(state)
                break
            frontier += [(state, (*run.schedule, other)) for other in runnable[1:]]
            parent = state
            run.step(runnable[0])
    stuck = states - _reaching(ends, parents)
    if stuck:
        raise Violation(f"from {len(stuck)} of {len(states)} states no schedule reaches the end")
    return len(states)


def _reaching(ends: set[Hashable], parents: dict[Hashable, list[Hashable]]) -> set[Hashable]:
    found, frontier = set(ends), list(ends)
    while frontier:
        new = [parent for parent in parents[frontier.pop()] if parent not in found]
        found.update(new)
        frontier += new
    return found


class _Run:
    """One world, driven along a schedule."""

    def __init__(self, world: World, schedule: Sequence[int]) -> None:
        self._world = world
        self._results: dict[int, Any] = {}
        self.schedule: tuple[int, ...] = ()
        for process in schedule:
            self.step(process)

    def runnable(self) -> list[int]:
        return [i for i in range(len(self._world.processes)) if i not in self._results]

    def step(self, process: int) -> None:
        self.schedule += (process,)
        try:
            next(self._world.processes[process])
        except StopIteration as stop:
            self._results[process] = stop.value
        except Exception as error:
            raise Violation(f"schedule {self.schedule}: {error!r}") from error

    def check(self) -> None:
        try:
            self._world.check([self._results[i] for i in range(len(self._results))])
        except AssertionError as error:
            raise Violation(f"schedule {self.schedule}: {error}") from error

    def state(self) -> Hashable:
        return hash(
            (
                tuple(bytes(memory) for memory in self._world.memories),
                tuple(_position(process) for process in self._world.processes),
                _frozen(self._results),
            )
        )


def _position(process: Any) -> Hashable:
    frames = []
    while isinstance(process, Generator):
        if frame := getattr(process, "gi_frame", None):
            frames.append((frame.f_code.co_qualname, frame.f_lasti, _frozen(frame.f_locals)))
        process = getattr(process, "gi_yieldfrom", None)
    return tuple(frames)


def _frozen(value: Any) -> Hashable:
    if value is None or isinstance(value, int | float | str | bytes):
        return value
    match value:
        case ExploredMemory():
            return value.label
        case np.ndarray():
            return value.shape, value.tobytes()
        case memoryview() | bytearray():
            return bytes(value)
        case slice() | range():
            return value.start, value.stop
        case Read():
            return value.offset, _frozen(value.into)
        case Store():
            return value.offset, value.value
        case tuple() | list():
            return tuple(_frozen(item) for item in value)
        case dict():
            return tuple((str(key), _frozen(item)) for key, item in value.items())
        case (
            Ring()
            | Reference()
            | Push()
            | Pushed()
            | AllToAll()
            | Route()
            | Dispatched()
            | Attention()
            | Expert()
            | Sent()
            | Arrived()
        ):
            return _frozen(vars(value))
        case (
            Layout()
            | np.dtype()
            | GroupMap()
            | RingMap()
            | A2EMap()
            | Plan()
            | Traffic()
            | Batch()
            | FunctionType()
            | type()
        ):
            return ()  # never changes
    raise TypeError(f"a {type(value).__name__} is held across a step: say here what of it is state")


def mutant(function: Callable[..., Any], old: str, new: str) -> Any:
    """`function` with one piece of its text replaced: a bug that the explorer must find."""
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{old!r} must stand once in {function.__qualname__}"
    names: dict[str, Any] = {}
    exec(source.replace(old, new), function.__globals__, names)
    return names[function.__name__]
