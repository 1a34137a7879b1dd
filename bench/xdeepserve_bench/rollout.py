"""``bench rollout``: requests keep coming while every instance of a deployment is replaced by one of a new revision.

The quickstart's deployment with two prefill and two decode instances; both roles move in step, with the surge that a
deployment gets which must not be without an instance. Every stream is compared with a single process. The revision
turns speculative decoding off or on, which every engine is built with and no answer depends on; frontends stay, for
where no Service leads to pods a client has only the address of one.
"""

import asyncio
import copy
import time
from typing import Any

from xdeepserve_bench.local import local
from xdeepserve_bench.report import Measure, Report
from xdeepserve_cluster.progress import Progress
from xdeepserve_demo.client import verify
from xdeepserve_demo.load import Attempt, Load
from xdeepserve_demo.observe import condition
from xdeepserve_demo.reference import Reference
from xdeepserve_demo.session import DEPLOYMENT, MODEL, NAMESPACE, Session
from xdeepserve_operator.runtime.resources import MODELDEPLOYMENTS

PROMPTS = [f"It was a truth of number {number}." for number in range(8)]
SURGE = {"maxUnavailable": 0, "maxSurge": 1}
TOKENS, WORKERS, INSTANCES = 64, 6, 2
SECONDS = 180.0
Object = dict[str, Any]


def run(*, quick: bool) -> Report:
    """One rollout, or three in a row."""
    return asyncio.run(_run(1 if quick else 3))


async def _run(rollouts: int) -> Report:
    report, progress = Report("rollout"), Progress()
    async with local("rollout", progress) as current:
        with progress.step("two instances of each role"):
            await current.install()
            await current.apply()
            await _edit(current, _doubled)
            endpoint = await current.endpoint()
        with progress.step(f"{rollouts} rollouts under load"):
            load = Load(endpoint, MODEL, PROMPTS, tokens=TOKENS, workers=WORKERS)
            streaming = asyncio.create_task(load.run())
            try:
                took = [await _roll_out(current, draft=bool(number % 2)) for number in range(rollouts)]
            finally:
                load.stop()
                await streaming
        report.measures = _judged(load.attempts, took, Reference(current.checkpoint))
    return report


async def _roll_out(current: Session, *, draft: bool) -> float:
    began = time.monotonic()
    speculative = {"method": "MTP", "tokens": 1} if draft else None
    await _edit(current, lambda spec: spec["model"].update(speculative=speculative))
    return time.monotonic() - began


async def _edit(current: Session, change: Any) -> None:
    """Changes the deployment's spec and waits until all of it is rolled out and Ready."""
    before = await current.api.get(MODELDEPLOYMENTS, DEPLOYMENT, NAMESPACE)
    spec = copy.deepcopy(before["spec"])
    change(spec)
    patched = await current.api.patch(MODELDEPLOYMENTS, DEPLOYMENT, {"spec": spec}, NAMESPACE)
    generation = patched["metadata"]["generation"]

    def done(obj: Object) -> bool:
        progress, ready = condition(obj, "Progressing"), condition(obj, "Ready")
        newest = all(one.get("observedGeneration", 0) >= generation for one in (progress, ready))
        return newest and (progress["reason"], ready["status"]) == ("Complete", "True")

    await current.deployment.until(done, "rolled out", SECONDS)


def _doubled(spec: Object) -> None:
    for role in spec["roles"]:
        role.update(replicas=INSTANCES, update=SURGE)


def _judged(attempts: list[Attempt], took: list[float], reference: Reference) -> list[Measure]:
    results = [attempt.result for attempt in attempts]
    verdict = verify(results, [reference.greedy(result.prompt_token_ids, TOKENS) for result in results])
    failed = [result for result in results if result.error is not None]
    waits = sorted(result.ttft_s for result in results if result.error is None)
    return [
        Measure("a rollout of two prefill and two decode instances", sum(took) / len(took), "s", len(took)),
        Measure("requests meanwhile", len(results), "requests"),
        Measure("of them failed", len(failed), "requests", bar=0),
        Measure("streams that lost, repeated or reordered a token", len(verdict.violations), "streams", bar=0),
        Measure("time to first token, 99th percentile", waits[int(0.99 * (len(waits) - 1))], "s", len(waits)),
    ]
