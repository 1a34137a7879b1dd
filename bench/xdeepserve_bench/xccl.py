"""``bench xccl``: XCCL against Open MPI, pyzmq, gloo and TCP, every one measured in this run, on the same cores.

Rounds go around all libraries, so that what else the machine does meets all of them; a figure is the median of all
rounds' samples, and a ratio that of two medians. A peer that is not installed (extra ``bench``) is left out.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass

from xdeepserve_bench.report import Measure, Report
from xdeepserve_bench.xccl_links import installed
from xdeepserve_bench.xccl_ranks import measure

PEERS = {"mpi": "Open MPI", "zmq": "pyzmq ipc", "gloo": "gloo", "tcp": "TCP loopback"}
OURS = {"xccl": "XCCL ring", "xccl-zero-copy": "XCCL zero-copy"}
KIB, MIB = 1 << 10, 1 << 20
NAMES = {64: "64 B", 7680: "7.5 KiB", MIB: "1 MiB", 9 * MIB: "9 MiB"}

Samples = dict[tuple[str, str], list[float]]
"""Seconds, by library and what was measured."""


@dataclass(frozen=True)
class Plan:
    """How much is measured: rounds, and how often a round does each thing."""

    rounds: int
    sizes: dict[int, int]
    layers: dict[int, int]
    votes: int
    gemms: int


FULL = Plan(
    rounds=3,
    sizes={64: 4000, KIB: 2000, 7680: 2000, 64 * KIB: 500, MIB: 100, 9 * MIB: 15},
    layers={512: 60, 7168: 10},
    votes=2000,
    gemms=40,
)
QUICK = Plan(1, {64: 2000, 7680: 1000, MIB: 50, 9 * MIB: 8}, {512: 20, 7168: 5}, 500, 20)


def run(*, quick: bool) -> Report:
    """Runs it."""
    plan = QUICK if quick else FULL
    times = _p2p(plan)
    report = Report("xccl", [*_judged_p2p(times), *_moe(plan), _barrier(plan), _overlap(plan)])
    report.curves = {
        name: [(size, statistics.median(times[library, str(size)])) for size in _sizes(plan, library)]
        for library, name in (OURS | PEERS).items()
        if installed(library)
    }
    return report


def _gather(case: str, libraries: list[str], ranks: int, counts: dict[int, int], rounds: int) -> Samples:
    samples: Samples = defaultdict(list)
    for _ in range(rounds):
        for library in libraries:
            _add(samples, library, measure(case, library, ranks, _named(counts)))
    return samples


def _named(counts: dict[int, int]) -> dict[str, int]:
    return {str(what): count for what, count in counts.items()}


def _add(samples: Samples, library: str, times: dict[str, list[float]]) -> None:
    for name, seconds in times.items():
        samples[library, name] += seconds


def _p2p(plan: Plan) -> Samples:
    samples: Samples = defaultdict(list)
    for _ in range(plan.rounds):
        for library in [*OURS, *filter(installed, PEERS)]:
            _add(samples, library, measure("p2p", library, 2, _named(_sizes(plan, library))))
    return samples


def _sizes(plan: Plan, library: str) -> dict[int, int]:
    """Zero-copy is for what is large enough to be worth a lookup."""
    return {size: count for size, count in plan.sizes.items() if library != "xccl-zero-copy" or size >= 64 * KIB}


def _judged_p2p(times: Samples) -> list[Measure]:
    wanted: list[tuple[str, int, str, float | None]]
    wanted = [("xccl", size, "mpi", bar) for size, bar in ((64, 1.0), (7680, 1.0), (MIB, 2.0))]
    wanted += [("xccl-zero-copy", size, "mpi", 1.0) for size in (MIB, 9 * MIB)]
    wanted += [("xccl", 64, peer, 0.2) for peer in ("zmq", "gloo", "tcp")]
    wanted += [("xccl-zero-copy", size, peer, None) for size in (MIB, 9 * MIB) for peer in ("zmq", "gloo", "tcp")]
    return [
        _measure(f"p2p {NAMES[size]}, one way, {OURS[ours]}", times, ours, peer, str(size), bar)
        for ours, size, peer, bar in wanted
    ]


def _measure(name: str, times: Samples, ours: str, peer: str, what: str, bar: float | None) -> Measure:
    own, theirs = times[ours, what], times.get((peer, what))
    against = statistics.median(theirs) * 1e6 if theirs else None
    return Measure(name, statistics.median(own) * 1e6, "µs", len(own), PEERS[peer], against, bar)


def _moe(plan: Plan) -> list[Measure]:
    measures = []
    for ranks in (2, 4):
        times = _gather("moe", ["xccl", *filter(installed, ["mpi"])], ranks, plan.layers, plan.rounds)
        measures += [
            _measure(f"dispatch + combine, {ranks} ranks, hidden {hidden}", times, "xccl", "mpi", str(hidden), 0.8)
            for hidden in plan.layers
        ]
    return measures


def _barrier(plan: Plan) -> Measure:
    votes = [t for _ in range(plan.rounds) for t in measure("barrier", "xccl", 4, {"vote": plan.votes})["vote"]]
    return Measure("barrier, 4 processes", statistics.median(votes) * 1e6, "µs", len(votes), bar=50)


def _overlap(plan: Plan) -> Measure:
    alone, overlapped = [], []
    for _ in range(plan.rounds):
        times = measure("overlap", "xccl", 2, {"gemm": plan.gemms})
        alone += times["alone"]
        overlapped += times["overlapped"]
    middle = statistics.median(overlapped) * 1e6
    name = "GEMM while 1 MiB is sent asynchronously"
    return Measure(name, middle, "µs", len(alone), "GEMM alone", statistics.median(alone) * 1e6, 1.1)
