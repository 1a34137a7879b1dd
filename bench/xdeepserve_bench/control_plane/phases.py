"""What is measured, one function a line of the table."""

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdeepserve_bench.control_plane.hollow import Hollow, names_of, together
from xdeepserve_bench.control_plane.manifests import GROUPS, NAMESPACE, PEER, deployment, stateful_set
from xdeepserve_bench.control_plane.watch import watched
from xdeepserve_bench.report import Measure
from xdeepserve_operator.api.names import LABEL_ATTEMPT, LABEL_COMPONENT, LABEL_DEPLOYMENT, LABEL_EXECUTOR, LABEL_GROUP
from xdeepserve_operator.runtime.resources import DEPLOYMENTS, MODELDEPLOYMENTS, PODS, SUPERPODS, Resource

MIB = 2**20
STATEFULSETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
OTHERS = 4  # pods besides the decode engines: one prefill engine, two TE-shells, one frontend
PATIENCE = 600.0  # seconds after which a phase has failed
QUIET_SECONDS = 3.0  # statuses and events of a start are still being written
DEATH = {"status": {"phase": "Failed", "reason": "Evicted"}}


@dataclass(frozen=True)
class BringUp:
    """Seconds to Ready, and the operator's writes until it was quiet, by verb and resource."""

    ready: float
    pods_ready: float
    pods: int
    writes: Counter[str]


@dataclass(frozen=True)
class Comparison:
    """One run: the peer's seconds, and ours."""

    peer_ready: float
    peer_gone: float
    up: BringUp | None = None
    gone: float = 0.0

    def against(self, up: BringUp, gone: float) -> "Comparison":
        """With our part."""
        return replace(self, up=up, gone=gone)


async def peer(hollow: Hollow, name: str) -> Comparison:
    """A StatefulSet of as many pods, up and down. A name used again would get the hollow servers' late deletions."""
    async with watched(hollow.api, PODS, PEER) as pods:
        began = time.monotonic()
        await hollow.api.create(STATEFULSETS, stateful_set(name, GROUPS))
        await pods.until(lambda: pods.ready_count() == GROUPS, "all pods of the StatefulSet are Ready", PATIENCE)
        ready, began = time.monotonic() - began, time.monotonic()
        await hollow.api.delete(STATEFULSETS, name, PEER)
        await pods.until(lambda: not pods.objects, "all pods of the StatefulSet are gone", PATIENCE)
        return Comparison(ready, time.monotonic() - began)


async def bring_up(hollow: Hollow, name: str = "wide", superpod: str = "pod-0") -> BringUp:
    """A ModelDeployment of 768 decode dies, from its creation to Ready."""
    before = Counter(await hollow.writes())
    mine = f"{LABEL_DEPLOYMENT}={name}"
    async with (
        watched(hollow.api, MODELDEPLOYMENTS, NAMESPACE) as deployments,
        watched(hollow.api, PODS, NAMESPACE, mine) as pods,
    ):
        began = time.monotonic()
        await hollow.api.create(MODELDEPLOYMENTS, deployment(name, superpod, GROUPS))
        await pods.until(lambda: pods.ready_count() >= GROUPS + OTHERS, "all pods are Ready", PATIENCE)
        pods_ready = time.monotonic() - began
        await deployments.until(lambda: deployments.ready(name), f"{name} is Ready", PATIENCE)
        ready = time.monotonic() - began
        after = await _quiet(hollow)
        return BringUp(ready, pods_ready, len(pods.objects), Counter(after) - before)


async def bring_down(hollow: Hollow, name: str = "wide") -> float:
    """Its deletion: seconds until all its pods are gone."""
    async with watched(hollow.api, PODS, NAMESPACE) as pods:
        began = time.monotonic()
        await hollow.api.delete(MODELDEPLOYMENTS, name, NAMESPACE)
        await pods.until(lambda: not pods.objects, "all pods are gone", PATIENCE)
        return time.monotonic() - began


def compared(runs: Sequence[Comparison]) -> list[Measure]:
    """The rows that name the StatefulSet."""
    ups = [run.up for run in runs if run.up is not None]
    last, count = ups[-1], len(runs)
    peer_ready = statistics.median(run.peer_ready for run in runs)
    peer_gone = statistics.median(run.peer_gone for run in runs)
    against = f"StatefulSet of {GROUPS} pods"
    ready = statistics.median(up.ready for up in ups)
    pods_ready = statistics.median(up.pods_ready for up in ups)
    gone = statistics.median(run.gone for run in runs)
    writes = sum(last.writes.values())
    rows = [
        Measure(f"apply to Ready, {GROUPS} decode dies", ready, "s", count, against, peer_ready, bar=1.5),
        Measure("of which: to all pods Ready", pods_ready, "s", count, against, peer_ready),
        Measure("deletion, until all pods are gone", gone, "s", count, against, peer_gone, bar=1.2),
        Measure("API writes per pod brought up", writes / last.pods, "requests", bar=2.5),
    ]
    return rows + [Measure(f"  {what}", number, "requests") for what, number in last.writes.most_common()]


async def deaths(hollow: Hollow, count: int, name: str = "wide") -> list[Measure]:
    """Engine pods that end with phase Failed, one after another: seconds to the creation of each replacement."""
    label = f"{LABEL_EXECUTOR}={name}-decode,{LABEL_COMPONENT}=engine"
    dice, times = random.Random(7), list[float]()
    async with watched(hollow.api, PODS, NAMESPACE, label) as pods:
        for _ in range(count):
            victim = pods.objects[dice.choice(sorted(pods.objects))]
            labels = victim["metadata"]["labels"]
            heir = f"{labels[LABEL_GROUP]}-{int(labels[LABEL_ATTEMPT]) + 1}"
            began = time.monotonic()
            await hollow.api.patch(PODS, victim["metadata"]["name"], DEATH, NAMESPACE, subresource="status")
            await pods.until(lambda heir=heir: heir in pods.born, f"{heir} is made", PATIENCE)  # type: ignore[misc]
            times.append(pods.born[heir] - began)
            await pods.until(lambda: pods.ready_count() == GROUPS, "all pods are Ready again", PATIENCE)
    times.sort()
    worst = times[min(len(times) - 1, int(0.99 * len(times)))]
    return [
        Measure("a pod's death to its replacement's creation, p99", worst, "s", count, bar=1.0),
        Measure("a pod's death to its replacement's creation, median", statistics.median(times), "s", count),
    ]


async def change_many(hollow: Hollow, count: int) -> list[Measure]:
    """Many small ModelDeployments whose frontends are all told another limit at once."""
    names = [f"small-{number}" for number in range(count)]
    async with watched(hollow.api, MODELDEPLOYMENTS, NAMESPACE) as all_of:
        began = time.monotonic()
        await together(hollow.api.create(MODELDEPLOYMENTS, deployment(one, "pod-0", 1)) for one in names)
        # The one 910B server holds eight prefill dies; the others take 910C, their second choice.
        await all_of.until(lambda: all_of.ready_count() == count, "all small deployments are Ready", PATIENCE)
        made, began = time.monotonic() - began, time.monotonic()
        change = {"spec": {"frontend": {"maxBodyBytes": 2**19}}}
        await together(hollow.api.patch(MODELDEPLOYMENTS, one, change, NAMESPACE) for one in names)
        async with watched(hollow.api, DEPLOYMENTS, NAMESPACE) as children:
            wanted = [f"{one}-frontend" for one in names]
            await children.until(
                lambda: all(str(2**19) in str(children.objects[one]["spec"]) for one in wanted),
                "all frontends have the new limit",
                PATIENCE,
            )
            await all_of.until(all_of.observed, "all statuses speak of the new spec", PATIENCE)
        took = time.monotonic() - began
    async with watched(hollow.api, PODS, NAMESPACE) as pods:
        await together(hollow.api.delete(MODELDEPLOYMENTS, one, NAMESPACE) for one in names)
        await pods.until(lambda: not pods.objects, "all small deployments are gone", PATIENCE)
    return [
        Measure(f"spec change on {count} ModelDeployments, until all are reconciled", took, "s", bar=10),
        Measure(f"{count} ModelDeployments from creation to Ready", made, "s"),
    ]


async def fill(hollow: Hollow, superpods: int) -> None:
    """SuperPods of 768 dies, all taken."""
    known = await names_of(hollow.api, SUPERPODS, "")
    for number in range(superpods):
        if f"pod-{number}" not in known:
            await hollow.add_superpod(f"pod-{number}")
        await bring_up(hollow, f"wide-{number}", f"pod-{number}")


async def idle(hollow: Hollow, superpods: int, seconds: float) -> list[Measure]:
    """What the operator costs when nothing happens."""
    await asyncio.sleep(QUIET_SECONDS)
    before, writes, began = hollow.usage(), sum((await hollow.writes()).values()), time.monotonic()
    await asyncio.sleep(seconds)
    window, after = time.monotonic() - began, hollow.usage()
    writes = sum((await hollow.writes()).values()) - writes
    percent = 100 * (after.cpu_seconds - before.cpu_seconds) / window
    size = f"{superpods} SuperPods, {superpods * GROUPS} dies"
    return [
        Measure(f"resident memory, operator, {size}", after.resident / MIB, "MiB", bar=400),
        Measure("processor time, operator, idle at that size", percent, "% of a core", bar=5),
        Measure("writes of the idle operator besides its Lease", writes, "requests", bar=0),
    ]


async def _quiet(hollow: Hollow) -> dict[str, float]:
    """The operator's writes once it has written nothing for a while."""
    before = await hollow.writes()
    while True:
        await asyncio.sleep(QUIET_SECONDS)
        after = await hollow.writes()
        if after == before:
            return after
        before = after
