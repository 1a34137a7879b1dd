"""Live rows of ``bench eplb``: four decode engines of a model with skewed experts, balanced while they serve.

Everything is real but the orchestrator, which is this process: engines and TE-shells are processes, load is counted by
the engines, the plan is the operator's, experts move over XCCL. Each wave of requests has the same prompts on the same
ranks, decoded greedily, so its tokens must be the same whatever moves. On a machine with fewer cores than processes the
gaps between tokens are the scheduler's as much as the engine's; a wave without a swap is measured beside it.
"""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from eplb import LoadCounter
from xdeepserve_bench import eplb_checkpoint
from xdeepserve_bench.engines.fleet import fleet
from xdeepserve_bench.eplb_session import LIMITS, RANKS, Session, Wave
from xdeepserve_bench.report import Measure

TARGET = 1.25
PATIENCE = 120.0  # seconds
MOST_GAP = 3.0
COUNTING = 0.005  # of an iteration


def run(*, quick: bool) -> list[Measure]:
    """The live measures. ``quick``: shorter waves, and two batch sizes instead of four."""
    with tempfile.TemporaryDirectory(prefix="xdeepserve-eplb-") as name:
        directory = Path(name)
        checkpoint = directory / "model"
        checkpoint.mkdir()
        eplb_checkpoint.make(checkpoint)
        return asyncio.run(_measured(directory, checkpoint, quick=quick))


async def _measured(directory: Path, checkpoint: Path, *, quick: bool) -> list[Measure]:
    tokens, rounds, batches = (400, 2, (2, 32)) if quick else (600, 3, (1, 4, 8, 16, 32))
    async with fleet(directory, checkpoint, LIMITS, patience=PATIENCE) as processes:
        session = Session(
            processes,
            await processes.instance("p", "Prefill", 1),
            await processes.instance("d", "Decode", RANKS),
        )
        still = await session.wave(8, tokens)
        await session.watch()
        waves, swap = await session.balanced(tokens)
        again = await session.wave(8, tokens)
        found = await session.pace(batches, tokens // 5, rounds)
    differing = sum(
        one.tokens != other.tokens
        for wave in (*waves, again)
        for one, other in zip(wave.streams, still.streams, strict=True)
    )
    moving = Wave([stream for wave in waves for stream in wave.streams])
    gaps = [moving.longest(began, ended) for began, ended in swap.spans]
    seconds = statistics.median(ended - began for began, ended in swap.spans)
    # As long a time as a swap takes, in a wave without one.
    calm = statistics.median(
        still.longest(begin, begin + seconds) for begin in np.linspace(*_span(still, seconds), len(gaps)).tolist()
    )
    pace = [
        Measure(
            f"live EP{RANKS}: iteration, {batch} sequences a rank, balanced",
            1e3 * found["balanced", batch],
            "ms",
            rounds,
            against="not balanced",
            against_value=1e3 * found["plain", batch],
        )
        for batch in batches
    ]
    usual = min(found.values())
    return [
        Measure(f"live EP{RANKS}: measured before", swap.before, "max/mean"),
        Measure(f"live EP{RANKS}: measured within two intervals", swap.after, "max/mean", bar=TARGET),
        Measure(f"live EP{RANKS}: streams whose tokens differ", differing, "streams", bar=0),
        Measure(
            f"live EP{RANKS}: longest gap between tokens during a swap, median of swaps",
            1e3 * statistics.median(gaps),
            "ms",
            len(gaps),
            against="median iteration",
            against_value=1e3 * moving.median,
            bar=MOST_GAP,
        ),
        Measure(f"live EP{RANKS}: the same, worst swap", 1e3 * max(gaps), "ms", len(gaps)),
        Measure(
            f"live EP{RANKS}: longest gap in as long a time without a swap, median",
            1e3 * calm,
            "ms",
            len(gaps),
            against="median iteration",
            against_value=1e3 * still.median,
        ),
        Measure(f"live EP{RANKS}: a swap, from order to enabled", seconds, "s", len(gaps)),
        Measure(f"live EP{RANKS}: weights moved", swap.nbytes / 2**20, "MiB"),
        *pace,
        Measure(f"live EP{RANKS}: sequences a rank from which balancing pays, 0 for none", _pays(found), "sequences"),
        Measure("live: counting behind the gates, of an iteration", _counting() / usual, "share", bar=COUNTING),
    ]


def _pays(found: dict[tuple[str, int], float]) -> int:
    """The smallest batch from which on iterations are shorter when balanced; 0 if there is none."""
    paying = 0
    for batch in sorted({batch for _, batch in found}, reverse=True):
        if found["balanced", batch] >= found["plain", batch]:
            break
        paying = batch
    return paying


def _span(wave: Wave, seconds: float) -> tuple[float, float]:
    """The first and the last moment from which on a wave goes on for so long."""
    first, last = max(one.times[0] for one in wave.streams), min(one.times[-1] for one in wave.streams)
    return first, max(first, last - seconds)


def _counting(rounds: int = 2000) -> float:
    """Seconds that counting takes in one iteration of the bench's model, at 8 sequences a rank."""
    layers, experts, top_k = eplb_checkpoint.MOE_LAYERS, eplb_checkpoint.EXPERTS, eplb_checkpoint.TOP_K
    counter = LoadCounter(layers, experts)
    ids = np.random.default_rng(0).integers(0, experts, (8, top_k), dtype=np.int32)
    began = time.perf_counter()
    for _ in range(rounds):
        for layer in range(layers):
            counter.add(layer, ids)
    return (time.perf_counter() - began) / rounds
