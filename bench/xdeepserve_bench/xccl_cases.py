"""What is measured: the code that every rank of a case runs, for XCCL and for its peers.

A case opens what a rank needs, and gives the function that measures one thing so often; what the first WARM_UP times
take is not told.

p2p       ping-pong; half a round trip is one way
moe       dispatch, experts that double, combine, for 128 tokens a rank, top-8 of 256
barrier   a vote of all ranks
overlap   a GEMM alone and while a message, posted before it, is on its way; both in turn
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from xccl import Channel, CompletionQueue, Group, Layout, run
from xccl.atomics import NATIVE, gathered_sum
from xccl.routing import Floats, Route, route, weighted_sum
from xdeepserve_bench.xccl_links import LINKS, TIMEOUT, Bytes, Link, endpoint

WARM_UP = 2
TOKENS, TOP_K, EXPERTS = 128, 8, 256
GEMM, GEMM_MESSAGE = 256, 1 << 20  # shorter than a time slice, so that most run through on a busy machine too

Times: TypeAlias = dict[str, list[float]]
"""Seconds, by what was measured."""

Measuring: TypeAlias = Callable[[str, int], Times]
Layers: TypeAlias = Callable[[int], list[float]]
"""So many MoE layers, one after the other: seconds of each."""


@dataclass(frozen=True)
class Rank:
    """One process of a case: which library, where its ranks meet, which rank of how many."""

    library: str
    directory: Path
    number: int
    ranks: int


@dataclass(frozen=True)
class Batch:
    """A rank's tokens and where they go: f32[T, H], int32[T, K], int32[E], f32[T, K]."""

    x: Floats
    ids: NDArray[np.int32]
    owner: NDArray[np.int32]
    weights: Floats


@contextmanager
def p2p(rank: Rank) -> Iterator[Measuring]:
    """What: a number of bytes."""
    buffers: dict[str, tuple[Bytes, Bytes]] = {}
    with LINKS[rank.library](rank.directory, rank.number) as link:

        def measure(size: str, count: int) -> Times:
            if size not in buffers:
                buffers[size] = link.buffer(int(size)), link.buffer(int(size))
            data, into = buffers[size]
            return {size: [_ping_pong(link, data, into, rank.number) for _ in range(WARM_UP + count)][WARM_UP:]}

        yield measure


def _ping_pong(link: Link, data: Bytes, into: Bytes, rank: int) -> float:
    began = time.perf_counter()
    if rank == 0:
        link.send(data)
        link.receive(into)
    else:
        link.receive(into)
        link.send(data)
    return (time.perf_counter() - began) / 2


@contextmanager
def moe(rank: Rank) -> Iterator[Measuring]:
    """What: a hidden size."""
    opened: dict[str, Layers] = {}
    with ExitStack() as stack:

        def measure(hidden: str, count: int) -> Times:
            if hidden not in opened:
                batch = _batch(rank, int(hidden))
                layers = _mpi_layers(batch) if rank.library == "mpi" else _xccl_layers(rank, batch)
                opened[hidden] = stack.enter_context(layers)
            return {hidden: opened[hidden](count)}

        yield measure


def _batch(rank: Rank, hidden: int) -> Batch:
    rng = np.random.default_rng(rank.number)
    return Batch(
        x=rng.standard_normal((TOKENS, hidden)).astype(np.float32),
        ids=np.argsort(rng.random((TOKENS, EXPERTS)), axis=1)[:, :TOP_K].astype(np.int32),
        owner=(np.arange(EXPERTS) * rank.ranks // EXPERTS).astype(np.int32),
        weights=np.full((TOKENS, TOP_K), 1 / TOP_K, np.float32),
    )


def _timed(layer: Callable[[], Floats], barrier: Callable[[], object], x: Floats, count: int) -> list[float]:
    times = []
    for _ in range(WARM_UP + count):
        barrier()
        began = time.perf_counter()
        out = layer()
        times.append(time.perf_counter() - began)
        if not np.allclose(out, 2 * x, rtol=1e-5, atol=1e-6):
            raise RuntimeError("a layer has come out wrong")
    return times[WARM_UP:]


@contextmanager
def _xccl_layers(rank: Rank, batch: Batch) -> Iterator[Layers]:
    hidden = batch.x.shape[1]
    layout = Layout(max_peers=rank.ranks, max_tokens=TOKENS, hidden=hidden, top_k=TOP_K)
    with endpoint(rank.directory / str(hidden), rank.number, rank.ranks, layout) as (made, peers):
        group = run(Group.join(made, epoch=1, rank=rank.number, peers=peers), timeout=TIMEOUT)

        def layer() -> Floats:
            arrived = run(group.dispatch(batch.x, batch.ids, batch.owner), timeout=TIMEOUT)
            y = group.outbox(arrived)
            np.multiply(arrived.tokens, np.float32(2), out=y)
            return run(group.combine(y, arrived, batch.weights), timeout=TIMEOUT)

        yield lambda count: _timed(layer, lambda: run(group.vote(0), timeout=TIMEOUT), batch.x, count)


@contextmanager
def _mpi_layers(batch: Batch) -> Iterator[Layers]:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    hidden, pairs = batch.x.shape[1], batch.ids.size
    packed, returned = (np.empty((pairs, hidden), np.float32) for _ in range(2))
    tokens, y = (np.empty((pairs * world.size, hidden), np.float32) for _ in range(2))
    experts = np.empty(pairs * world.size, np.int32)

    def layer() -> Floats:
        sent = route(batch.ids, batch.owner, world.size)
        out = np.array(sent.counts, np.int64)
        arriving = np.empty_like(out)
        world.Alltoall(out, arriving)
        batch.x.take(sent.tokens, axis=0, out=packed, mode="clip")
        world.Alltoallv([sent.experts, out, MPI.INT32_T], [experts, arriving, MPI.INT32_T])
        world.Alltoallv([packed, out * hidden, MPI.FLOAT], [tokens, arriving * hidden, MPI.FLOAT])
        rows = int(arriving.sum())
        np.multiply(tokens[:rows], np.float32(2), out=y[:rows])
        world.Alltoallv([y, arriving * hidden, MPI.FLOAT], [returned, out * hidden, MPI.FLOAT])
        return _summed(returned, sent, batch.weights)

    yield lambda count: _timed(layer, world.Barrier, batch.x, count)


def _summed(rows: Floats, sent: Route, weights: Floats) -> Floats:
    """The weighted sum in the way that XCCL's combine does it, so that the comparison is of the communication."""
    if not NATIVE:
        return weighted_sum(rows, sent.order, weights)
    combined = np.empty((weights.shape[0], rows.shape[1]), np.float32)
    row_bytes = rows.shape[1] * rows.itemsize
    which, offsets = sent.where([offset * row_bytes for offset in sent.offsets], row_bytes)
    gathered_sum((rows.data,), combined, np.zeros_like(which), offsets, weights)
    return combined


@contextmanager
def barrier(rank: Rank) -> Iterator[Measuring]:
    """Votes of all ranks, without a core for each if there are fewer."""
    layout = Layout(max_peers=rank.ranks, max_tokens=1, hidden=1, top_k=1)
    with endpoint(rank.directory, rank.number, rank.ranks, layout) as (made, peers):
        group = run(Group.join(made, epoch=1, rank=rank.number, peers=peers), timeout=TIMEOUT)

        def measure(what: str, count: int) -> Times:
            times = []
            for _ in range(WARM_UP + count):
                began = time.perf_counter()
                run(group.vote(rank.number), timeout=TIMEOUT)
                times.append(time.perf_counter() - began)
            return {what: times[WARM_UP:]}

        yield measure


@contextmanager
def overlap(rank: Rank) -> Iterator[Measuring]:
    """Rank 0 computes and sends, rank 1 receives."""
    layout = Layout(max_peers=2, max_tokens=1, hidden=1, top_k=1)
    events = itertools.count(1)
    with endpoint(rank.directory, rank.number, rank.ranks, layout) as (made, peers):
        channel = run(Channel.connect(made, peers[1 - rank.number]), timeout=TIMEOUT)
        data = made.region(GEMM_MESSAGE).empty(GEMM_MESSAGE)
        a, b = np.random.default_rng(0).random((2, GEMM, GEMM), np.float32)
        product, queue = np.empty_like(a), CompletionQueue()

        def receive(_what: str, count: int) -> Times:
            for _ in range(count):
                channel.receive_now(data, event=next(events), timeout=TIMEOUT)
            return {}

        def alone(_event: int) -> float:
            return _gemm(a, b, product)

        def overlapped(event: int) -> float:
            queue.post(channel.send(data, event=event), event, lane=channel, timeout=TIMEOUT)
            seconds = _gemm(a, b, product)
            [completion] = queue.wait(timeout=TIMEOUT)
            if completion.error is not None:
                raise completion.error
            return seconds

        def compute(_what: str, count: int) -> Times:
            times: Times = {"alone": [], "overlapped": []}
            for event in itertools.islice(events, count):
                # Either goes first in its turn, so that both begin as often on a core that was just given back.
                order = (alone, overlapped) if event % 2 else (overlapped, alone)
                for way in order:
                    times[way.__name__].append(way(event))
            return times

        yield compute if rank.number == 0 else receive


def _gemm(a: Floats, b: Floats, product: Floats) -> float:
    began = time.perf_counter()
    np.matmul(a, b, out=product)
    return time.perf_counter() - began


CASES: dict[str, Callable[[Rank], AbstractContextManager[Measuring]]] = {
    "p2p": p2p,
    "moe": moe,
    "barrier": barrier,
    "overlap": overlap,
}
