"""Memory as weak as a processor may make it: only loads that acquire and stores that release put anything in order.

What a process copies into memory is seen by others no earlier than at its next store or addition; what it copies out
is as it was at its latest load. Nothing else is promised by the interface of `RemoteMemory`, and ARM uses the freedom.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field

from xccl_explorer import ExploredMemory, halves

from xccl.memory import Buffer
from xccl.steps import Steps


@dataclass
class Cores:
    """What each process has written and not shown yet, and what it sees. Without a fence, that stays so."""

    releases: bool = True
    acquires: bool = True
    buffers: list[bytearray] = field(default_factory=list)
    written: dict[int, list[tuple[bytearray, int, bytes]]] = field(default_factory=lambda: defaultdict(list))
    seen: dict[int, list[bytes]] = field(default_factory=dict)

    def release(self) -> None:
        if self.releases:
            for buffer, offset, data in self.written.pop(ExploredMemory.process, []):
                buffer[offset : offset + len(data)] = data

    def acquire(self) -> None:
        if self.acquires:
            self.seen[ExploredMemory.process] = [bytes(buffer) for buffer in self.buffers]

    def hidden(self) -> Hashable:
        """State that is not in memory."""
        late = [[(offset, data) for _, offset, data in self.written[process]] for process in sorted(self.written)]
        return str(late), *(tuple(self.seen[process]) for process in sorted(self.seen))


class WeakMemory(ExploredMemory):
    """A buffer as the processes of some cores see it."""

    def __init__(self, buffer: bytearray, label: str, cores: Cores) -> None:
        super().__init__(buffer, label)
        self._cores = cores
        self._shared = buffer
        if not any(buffer is known for known in cores.buffers):
            cores.buffers.append(buffer)

    def load(self, offset: int) -> Steps[int]:
        word = yield from super().load(offset)
        self._cores.acquire()
        return word

    def store(self, offset: int, value: int) -> Steps[None]:
        yield from self.made(offset, 8, writes=True)
        self._cores.release()
        self.poke(offset, value)

    def read(self, offset: int, into: Buffer) -> Steps[None]:
        number = next(i for i, buffer in enumerate(self._cores.buffers) if buffer is self._shared)
        for at, part in halves(offset, into):
            yield from self.made(at, len(part), writes=False)
            seen = self._cores.seen.get(ExploredMemory.process)
            part[:] = seen[number][at : at + len(part)] if seen else bytes(len(part))

    def write(self, offset: int, data: Buffer) -> Steps[None]:
        for at, part in halves(offset, data):
            yield from self.made(at, len(part), writes=True)
            self._cores.written[ExploredMemory.process].append((self._shared, at, bytes(part)))
