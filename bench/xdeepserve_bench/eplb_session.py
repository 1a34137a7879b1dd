"""Waves of requests on four decode engines, and their experts moved meanwhile, for ``eplb_live``."""

import asyncio
import itertools
import multiprocessing
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from flowserve.wire import Limits
from flowserve.wire_experts import ExpertHistory, ExpertOrder, ExpertSlice, ExpertTable, ExpertWatch
from xdeepserve_bench.engines.client import Stream
from xdeepserve_bench.engines.fleet import Fleet
from xdeepserve_bench.engines.instance import Instance
from xdeepserve_bench.engines.programs import NotServing
from xdeepserve_operator.api.v1alpha1.experts import ExpertPlacementSpec
from xdeepserve_operator.planner.expert_load import Group, measured
from xdeepserve_operator.planner.expert_map import Map
from xdeepserve_operator.planner.expert_plan import propose

RANKS, INTERVAL, PROMPT = 4, 1.0, 12
SWAPS, PAUSE = 5, 0.5  # an odd number ends with the balanced placement; seconds before each
SPEC = ExpertPlacementSpec.model_validate({"targetRef": {"name": "bench"}, "redundantSlots": 1})
LIMITS = Limits(
    max_context_tokens=2048,
    max_batch=32,
    prefill_chunk_tokens=32,
    kv_blocks=1024,
    kv_block_tokens=32,
    max_ranks=RANKS,
    collective_timeout_seconds=60.0,
)


@dataclass(frozen=True)
class Wave:
    """Streams by request, and the median time between two tokens."""

    streams: Sequence[Stream]

    @property
    def gaps(self) -> list[float]:
        """Between neighbouring tokens of each stream, in s."""
        return [after - before for one in self.streams for before, after in itertools.pairwise(one.times)]

    @property
    def median(self) -> float:
        """The usual gap: an iteration, as clients see it."""
        return statistics.median(self.gaps)

    def longest(self, begin: float, end: float) -> float:
        """The longest gap that begins between ``begin`` and ``end``. Raises NotServing where there is none."""
        gaps = (
            after - before
            for one in self.streams
            for before, after in itertools.pairwise(one.times)
            if begin <= before <= end
        )
        longest = max(gaps, default=0.0)
        if not longest:
            raise NotServing("no token came while experts moved: nothing can be said about gaps")
        return longest


@dataclass(frozen=True)
class Swapped:
    """What balancing did; ``spans``: when, on the monotonic clock, each swap began and ended."""

    before: float
    after: float
    spans: Sequence[tuple[float, float]]
    nbytes: int


class Session:
    """A prefill and a decode instance under waves of requests."""

    def __init__(self, processes: Fleet, prefill: Instance, decode: Instance) -> None:
        self._fleet, self._prefill, self._decode = processes, prefill, decode
        self._version = 0

    async def wave(self, batch: int, tokens: int) -> Wave:
        """``batch`` sequences on every rank, all begun before the first is decoded."""
        draw = np.random.default_rng(batch)
        prompts = [tuple(draw.integers(3, 300, PROMPT).tolist()) for _ in range(batch * RANKS)]
        requests = [await self._fleet.prefill(self._prefill, prompt, tokens, ignore_eos=True) for prompt in prompts]
        where = itertools.cycle(engine.config for engine in self._decode.engines)
        streams = await asyncio.gather(*(self._fleet.stream(next(where), request) for request in requests))
        return Wave(streams)

    async def watch(self) -> None:
        """Has the shell count from now on."""
        watch = ExpertWatch(instance=self._decode.name, interval_seconds=INTERVAL)
        await self._fleet.call(self._decode.shell, "PUT", "/v1/experts/watch", watch)

    async def balanced(self, tokens: int) -> tuple[list[Wave], Swapped]:
        """Waves, one after the other, in whose course experts are balanced, then moved back and forth."""
        waves: list[Wave] = []
        enough = asyncio.Event()
        serving = asyncio.create_task(self._load_on(tokens, waves, enough))
        first = await self._fleet.until(lambda: self._counted(0), "an interval is counted")
        table = await self._table()
        # The operator is another process: planning in this one would hold up those who read the tokens.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as operator:
            proposal = await asyncio.get_running_loop().run_in_executor(operator, propose, SPEC, table, [first])
        plain = Map.of(table)
        self._maps = {"plain": plain, "balanced": plain.changed(proposal.layers)}
        self._layers = sorted(proposal.layers)
        spans = []
        second: ExpertSlice | None = None
        nbytes = 0
        for name, _ in zip(itertools.cycle(("balanced", "plain")), range(SWAPS), strict=False):
            await asyncio.sleep(PAUSE)
            began = time.monotonic()
            nbytes = await self._go(name)
            spans.append((began, time.monotonic()))
            if second is None:
                second = await self._fleet.until(lambda: self._counted(1), "an interval is counted after the swap")
        enough.set()
        await serving
        before, after = measured([first], 1, 0), measured([second] if second else [], 1, 1)
        assert before is not None
        assert after is not None
        return waves, Swapped(before.mean, after.mean, spans, nbytes // SWAPS)

    async def pace(self, batches: Sequence[int], tokens: int, rounds: int) -> dict[tuple[str, int], float]:
        """The median iteration in s, by placement and sequences a rank; placements take turns, so that whatever else
        the machine does hits both."""
        found: dict[tuple[str, int], list[float]] = defaultdict(list)
        for _ in range(rounds):
            for name in ("plain", "balanced"):
                await self._go(name)
                for batch in batches:
                    found[name, batch].append((await self.wave(batch, tokens)).median)
        return {key: statistics.median(values) for key, values in found.items()}

    async def _load_on(self, tokens: int, waves: list[Wave], enough: asyncio.Event) -> None:
        while not enough.is_set():
            waves.append(await self.wave(8, tokens))

    async def _counted(self, version: int) -> ExpertSlice | None:
        """The first whole interval with this placement under load."""
        answer = await self._fleet.call(self._decode.shell, "GET", "/v1/experts/load?after=0")
        history = ExpertHistory.model_validate_json(answer)
        slices = [one for one in history.slices if one.version == version and any(map(any, one.served))]
        return slices[1] if len(slices) > 1 else None

    async def _table(self) -> ExpertTable:
        answer = await self._fleet.call(self._decode.shell, "GET", "/v1/experts/placement")
        return ExpertTable.model_validate_json(answer)

    async def _go(self, name: str) -> int:
        """Has the instance take up one of the two placements; returns the bytes fetched since the start. Raises
        NotServing."""
        self._version += 1
        version, step = self._version, self._maps[name].step(self._layers)

        async def done() -> Group | None:
            status = await self._decode.status()
            group = Group.of(status) if status is not None else None
            if group is not None and group.given_up:
                raise NotServing(f"the change was given up: {group.error}")
            return group if group is not None and group.version == version else None

        order = ExpertOrder(instance=self._decode.name, epoch=1, version=version, layers=step)
        await self._fleet.call(self._decode.shell, "PUT", "/v1/experts/placement", order)
        return (await self._fleet.until(done, "experts move")).moved_bytes
