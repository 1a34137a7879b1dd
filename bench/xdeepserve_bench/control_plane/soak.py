"""Random create, update, scale, kill and delete for as long as asked, with the invariants looked at all the time.

Invariants, at every look: no node's dies are promised twice; decode groups lie on 910C only; every DP group belongs to
a living TaskExecutor or is being collected. At the end everything is deleted and nothing may be left. The seed is
fixed, so a failure can be repeated.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from xdeepserve_bench.control_plane.hollow import Hollow, owner_uids
from xdeepserve_bench.control_plane.manifests import DIES, NAMESPACE, deployment
from xdeepserve_bench.control_plane.watch import watched
from xdeepserve_bench.report import Measure
from xdeepserve_operator.runtime.kube import ApiError, Object
from xdeepserve_operator.runtime.resources import DPGROUPS, MODELDEPLOYMENTS, PODS, TASKEXECUTORS

MOST = 12  # deployments at once
PAUSE_SECONDS = 0.5
LOOK_SECONDS = 5.0
COLLECTED_SECONDS = 60.0  # the garbage collector has this long for an orphan


@dataclass
class Soak:
    """A running soak; ``broken`` collects what must not be."""

    hollow: Hollow
    dice: random.Random = field(default_factory=lambda: random.Random(11))
    names: list[str] = field(default_factory=list)
    made: int = 0
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
            sizes = self.dice.choice((1, 2, 8, 32)), self.dice.randint(1, 4)
            await self.hollow.api.create(
                MODELDEPLOYMENTS, deployment(self.names[-1], "pod-0", sizes[0], prefill=sizes[1])
            )

    async def update(self) -> None:
        """A change that rolls all decode pods of a deployment."""
        roles = deployment("x", "pod-0", 1, batch=self.dice.randint(1, 16))["spec"]["roles"]
        current = await self.hollow.api.get(MODELDEPLOYMENTS, self.dice.choice(self.names), NAMESPACE)
        current["spec"]["roles"][1]["maxBatchPerGroup"] = roles[1]["maxBatchPerGroup"]
        patch = {"spec": {"roles": current["spec"]["roles"]}}
        await self.hollow.api.patch(MODELDEPLOYMENTS, current["metadata"]["name"], patch, NAMESPACE)

    async def scale(self) -> None:
        """Another number of prefill instances, through /scale."""
        patch = {"spec": {"replicas": self.dice.randint(0, 4)}}
        name = f"{self.dice.choice(self.names)}-prefill"
        await self.hollow.api.patch(TASKEXECUTORS, name, patch, NAMESPACE, subresource="scale")

    async def kill(self) -> None:
        """A random pod ends, or is deleted without grace."""
        pods, _ = await self.hollow.api.list(PODS, NAMESPACE)
        if pods:
            name = self.dice.choice(pods)["metadata"]["name"]
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
        groups, _ = await self.hollow.api.list(DPGROUPS, NAMESPACE)
        executors, _ = await self.hollow.api.list(TASKEXECUTORS, NAMESPACE)
        alive = {one["metadata"]["uid"] for one in executors}
        held = Counter[str]()
        for group in groups:
            held[group["spec"]["node"]] += group["spec"]["dies"]
            if group["spec"]["role"] == "Decode" and "-910c-" not in group["spec"]["node"]:
                self.broken["decode on 910B"] += 1
        self.broken["dies promised twice"] += sum(dies > _dies_of(node) for node, dies in held.items())
        self._orphans(groups, alive)

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


def _dies_of(node: str) -> int:
    return DIES if "-910c-" in node else 8
