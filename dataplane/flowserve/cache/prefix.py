"""Finished prompts' KV, found again by the tokens they begin with.

Prompts are cut into units of `unit` tokens, a whole number of the pool's blocks. A unit's key is the hash of (the key
of the unit before it, its own tokens), so that equal keys mean equal tokens from the first on, at equal positions. The
cache holds one reference to each block of each unit; sequences that share a prefix hold further ones, and never write
into them, since they append behind the last whole unit.

Only committed tokens enter: `insert` takes what a sequence has committed, never what it has merely written, so
drafts that may be rejected stay out. The least recently used units go first, and of a prompt's units the last ones.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np

from flowserve.cache.pool import BlockPool
from flowserve.cache.sequence import SequenceKV

Key = bytes


class PrefixCache:
    """`unit` is in tokens; units of 128 to 512 keep the table small and still find most of what is shared."""

    def __init__(self, pool: BlockPool, unit: int = 128) -> None:
        if unit < 1 or unit % pool.block_size:
            raise ValueError(f"a unit of {unit} tokens is no whole number of blocks of {pool.block_size}")
        self._pool = pool
        self._unit = unit
        self._units: OrderedDict[Key, list[int]] = OrderedDict()  # the least recently used first

    def __len__(self) -> int:
        return len(self._units)

    @property
    def idle_blocks(self) -> int:
        """How many blocks nobody else holds: as good as free."""
        return sum(not self._pool.is_shared(block) for blocks in self._units.values() for block in blocks)

    def attach(self, sequence: SequenceKV, tokens: Sequence[int]) -> int:
        """Gives an empty sequence the longest prefix of `tokens` that is here, and returns its length.

        At least one token is left over: its logits are in no cache.
        """
        if sequence.blocks:
            raise ValueError("a prefix can only be attached to a sequence that holds no blocks")
        found: list[Key] = []
        for key in self._keys(tokens[: len(tokens) - 1]):
            if key not in self._units:
                break
            found.append(key)
        self._touch(found)
        sequence.adopt([block for key in found for block in self._units[key]], len(found) * self._unit)
        return sequence.length

    def insert(self, sequence: SequenceKV, tokens: Sequence[int]) -> None:
        """Remembers the whole units of `tokens`, which `sequence` has committed from its first position on."""
        if len(tokens) > sequence.length:
            raise ValueError(f"{len(tokens)} tokens are more than the {sequence.length} of the sequence")
        per_unit = self._unit // self._pool.block_size
        keys = list(self._keys(tokens))
        for index, key in enumerate(keys):
            if key not in self._units:
                blocks = sequence.blocks[index * per_unit : (index + 1) * per_unit]
                self._pool.share(blocks)
                self._units[key] = blocks
        self._touch(keys)

    def make_room(self, blocks: int) -> bool:
        """Forgets as much as needed, and as little, for `blocks` to be free in the pool. False if that cannot be.

        Units that a sequence holds are kept: forgetting them frees nothing. Whoever holds a unit holds those before it.
        """
        for key in list(self._units):
            if self._pool.free_blocks >= blocks:
                break
            if not any(map(self._pool.is_shared, self._units[key])):
                self._pool.release(self._units.pop(key))
        return self._pool.free_blocks >= blocks

    def clear(self) -> None:
        """Forgets everything."""
        for blocks in self._units.values():
            self._pool.release(blocks)
        self._units.clear()

    def _keys(self, tokens: Sequence[int]) -> Iterator[Key]:
        key = b""
        for first in range(0, len(tokens) - self._unit + 1, self._unit):
            content = np.array(tokens[first : first + self._unit], "<i4").tobytes()
            key = hashlib.blake2b(key + content, digest_size=16).digest()
            yield key

    def _touch(self, keys: Sequence[Key]) -> None:
        """Makes keys the most recently used; a prompt's first unit most of all, since the others need it."""
        for key in reversed(keys):
            self._units.move_to_end(key)
