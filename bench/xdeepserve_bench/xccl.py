"""``bench xccl``: XCCL against Open MPI, pyzmq, gloo and TCP, every one measured in this run, on the same cores.

The libraries' processes live side by side and take turns every few milliseconds, so that what else the machine does
meets all of them; a figure is the median of all samples, and a ratio that of two medians. A peer that is not installed
(extra ``bench``) is left out.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from xdeepserve_bench.report import Measure, Report
from xdeepserve_bench.xccl_links import installed
from xdeepserve_bench.xccl_ranks import started

PEERS = {"mpi": "Open MPI", "zmq": "pyzmq ipc", "gloo": "gloo", "tcp": "TCP loopback"}
OURS = {"xccl": "XCCL ring", "xccl-zero-copy": "XCCL zero-copy"}
KIB, MIB = 1 << 10, 1 << 20
NAMES = {64: "64 B", 7680: "7.5 KiB", MIB: "1 MiB", 9 * MIB: "9 MiB"}

Samples = dict[tuple[str, str], list[float]]
"""Seconds, by library and what was measured."""


@dataclass(frozen=True)
class Plan:
    """How much is measured: rounds, and how often a turn does each thing.

    On a machine that is so busy that a case takes longer than `seconds`, it ends after a third of its rounds or more.
    """

    rounds: int
    sizes: dict[int, int]
    layers: dict[int, int]
    votes: int
    gemms: int
    seconds: float = 45.0


FULL = Plan(
    rounds=24,
    sizes={64: 300, KIB: 200, 7680: 200, 64 * KIB: 60, MIB: 12, 9 * MIB: 3},
    layers={512: 6, 7168: 2},
    votes=250,
    gemms=60,
)
QUICK = Plan(6, {64: 300, 7680: 200, MIB: 10, 9 * MIB: 2}, {512: 4, 7168: 1}, 100, 40)


def run(*, quick: bool) -> Report:
    """Runs it."""
    plan = QUICK if quick else FULL
    times = _turns("p2p", [*OURS, *filter(installed, PEERS)], 2, plan.sizes, plan)
    report = Report("xccl", [*_judged_p2p(times), *_moe(plan), _barrier(plan), _overlap(plan)])
    report.curves = {
        name: [(size, statistics.median(times[library, str(size)])) for size in plan.sizes if _suits(library, size)]
        for library, name in (OURS | PEERS).items()
        if installed(library)
    }
    return report


def _turns(case: str, libraries: list[str], ranks: int, counts: Mapping[int, int], plan: Plan) -> Samples:
    """Every library does everything in its turn, so often; again in every round."""
    samples: Samples = defaultdict(list)
    until = time.monotonic() + plan.seconds
    with ExitStack() as stack:
        bursts = {library: stack.enter_context(started(case, library, ranks)) for library in libraries}
        for number in range(plan.rounds):
            if number >= plan.rounds / 3 and time.monotonic() > until:
                break
            for what, count in counts.items():
                for library, burst in bursts.items():
                    if _suits(library, what):
                        for name, seconds in burst(str(what), count).items():
                            samples[library, name] += seconds
    return samples


def _suits(library: str, what: int) -> bool:
    """Zero-copy is for what is large enough to be worth a lookup."""
    return library != "xccl-zero-copy" or what >= 64 * KIB


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
        times = _turns("moe", ["xccl", *filter(installed, ["mpi"])], ranks, plan.layers, plan)
        measures += [
            _measure(f"dispatch + combine, {ranks} ranks, hidden {hidden}", times, "xccl", "mpi", str(hidden), 0.8)
            for hidden in plan.layers
        ]
    return measures


def _barrier(plan: Plan) -> Measure:
    [votes] = _turns("barrier", ["xccl"], 4, {1: plan.votes}, plan).values()
    return Measure("barrier, 4 processes", statistics.median(votes) * 1e6, "µs", len(votes), bar=50)


def _overlap(plan: Plan) -> Measure:
    times = _turns("overlap", ["xccl"], 2, {1: plan.gemms}, plan)
    alone, overlapped = (statistics.median(times["xccl", name]) * 1e6 for name in ("alone", "overlapped"))
    name, runs = "GEMM while 1 MiB is sent asynchronously", len(times["xccl", "alone"])
    return Measure(name, overlapped, "µs", runs, "GEMM alone", alone, 1.1)
