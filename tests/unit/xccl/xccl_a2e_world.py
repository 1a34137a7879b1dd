"""Attention dies and expert dies whose experts are known, and what must come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xccl import AttentionGroup, ExpertGroup
from xccl.a2e_attention import Attention, Sent
from xccl.a2e_expert import Arrived, Expert
from xccl.a2e_layout import A2EMap
from xccl.a2e_plan import Plan
from xccl.layout import Layout
from xccl.memory import MappedMemory
from xccl.steps import Steps


@dataclass
class Batch:
    """One micro-batch of one attention die: x f32[T, H], experts int32[T, K], weights f32[T, K]."""

    x: NDArray[np.float32]
    experts: NDArray[np.int32]
    weights: NDArray[np.float32]

    def expected(self) -> NDArray[np.float32]:
        """What comes out of `experts_work`, summed in float32 and in the order of k."""
        each = np.stack([work(self.x, self.experts[:, k]) for k in range(self.experts.shape[1])], axis=1)
        total: NDArray[np.float32] = (each * self.weights[:, :, np.newaxis]).sum(axis=1)
        return total


def work(tokens: NDArray[np.float32], experts: NDArray[np.int32]) -> NDArray[np.float32]:
    """What the experts do to their rows: each something else."""
    return tokens * (experts[:, np.newaxis] + 1).astype(np.float32)


def random_batch(rng: np.random.Generator, tokens: int, hidden: int, top_k: int, experts: int) -> Batch:
    """Experts of a token may be the same."""
    x = rng.standard_normal((tokens, hidden)).astype(np.float32)
    ids = rng.integers(0, experts, (tokens, top_k), np.int32)
    return Batch(x, ids, rng.random((tokens, top_k), np.float32))


def dies(plan: Plan, layout: Layout) -> list[Attention | Expert]:
    """All dies of a plan, over fresh memory."""
    return connect(plan, layout, [MappedMemory(bytearray(A2EMap(layout, plan).total)) for _ in range(plan.dies)])


def connect(plan: Plan, layout: Layout, memories: Sequence[MappedMemory]) -> list[Attention | Expert]:
    """All dies of a plan; each reaches its neighbours' memory and no other."""
    made: list[Attention | Expert] = []
    for rank in range(plan.dies):
        reach = {each: memories[each] for each in (rank, *plan.neighbours(rank))}
        kind = Attention if rank < plan.attention else Expert
        made.append(kind(plan, rank, reach, layout, lambda: None))
    return made


def attend(
    die: Attention | AttentionGroup, batches: list[Batch], owner: NDArray[np.int32], ahead: int = 2
) -> Steps[list[NDArray[np.float32]]]:
    """All micro-batches of an attention die, `ahead` at a time."""
    results: list[NDArray[np.float32]] = []
    sent: list[Sent] = []
    while len(results) < len(batches):
        if len(sent) < len(batches) and len(sent) - len(results) < ahead:
            batch = batches[len(sent)]
            sent.append((yield from die.a2e(batch.x, batch.experts, owner)))
        else:
            number = len(results)
            results.append((yield from die.e2a(sent[number], batches[number].weights)))
    return results


def compute(die: Expert | ExpertGroup, events: int) -> Steps[list[Arrived]]:
    """An expert die's part, one micro-batch after the other."""
    seen = []
    for _ in range(events):
        arrived = yield from die.a2e()
        yield from die.e2a(arrived, work(arrived.tokens, arrived.experts))
        seen.append(arrived)
    return seen
