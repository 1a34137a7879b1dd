"""Which sequences run: a waiting queue and a batch, bounded by KV blocks and places. No I/O, no clock.

    submit -> waiting -> admit -> batch -> release

Invariants:
* a sequence is in the queue or in the batch, never in both, and in neither once it is released or cancelled;
* one in the batch holds blocks for its whole life (``room``), so that no iteration can run out of them;
* the queue is first come, first served: a large request is not overtaken for ever by small ones;
* what a prefix cache has of a prompt counts as computed from the start; what it holds for nobody makes way for those
  who wait, so that a cache never keeps a sequence out;
* between ``begin`` and ``end`` the sequences of an iteration keep their blocks, even if they are cancelled.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from flowserve.cache import BlockPool, PrefixCache
from flowserve.engine.sequence import Sequence, Stage


class QueueFull(Exception):
    """No more sequences can wait here now."""


class TooLarge(Exception):
    """The sequence would not fit even into an empty engine."""


class Scheduler:
    """``max_batch``: sequences that hold blocks at once; ``max_waiting``: sequences in the queue."""

    def __init__(self, pool: BlockPool, max_batch: int, max_waiting: int, cache: PrefixCache | None = None) -> None:
        self.pool = pool
        self._cache = cache
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._waiting: OrderedDict[int, Sequence] = OrderedDict()
        self._batch: dict[int, Sequence] = {}
        self._in_flight: list[Sequence] = []

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._batch)

    @property
    def usage(self) -> float:
        """The share of the blocks that cannot be had now, 0 to 1."""
        idle = self._cache.idle_blocks if self._cache else 0
        return self.pool.usage - idle / self.pool.num_blocks

    @property
    def has_work(self) -> bool:
        """Whether an iteration would have something to compute."""
        return any(sequence.stage is Stage.RUNNING for sequence in self._batch.values())

    def find(self, key: int) -> Sequence | None:
        """The sequence of the batch with this key."""
        return self._batch.get(key)

    def submit(self, sequence: Sequence) -> None:
        """Puts a sequence into the queue. Raises QueueFull or TooLarge."""
        if self.pool.blocks_for(sequence.room) > self.pool.num_blocks:
            raise TooLarge(
                f"{sequence.room} tokens need {self.pool.blocks_for(sequence.room)} KV blocks of "
                f"{self.pool.block_size}, the engine has {self.pool.num_blocks}"
            )
        if len(self._waiting) >= self._max_waiting:
            raise QueueFull(f"{len(self._waiting)} requests are waiting already")
        self._waiting[sequence.key] = sequence

    def admit(self, into: Callable[[Sequence], Stage]) -> list[Sequence]:
        """Moves as many sequences as fit from the queue into the batch, at the stage that ``into`` says."""
        admitted: list[Sequence] = []
        while self._waiting and len(self._batch) < self._max_batch:
            sequence = next(iter(self._waiting.values()))
            if not self._take_blocks(sequence):
                break
            del self._waiting[sequence.key]
            sequence.stage = into(sequence)
            self._batch[sequence.key] = sequence
            admitted.append(sequence)
        return admitted

    def _take_blocks(self, sequence: Sequence) -> bool:
        """Gives a sequence all blocks of its room, those first that the cache has of its prompt; or none."""
        if self._cache is not None:
            sequence.computed = sequence.cached = self._cache.attach(sequence.kv, sequence.tokens)
            missing = self.pool.blocks_for(sequence.room) - len(sequence.kv.blocks)
            if not self._cache.make_room(missing):
                sequence.kv.free()
                return False
        elif not self.pool.can_fit(sequence.room):
            return False
        sequence.kv.reserve(sequence.room)
        return True

    def cancel(self, key: int) -> None:
        """Takes a sequence out: now, or at the end of the iteration it is in. Unknown keys are ignored."""
        if self._waiting.pop(key, None) is None and (sequence := self._batch.get(key)) is not None:
            sequence.cancelled = True
            if sequence not in self._in_flight:
                self.release(sequence)

    def begin(self, most: int) -> list[Sequence]:
        """The sequences of the next iteration, in order of admission, at most ``most``."""
        running = [sequence for sequence in self._batch.values() if sequence.stage is Stage.RUNNING]
        self._in_flight = running[:most]
        return self._in_flight

    def end(self) -> list[Sequence]:
        """Ends the iteration: takes out those cancelled meanwhile, undoes what was not committed, returns the rest."""
        sequences, self._in_flight = self._in_flight, []
        for sequence in sequences:
            if sequence.cancelled:
                self.release(sequence)
            else:
                sequence.rollback()
        return [sequence for sequence in sequences if not sequence.cancelled]

    def release(self, sequence: Sequence) -> None:
        """Takes a sequence out of the batch and gives its blocks back."""
        self.detach(sequence).kv.free()

    def detach(self, sequence: Sequence) -> Sequence:
        """Takes a sequence out of the batch; whoever asked for it frees its blocks."""
        return self._batch.pop(sequence.key)
