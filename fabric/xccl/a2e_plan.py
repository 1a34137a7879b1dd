"""Who tells whom in A2E and E2A, between attention dies and expert dies of unequal number: pure arithmetic.

Ranks 0…A-1 are attention dies, ranks A…A+E-1 expert dies (expert die j is rank A+j).

direct        every attention die writes a metadata field to every expert die: A × E writes, and each expert die
              polls A fields. The scalar units of a die's few communicating AIVs cannot keep up with that.
trampolines   as many expert dies as there are attention dies come first: attention dies write to these alone, and
              each of the other expert dies is owned by one of them, which forwards to it with one field. That is
              A × A + (E - A) writes, and an owned die polls one field. E2A takes the same ways back.

The paper (xDeepServe, "A2E/E2A", figure 8) leaves open how a trampoline forwards. This reading is the one that
lowers the number of writes: 160 + 288 dies write 25 728 fields, not 46 080.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Plan:
    """`trampolines` expert dies, the first ones, hear attention dies; where it is all of them, nothing is forwarded.

    Raises ValueError unless 1 <= trampolines <= experts and attention >= 1.
    """

    attention: int
    experts: int
    trampolines: int

    def __post_init__(self) -> None:
        if self.attention < 1 or not 1 <= self.trampolines <= self.experts:
            raise ValueError(
                f"{self.attention} attention dies and {self.trampolines} of {self.experts} expert dies as trampolines: "
                "each kind needs one die, and trampolines are expert dies"
            )

    @classmethod
    def direct(cls, attention: int, experts: int) -> Self:
        """Every attention die tells every expert die."""
        return cls(attention, experts, experts)

    @classmethod
    def with_trampolines(cls, attention: int, experts: int) -> Self:
        """As many trampolines as attention dies, as far as there are expert dies."""
        return cls(attention, experts, min(attention, experts))

    @property
    def dies(self) -> int:
        return self.attention + self.experts

    def rank(self, expert_die: int) -> int:
        return self.attention + expert_die

    def trampoline_of(self, expert_die: int) -> int:
        """The expert die that hears attention dies on behalf of this one; itself if it does so."""
        return expert_die if expert_die < self.trampolines else (expert_die - self.trampolines) % self.trampolines

    def owned(self, trampoline: int) -> range:
        """The expert dies that `trampoline` forwards to."""
        return range(self.trampolines + trampoline, self.experts, self.trampolines)

    def neighbours(self, rank: int) -> list[int]:
        """The ranks whose memory `rank` reaches, without itself."""
        if rank < self.attention:
            return [self.rank(die) for die in range(self.trampolines)]
        die = rank - self.attention
        if die >= self.trampolines:
            return [self.rank(self.trampoline_of(die))]
        return [*range(self.attention), *(self.rank(owned) for owned in self.owned(die))]

    @cached_property
    def order(self) -> NDArray[np.int32]:
        """int32[experts]: expert dies so that what goes to one trampoline lies together, its own rows first."""
        dies = [die for t in range(self.trampolines) for die in (t, *self.owned(t))]
        return np.array(dies, np.int32)

    @cached_property
    def place(self) -> NDArray[np.int32]:
        """int32[experts]: where each expert die stands in `order`."""
        return np.argsort(self.order).astype(np.int32)

    @cached_property
    def first_places(self) -> NDArray[np.int64]:
        """int64[trampolines]: where each trampoline's dies begin in `order`."""
        sizes = np.array([1 + len(self.owned(t)) for t in range(self.trampolines)], np.int64)
        return np.cumsum(sizes) - sizes
