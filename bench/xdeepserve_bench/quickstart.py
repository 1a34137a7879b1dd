"""``bench quickstart``: what a newcomer waits for, what healing takes, what it costs to run and to idle.

One cluster, one deployment, in this order: apply to first token; memory; an idle window in which processor time and the
operator's writes are counted; 200 checked streams; a die killed under load. The recovery is repeated (another seed,
another die) and the median reported.
"""

import asyncio
import statistics
import time
from dataclasses import dataclass

import aiohttp
import yaml
from prometheus_client.parser import text_string_to_metric_families

from xdeepserve_bench.local import local
from xdeepserve_bench.report import Measure, Report
from xdeepserve_bench.usage import Usage, usage
from xdeepserve_cluster.progress import Progress
from xdeepserve_demo.assets import asset
from xdeepserve_demo.client import run_load, stream_chat, verify
from xdeepserve_demo.fault import FAULT, FaultOutcome, break_die
from xdeepserve_demo.install import NAMESPACE
from xdeepserve_demo.load import Load
from xdeepserve_demo.reference import Reference
from xdeepserve_demo.session import MODEL, Session

MIB = 2**20
WRITES = frozenset({"create", "apply", "patch", "delete", "put"})
PROMPTS = [f"Tell me about expert number {number}." for number in range(8)]


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    idle_seconds: float
    streams: int
    faults: int


FULL = Plan(idle_seconds=30, streams=200, faults=3)
QUICK = Plan(idle_seconds=10, streams=50, faults=1)


def run(*, quick: bool) -> Report:
    """Runs it; progress goes to standard error."""
    return asyncio.run(_run(QUICK if quick else FULL))


async def _run(plan: Plan) -> Report:
    report, progress = Report("quickstart"), Progress()
    async with local("bench", progress) as current:
        with progress.step("operator installed"):
            await current.install()
        with progress.step("from kubectl apply to the first token"):
            report.measures += await _first_token(current)
        with progress.step(f"idle for {plan.idle_seconds:.0f} s"):
            report.measures += await _idle(current, plan)
        with progress.step(f"{plan.streams} streams, 16 at a time"):
            report.measures += await _streams(current, plan)
        with progress.step(f"{plan.faults} dies killed under load"):
            report.measures += await _faults(current, plan)
    return report


async def _first_token(current: Session) -> list[Measure]:
    began = time.monotonic()
    await current.apply()
    endpoint = await current.endpoint()
    ready = time.monotonic() - began
    answer = await stream_chat(endpoint, MODEL, PROMPTS[0], 16)
    if answer.error is not None:
        raise RuntimeError(f"the first completion failed: {answer.error}")
    first = time.monotonic() - began - answer.duration_s + answer.ttft_s
    return [
        Measure("kubectl apply to Ready", ready, "s"),
        Measure("kubectl apply to the first streamed token", first, "s", bar=15),
    ]


async def _idle(current: Session, plan: Plan) -> list[Measure]:
    await asyncio.sleep(5)  # events of the start are still being written
    before, writes_before = usage(current.cluster), await _writes(current)
    began = time.monotonic()
    await asyncio.sleep(plan.idle_seconds)
    window = time.monotonic() - began
    after, writes = usage(current.cluster), await _writes(current) - writes_before
    percent = 100 * (after.cpu_seconds - before.cpu_seconds) / window
    return [*_memory(after), Measure("processor time, idle", percent, "% of a core", bar=10), _no_writes(writes)]


def _memory(now: Usage) -> list[Measure]:
    return [
        Measure("resident memory, operator", now.operator.resident / MIB, "MiB", bar=150),
        Measure("resident memory, largest engine pod", now.largest_engine.resident / MIB, "MiB", bar=150),
        Measure("resident memory, agent of all servers", now.agent.resident / MIB, "MiB", bar=120),
    ]


def _no_writes(writes: float) -> Measure:
    return Measure("writes of the idle operator besides its Lease", writes, "requests", bar=0)


async def _writes(current: Session) -> float:
    """Requests of the operator that write something other than its Lease, so far."""
    pods = await current.tools.get("pods", "--namespace", NAMESPACE)
    address = pods["items"][0]["status"]["podIP"]
    async with aiohttp.ClientSession() as http, http.get(f"http://{address}:8081/metrics") as answer:
        families = text_string_to_metric_families(await answer.text())
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == "xdeepserve_api_calls_total"
            and sample.labels["verb"] in WRITES
            and sample.labels["resource"] != "leases"
        )


async def _streams(current: Session, plan: Plan) -> list[Measure]:
    prompts = [f"{PROMPTS[number % 8]} {number % 16}" for number in range(plan.streams)]
    began = time.monotonic()
    endpoint = await current.endpoint()
    results = await run_load(endpoint, MODEL, prompts, 16, max_tokens=64, ignore_eos=True)
    window = time.monotonic() - began
    reference = Reference(current.checkpoint)
    verdict = verify(results, [reference.greedy(result.prompt_token_ids, 64) for result in results])
    wrong = len(results) - verdict.ok
    return [
        Measure(f"of {plan.streams} streams of 64 tokens, not exactly right", wrong, "streams", bar=0),
        Measure("tokens a second, 16 streams", 64 * len(results) / window, "tokens/s"),
        Measure("time to first token, median", statistics.median(one.ttft_s for one in results), "s", len(results)),
    ]


async def _faults(current: Session, plan: Plan) -> list[Measure]:
    reference, outcomes, violations = Reference(current.checkpoint), [], 0
    for seed in range(plan.faults):
        load = Load(await current.endpoint(), MODEL, PROMPTS, tokens=64, workers=6)
        streaming = asyncio.create_task(load.run())
        try:
            outcomes.append(await _break(current, load, seed))
        finally:
            load.stop()
            await streaming
        results = [attempt.result for attempt in load.attempts]
        expected = [reference.greedy(result.prompt_token_ids, 64) for result in results]
        violations += len(verify(results, expected).violations)
    return [
        _median("from a die's death to Ready=False", [one.detected for one in outcomes], None),
        _median("from a die's death to Ready again", [one.ready_again for one in outcomes], 10),
        _median("from a die's death to the next completion", [one.next_completion for one in outcomes], 5),
        Measure("streams that lost, repeated or reordered a token", violations, "streams", bar=0),
    ]


async def _break(current: Session, load: Load, seed: int) -> FaultOutcome:
    manifest = yaml.safe_load((asset("examples") / "fault-die-kill.yaml").read_text())
    name = f"{FAULT}-{seed}"
    manifest["metadata"]["name"] = name
    manifest["spec"]["target"]["random"] = {"seed": seed}
    path = current.cluster.directory / f"{name}.yaml"
    path.write_text(yaml.safe_dump(manifest))
    try:
        return await break_die(current, load, path, name)
    finally:
        path.unlink()


def _median(name: str, values: list[float], bar: float | None) -> Measure:
    return Measure(name, statistics.median(values), "s", len(values), bar=bar)
