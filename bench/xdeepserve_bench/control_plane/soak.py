"""Random create, update, scale, kill and delete for as long as asked, with the invariants looked at all the time.

Invariants, at every look (see ``invariants``): no server's dies are promised twice; decode groups lie on 910C only;
replicas are what was last asked for, whoever asked; no more serving instances leave for a new revision than the budget
has; every DP group belongs to a living TaskExecutor or is being collected. At the end everything is deleted and nothing
may be left. The seed is fixed, so a failure can be repeated.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from xdeepserve_bench.control_plane.hollow import Hollow, owner_uids
from xdeepserve_bench.control_plane.invariants import decode_elsewhere, over_budget, promised_twice, set_by_others
from xdeepserve_bench.control_plane.manifests import NAMESPACE, deployment
from xdeepserve_bench.control_plane.watch import watched
from xdeepserve_bench.report import Measure
from xdeepserve_operator.api.names import LABEL_DEPLOYMENT
from xdeepserve_operator.runtime.kube import ApiError, Object
from xdeepserve_operator.runtime.resources import DPGROUPS, MODELDEPLOYMENTS, PODS, TASKEXECUTORS

MOST = 12  # deployments at once
PAUSE_SECONDS = 0.5
LOOK_SECONDS = 5.0
COLLECTED_SECONDS = 60.0  # the garbage collector has this long for an orphan
LOOKED_AT = (TASKEXECUTORS, DPGROUPS, PODS)
CALM_SECONDS = 15.0  # after a deed that hurts, all instances serve again


@dataclass
class Soak:
    """A running soak; ``broken`` collects what must not be."""

    hollow: Hollow
    dice: random.Random = field(default_factory=lambda: random.Random(11))
    names: list[str] = field(default_factory=list)
    made: int = 0
    asked: dict[str, int] = field(default_factory=dict)  # TaskExecutor -> replicas
    hurt: dict[str, float] = field(default_factory=dict)  # deployment -> when something last made an instance start
    broken: Counter[str] = field(default_factory=Counter)
    orphans: dict[str, float] = field(default_factory=dict)  # uid -> when first seen

    async def step(self) -> None:
        """One random deed. An object that is gone meanwhile is part of the game."""
        deeds = [self.create, self.update, self.scale, self.kill, self.kill, self.delete]
        with suppress(ApiError):
            await (self.dice.choice(deeds)() if self.names else self.create())

    async def create(self) -> None:
        """A new deployment of one to four prefill instances and up to 32 decode groups."""
        if len(self.names) < MOST:
            self.made += 1
            self.names.append(f"soak-{self.made}")
            name, groups, prefill = self.names[-1], self.dice.choice((1, 2, 8, 32)), self.dice.randint(1, 4)
            self.asked |= {f"{name}-prefill": prefill, f"{name}-decode": 1}
            self.hurt[name] = time.monotonic()
            await self.hollow.api.create(MODELDEPLOYMENTS, deployment(name, "pod-0", groups, prefill=prefill))

    async def update(self) -> None:
        """A change that rolls all pods of a deployment."""
        batch = self.dice.randint(1, 16)
        current = await self.hollow.api.get(MODELDEPLOYMENTS, self.dice.choice(self.names), NAMESPACE)
        for role in current["spec"]["roles"]:
            role["maxBatchPerGroup"] = batch
        patch = {"spec": {"roles": current["spec"]["roles"]}}
        await self.hollow.api.patch(MODELDEPLOYMENTS, current["metadata"]["name"], patch, NAMESPACE)

    async def scale(self) -> None:
        """Another number of prefill instances, through /scale."""
        replicas, name = self.dice.randint(0, 4), self.dice.choice(self.names)
        self.hurt[name] = time.monotonic()
        patch = {"spec": {"replicas": replicas}}
        await self.hollow.api.patch(TASKEXECUTORS, f"{name}-prefill", patch, NAMESPACE, subresource="scale")
        self.asked[f"{name}-prefill"] = replicas

    async def kill(self) -> None:
        """A random pod ends, or is deleted without grace."""
        pods, _ = await self.hollow.api.list(PODS, NAMESPACE)
        if pods:
            victim = self.dice.choice(pods)["metadata"]
            name = victim["name"]
            self.hurt[victim["labels"].get(LABEL_DEPLOYMENT, "")] = time.monotonic()
            if self.dice.random() < 0.5:
                await self.hollow.api.delete(PODS, name, NAMESPACE, grace_seconds=0)
            else:
                death = {"status": {"phase": "Failed"}}
                await self.hollow.api.patch(PODS, name, death, NAMESPACE, subresource="status")

    async def delete(self) -> None:
        """A whole deployment."""
        name = self.names.pop(self.dice.randrange(len(self.names)))
        await self.hollow.api.delete(MODELDEPLOYMENTS, name, NAMESPACE)

    async def look(self) -> None:
        """Checks the invariants."""
        executors, groups, pods = [(await self.hollow.api.list(kind, NAMESPACE))[0] for kind in LOOKED_AT]
        calm = {name for name in self.names if time.monotonic() - self.hurt[name] > CALM_SECONDS}
        self.broken["decode on 910B"] += decode_elsewhere(groups)
        self.broken["dies promised twice"] += promised_twice(groups)
        self.broken["replicas set by another"] += set_by_others(executors, self.asked)
        self.broken["rollouts beyond their budget"] += len(over_budget(executors, groups, pods, calm))
        self._orphans(groups, {one["metadata"]["uid"] for one in executors})

    def _orphans(self, groups: Sequence[Object], alive: set[str]) -> None:
        now = time.monotonic()
        lost = {one["metadata"]["uid"] for one in groups if not alive.intersection(owner_uids(one))}
        self.orphans = {uid: self.orphans.get(uid, now) for uid in lost}
        self.broken["orphans"] += sum(now - since > COLLECTED_SECONDS for since in self.orphans.values())


async def soak(hollow: Hollow, seconds: float) -> list[Measure]:
    """Runs it; memory is compared between the end and a quarter of the time, when caches have their size."""
    state, began, settled, looked = Soak(hollow), time.monotonic(), 0, 0.0
    steps = 0
    while (passed := time.monotonic() - began) < seconds:
        await state.step()
        steps += 1
        if passed - looked >= LOOK_SECONDS:
            looked = passed
            await state.look()
        if not settled and passed > seconds / 4:
            settled = hollow.usage().resident
        await asyncio.sleep(PAUSE_SECONDS)
    growth = 100 * (hollow.usage().resident / settled - 1) if settled else 0.0
    left = await _everything_gone(state)
    return [
        Measure(f"soak of {seconds / 60:g} min, {steps} deeds: growth of the operator's memory", growth, "%", bar=5),
        *(Measure(f"soak: {what}", state.broken[what], "times", bar=0) for what in sorted(state.broken)),
        Measure("soak: objects left after deleting all", left, "objects", bar=0),
    ]


async def _everything_gone(state: Soak) -> int:
    """Deletes all that was made; what is still there after a while is left over."""
    api = state.hollow.api
    for name in state.names:
        await api.delete(MODELDEPLOYMENTS, name, NAMESPACE)
    async with watched(api, PODS, NAMESPACE) as pods, watched(api, DPGROUPS, NAMESPACE) as groups:
        with suppress(RuntimeError):
            await pods.until(lambda: not pods.objects, "no pod is left", COLLECTED_SECONDS)
            await groups.until(lambda: not groups.objects, "no group is left", COLLECTED_SECONDS)
        return len(pods.objects) + len(groups.objects)
