"""Explores every interleaving of a few protocols that share memory.

A world is a set of processes (generators) over shared bytearrays. Its memories yield before every word and in the
middle of every copy, so that a step is one access and whatever its process does before the next. The search runs a
world along one schedule, leaves the other choices of each new state for later, and replays them from the start; a state
met before is not searched again. A state is the shared bytes, and for each process the lines it stands at and the
values it holds there.

Not every order makes a difference. An access to words that no other process writes (nor reads, if it is a write) can
be made at once: whatever the others do comes out the same before and after it (a persistent set of one, in the terms of
partial-order reduction). Which words these are is learnt: the search starts with what earlier ones have seen, notes
what is accessed, and is repeated until it sees nothing new. A load that is repeated is a wait: it is never made at
once, and while its word stays as it was, somebody else goes on.

A protocol is right when every schedule ends, ends right, and can always still end (no deadlock, no livelock).
"""

from __future__ import annotations

import inspect
import textwrap
from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, ClassVar, NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from xccl_a2e_world import Batch

from xccl.a2e_attention import Attention, Sent
from xccl.a2e_die import Traffic
from xccl.a2e_expert import Arrived, Expert
from xccl.a2e_layout import A2EMap, Way
from xccl.a2e_plan import Plan
from xccl.alltoall import AllToAll, Dispatched
from xccl.atomics import Offsets
from xccl.layout import GroupMap, Kind, Layout, RingMap
from xccl.memory import Buffer, MappedMemory, Rows, octets
from xccl.operations import Load, Read, Store
from xccl.paths import Path
from xccl.push import Push, Pushed
from xccl.region import Reference
from xccl.ring import Ring
from xccl.routing import Route
from xccl.steps import Steps

_WORD = 8  # bytes that memory moves at once


class Violation(AssertionError):
    """Some interleaving goes wrong; the message holds its schedule."""


class Access(NamedTuple):
    """The words `first` to `last` of a buffer, read or written (an addition does both)."""

    buffer: int
    first: int
    last: int
    writes: bool


class ExploredMemory(MappedMemory):
    """Memory in which others may run before every word access and in the middle of every longer copy."""

    before_access = (True,)
    announced: ClassVar[Access | None] = None
    """What the process that has just yielded will access."""
    process: ClassVar[int] = 0
    """Which one runs."""

    def __init__(self, buffer: bytearray, label: str) -> None:
        super().__init__(buffer)
        self.label = label

    def load(self, offset: int) -> Steps[int]:
        self._announce(offset, _WORD, False)
        return (yield from super().load(offset))

    def store(self, offset: int, value: int) -> Steps[None]:
        self._announce(offset, _WORD, True)
        yield from super().store(offset, value)

    def add(self, offset: int, value: int) -> Steps[int]:
        self._announce(offset, _WORD, True)
        return (yield from super().add(offset, value))

    def read(self, offset: int, into: Buffer) -> Steps[None]:
        for at, part in halves(offset, into):
            self._announce(at, len(part), False)
            yield from super().read(at, part)

    def write(self, offset: int, data: Buffer) -> Steps[None]:
        for at, part in halves(offset, data):
            self._announce(at, len(part), True)
            yield from super().write(at, part)

    def read_rows(self, offset: int, rows: Rows, into: NDArray[Any]) -> Steps[None]:
        for i, row in enumerate(rows.tolist()):
            yield from self.read(offset + row * into.strides[0], into[i])

    def write_rows(self, offset: int, rows: Rows, data: NDArray[Any]) -> Steps[None]:
        for i, row in enumerate(rows.tolist()):
            yield from self.write(offset + row * data.strides[0], data[i])

    def add_each(self, offsets: Offsets, value: int) -> Steps[None]:
        for offset in offsets.tolist():
            yield from self.add(offset, value)

    def made(self, offset: int, nbytes: int, *, writes: bool) -> Steps[None]:
        """Announce an access, and let others run before it."""
        self._announce(offset, nbytes, writes)
        yield from self.before_access

    def _announce(self, offset: int, nbytes: int, writes: bool) -> None:
        last = (offset + max(nbytes, 1) - 1) // _WORD
        ExploredMemory.announced = Access(id(self.buffer), offset // _WORD, last, writes)


def halves(offset: int, buffer: Buffer) -> list[tuple[int, memoryview]]:
    """The parts in which a copy is made, each with its offset."""
    whole = octets(buffer)
    half = len(whole) // 2
    return [(offset, whole)] if len(whole) <= _WORD else [(offset, whole[:half]), (offset + half, whole[half:])]


@dataclass
class World:
    """Freshly made processes, the memory they share, and a check of their results."""

    memories: Sequence[bytearray]
    processes: Sequence[Steps[Any]]
    check: Callable[[list[Any]], None]
    hidden: Callable[[], Hashable] = tuple
    """State that lies neither in memory nor in the processes."""


class Footprints:
    """Which processes read and write which words, as bit masks."""

    def __init__(self, known: Mapping[tuple[int, int], tuple[int, int]] = {}, *, usable: bool) -> None:
        self.words = dict(known)
        self._usable = usable

    def note(self, process: int, memory: int, access: Access) -> None:
        mine = 1 << process
        for word in range(access.first, access.last + 1):
            readers, writers = self.words.get((memory, word), (0, 0))
            now = (readers, writers | mine) if access.writes else (readers | mine, writers)
            if now != (readers, writers):
                self.words[memory, word] = now

    def private(self, process: int, memory: int, access: Access) -> bool:
        """Whether no other process can notice the access, or make a difference to it."""
        if not self._usable:
            return False
        for word in range(access.first, access.last + 1):
            readers, writers = self.words.get((memory, word), (0, 0))
            if (writers | (readers if access.writes else 0)) & ~(1 << process):
                return False
        return True


def explore(make: Callable[[], World], *, at_once: bool = True) -> int:
    """Search every interleaving of the worlds that `make` builds; returns the number of states. Raises Violation.

    `at_once`: whether accesses whose order makes no difference are made at once.
    """
    known = Footprints(usable=at_once)
    # What was never written is no state.
    with patch.object(np, "empty", np.zeros), patch.object(np, "empty_like", np.zeros_like):
        while True:
            seen = Footprints(known.words, usable=at_once)
            states, stuck = _search(make, known, seen)
            if seen.words == known.words:
                break
            known = seen
    if stuck:
        raise Violation(f"from {stuck} of {states} states no schedule reaches the end")
    return states


def _search(make: Callable[[], World], known: Footprints, seen: Footprints) -> tuple[int, int]:
    """The number of states at which processes have a choice, and of those from which there is no end."""
    parents: dict[Hashable, list[Hashable]] = defaultdict(list)
    states: set[Hashable] = set()
    ends: set[Hashable] = set()
    frontier: list[tuple[Hashable, tuple[int, ...]]] = [(None, ())]
    while frontier:
        parent, schedule = frontier.pop()
        run = _Run(make(), schedule, known, seen)
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
            run.advance(runnable[0])
    return len(states), len(states - _reaching(ends, parents))


def _reaching(ends: set[Hashable], parents: dict[Hashable, list[Hashable]]) -> set[Hashable]:
    found, frontier = set(ends), list(ends)
    while frontier:
        new = [parent for parent in parents[frontier.pop()] if parent not in found]
        found.update(new)
        frontier += new
    return found


class _Run:
    """One world, driven along a schedule: which process goes on wherever there is a choice."""

    def __init__(self, world: World, schedule: Sequence[int], known: Footprints, seen: Footprints) -> None:
        self._world = world
        self._known = known
        self._seen = seen
        self._memory = {id(memory): number for number, memory in enumerate(world.memories)}
        self._next: dict[int, Access] = {}
        self._before: dict[int, Access | None] = {}
        self._looked_at: dict[int, bytes] = {}
        self._results: dict[int, Any] = {}
        self.schedule: tuple[int, ...] = ()
        for process in range(len(world.processes)):
            self._go(process)
        for process in schedule:
            self.advance(process)

    def runnable(self) -> list[int]:
        """Who can go on; only if nobody can, those who would look again at what has not changed."""
        return [process for process in self._next if not self._in_vain(process)] or list(self._next)

    def advance(self, process: int) -> None:
        self.schedule += (process,)
        self._go(process)

    def _go(self, process: int) -> None:
        """Let `process` make its access, and those behind it whose order makes no difference."""
        self._step(process)
        while process in self._next and self._alone(process):
            self._step(process)

    def _alone(self, process: int) -> bool:
        access = self._next[process]
        waits = access == self._before[process]
        return not waits and self._known.private(process, self._memory[access.buffer], access)

    def _in_vain(self, process: int) -> bool:
        access = self._next[process]
        return access == self._before[process] and self._words(access) == self._looked_at[process]

    def _words(self, access: Access) -> bytes:
        memory = self._world.memories[self._memory[access.buffer]]
        return bytes(memory[access.first * _WORD : (access.last + 1) * _WORD])

    def _step(self, process: int) -> None:
        """Let `process` make its access and go on to its next."""
        made = self._before[process] = self._next.pop(process, None)
        if made is not None:
            self._looked_at[process] = self._words(made)
            self._seen.note(process, self._memory[made.buffer], made)
        ExploredMemory.announced = None
        ExploredMemory.process = process
        try:
            while ExploredMemory.announced is None:
                next(self._world.processes[process])
        except StopIteration as stop:
            self._results[process] = stop.value
        except Exception as error:
            raise Violation(f"schedule {self.schedule}: {error!r}") from error
        else:
            self._next[process] = ExploredMemory.announced

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
                _frozen(self._results, {}),
                self._world.hidden(),
            )
        )


def _position(process: Any) -> Hashable:
    frames = []
    looked_at: dict[int, Hashable] = {}
    while isinstance(process, Generator):
        if frame := getattr(process, "gi_frame", None):
            variables = frame.f_locals  # in the order in which they were bound when this was first looked at
            held = tuple((name, _frozen(variables[name], looked_at)) for name in sorted(variables))
            frames.append((frame.f_code.co_qualname, frame.f_lasti, held))
        process = getattr(process, "gi_yieldfrom", None)
    return tuple(frames)


_PLAIN = {type(None), bool, int, float, str, bytes, Kind, Way, Path}
_OF_PARTS = {Ring, Reference, Push, Pushed, AllToAll, Route, Dispatched, Attention, Expert, Sent, Arrived}
_NEVER_CHANGE = {Layout, GroupMap, RingMap, A2EMap, Plan, Traffic, Batch, FunctionType, type}


def _frozen(value: Any, looked_at: dict[int, Hashable]) -> Hashable:
    """What of a value is state; `looked_at`: what is known of objects that several frames hold."""
    kind = type(value)
    if kind in _PLAIN:
        return value  # type: ignore[no-any-return]
    if kind in _NEVER_CHANGE or isinstance(value, np.dtype):
        return ()
    if kind in _OF_PARTS:
        if id(value) not in looked_at:
            looked_at[id(value)] = tuple(_frozen(part, looked_at) for part in vars(value).values())
        return looked_at[id(value)]
    if kind is tuple or kind is list:
        return tuple(_frozen(item, looked_at) for item in value)
    if kind is dict:
        return tuple((str(key), _frozen(item, looked_at)) for key, item in value.items())
    match value:
        case ExploredMemory():
            return value.label
        case Generator():
            return _position(value)
        case np.ndarray():
            return value.shape, value.tobytes()
        case memoryview() | bytearray():
            return bytes(value)
        case slice() | range():
            return value.start, value.stop
        case Read():
            return value.offset, _frozen(value.into, looked_at)
        case Store():
            return value.offset, value.value
        case Load():
            return value.offset
    raise TypeError(f"a {kind.__name__} is held across a step: say here what of it is state")


def mutant(function: Callable[..., Any], old: str, new: str) -> Any:
    """`function` with one piece of its text replaced: a bug that the explorer must find."""
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{old!r} must stand once in {function.__qualname__}"
    names: dict[str, Any] = {}
    exec(source.replace(old, new), function.__globals__, names)
    return names[function.__name__]
