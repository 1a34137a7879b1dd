"""An engine pod with the demo's model: how soon it serves, the memory that it takes at most, and its longest pause.

The pods are the quickstart's: a prefill engine and two decode engines with MTP, each with its output process. Memory is
looked at all the time while prompts at the context limit are read, as many at once as both roles run, and while many
short ones follow, so that KV pool and prefix cache are full. A page that processes share, as those of libraries are,
counts in parts (PSS), so that the sum over all processes is what they take. Sums of RSS, in which such a page counts as
often as it is mapped, are told too. Pauses are those that engines make between two iterations to collect garbage.
"""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from flowserve.wire import Limits
from xdeepserve_bench.engines.client import Asked
from xdeepserve_bench.engines.fleet import Fleet, fleet
from xdeepserve_bench.engines.instance import Instance
from xdeepserve_bench.memory import Memory, memory
from xdeepserve_bench.processes import family

CONTEXT, TOKENS = 2048, 32
LIMITS = Limits(max_context_tokens=CONTEXT, max_batch=8, max_ranks=2, speculative_tokens=1)
LONG, SHORT, SHORT_PROMPT = 16, 32, 100
PATIENCE = 120.0  # seconds
PAUSE = "xdeepserve:longest_gc_pause_seconds"
LOOK_SECONDS = 0.2
POLL_SECONDS = 0.005


@dataclass(frozen=True)
class Pod:
    """``ready``: seconds, one a start. ``memory``: of the largest pod, at its worst moments. ``pause``: seconds."""

    ready: list[float]
    memory: Memory
    pause: float


def measure(checkpoint: Path, starts: int) -> Pod:
    """Raises NotServing."""
    with tempfile.TemporaryDirectory(prefix="xdeepserve-bench-") as directory:
        return asyncio.run(_measured(Path(directory), checkpoint, starts))


async def _measured(directory: Path, checkpoint: Path, starts: int) -> Pod:
    async with fleet(directory, checkpoint, LIMITS, patience=PATIENCE) as processes:
        await _ready(processes, "warms-the-cache")
        ready = [await _ready(processes, f"r{number}") for number in range(starts)]
    async with fleet(directory, checkpoint, LIMITS, patience=PATIENCE) as processes:
        prefill = await processes.instance("p", "Prefill", 1)
        decode = await processes.instance("d", "Decode", LIMITS.max_ranks)
        engines = [*prefill.engines, *decode.engines]
        looking = asyncio.create_task(_look(engines))
        for prompt, count in ((CONTEXT - TOKENS, LONG), (SHORT_PROMPT, SHORT)):
            await asyncio.gather(*(_answer(processes, prefill, decode, prompt, seed) for seed in range(count)))
        looking.cancel()
        pauses = [(await processes.figures(engine))[PAUSE] for engine in engines]
        return Pod(ready, await looking, max(pauses))


async def _ready(processes: Fleet, name: str) -> float:
    """From the start of a decode engine until its readiness probe succeeds; it is alone in its group."""
    instance = await Instance.begin(processes.site, processes, name, "Decode", LIMITS, apart=False)
    processes.instances.append(instance)
    began = time.monotonic()
    await instance.launch(0)
    forming = asyncio.create_task(instance.form())
    while not await _probe(processes, instance.engines[0]):
        await asyncio.sleep(POLL_SECONDS)
        if forming.done():
            forming.result()
    seconds = time.monotonic() - began
    await forming
    await asyncio.gather(instance.engines[0].stop(), instance.shell.stop())
    return seconds


async def _probe(processes: Fleet, engine: Asked) -> bool:
    with suppress(aiohttp.ClientError):
        async with processes.session.get(f"{engine.control}/health/ready") as reply:
            return reply.status == 200
    return False


async def _answer(processes: Fleet, prefill: Instance, decode: Instance, prompt: int, seed: int) -> None:
    tokens = tuple((7 * place + seed) % 2000 + 5 for place in range(prompt))
    request = await processes.prefill(prefill, tokens, TOKENS, ignore_eos=True)
    await processes.stream(await decode.dispatch(), request)


async def _look(engines: Sequence[Asked]) -> Memory:
    """The most that any of the pods had, until it is cancelled."""
    most = Memory()
    with suppress(asyncio.CancelledError):
        while True:
            for engine in engines:
                most = most.most(memory(family(engine.process.pid)))
            await asyncio.sleep(LOOK_SECONDS)
    return most
