"""What prefill and decode engines do differently, as the rest of the engine sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn, Protocol

import numpy as np

from flowserve.engine.sequence import Chosen, Sequence, Stage
from flowserve.model import Experts, IntArray
from flowserve.wire import GenerateRequest
from xccl import Steps


class Refuse(Exception):
    """This request can never be served here; the message says why."""


class NotNow(Exception):
    """This request cannot be taken now; later, or on another engine, it may be."""


@dataclass(frozen=True)
class Advance:
    """What an iteration did for one sequence: ``computed`` more positions have their KV, ``chosen`` follow them.

    ``drafts`` are guesses at what follows those.
    """

    sequence: Sequence
    computed: int
    chosen: tuple[Chosen, ...] = ()
    drafts: tuple[int, ...] = ()

    def commit(self) -> None:
        self.sequence.computed += self.computed
        for each in self.chosen:
            self.sequence.add(each)
        self.sequence.drafts = self.drafts


class Role(Protocol):
    """One engine's part in serving a request."""

    most: int  # sequences an iteration runs at once

    def room(self, request: GenerateRequest) -> int:
        """How many KV positions the request needs. Raises Refuse for one that does not belong here, or NotNow."""
        ...

    def enter(self, sequence: Sequence, /) -> Stage:
        """A sequence has got its blocks: the stage at which it goes on."""
        ...

    def step(self, batch: list[Sequence], experts: Experts) -> Steps[list[Advance]]:
        """One forward pass over ``batch``, which may be empty, changing nothing but uncommitted KV."""
        ...

    def deliver(self, sequence: Sequence) -> None:
        """An iteration of the sequence was committed."""
        ...

    async def settle(self) -> NoReturn:
        """Acts on the completions of transfers as they arrive."""
        ...


def as_array(numbers: list[int]) -> IntArray:
    return np.array(numbers, np.int32)
