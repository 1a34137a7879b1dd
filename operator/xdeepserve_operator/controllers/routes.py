"""Keeps the routes of every frontend pod like the instances that serve.

Routes get a new epoch when they change. After a restart nothing is remembered: the same content is then offered under
the epoch that frontends already have, and only a frontend that refuses it (it has other content) makes a new epoch
due. So a new operator that finds all as it should be changes nothing.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flowserve.wire import FrontendStatus, Routes, Target
from xdeepserve_operator.controllers.ports import Engines

Key = tuple[str, str]  # namespace, ModelDeployment


@dataclass(frozen=True, slots=True)
class RouteState:
    """The epoch in force, 0 before any, and how many of the frontends asked have it."""

    epoch: int
    routed: int


@dataclass
class _Memory:
    routes: Routes | None = None
    heard: dict[str, FrontendStatus] = field(default_factory=dict)  # by host, at the last pass
    taken: dict[tuple[str, str], int] = field(default_factory=dict)  # (host, incarnation) -> epoch it took from us


class RouteKeeper:
    """Routes of all ModelDeployments."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._memory: dict[Key, _Memory] = {}

    def heard(self, namespace: str, name: str) -> Mapping[str, FrontendStatus]:
        """What the frontends of a ModelDeployment said last, by host."""
        memory = self._memory.get((namespace, name))
        return memory.heard if memory is not None else {}

    def forget(self, namespace: str, name: str) -> None:
        """Drops what is remembered of a ModelDeployment that is gone."""
        self._memory.pop((namespace, name), None)

    async def spread(
        self, key: Key, token: str, hosts: Sequence[str], targets: tuple[Target, ...], known: int
    ) -> RouteState:
        """Gives ``targets`` to the frontends at ``hosts``; ``known`` is the last epoch in the status."""
        memory = self._memory.setdefault(key, _Memory())
        answers = await asyncio.gather(*(self._engines.frontend_status(host, token) for host in hosts))
        heard = {host: answer for host, answer in zip(hosts, answers, strict=True) if answer is not None}
        memory.heard = heard
        highest = max([known, *(answer.epoch for answer in heard.values())])
        routes = memory.routes
        if routes is None:
            if highest == 0 and not targets:
                return RouteState(0, 0)  # no instance has served yet: there is nothing to say
            routes = Routes(deployment=key[1], epoch=max(1, highest), targets=targets)
        elif routes.targets != targets or routes.epoch < highest:
            routes = Routes(deployment=key[1], epoch=max(routes.epoch, highest) + 1, targets=targets)
        memory.routes = routes
        if not await self._offer(memory, token, heard):
            memory.routes = routes.model_copy(update={"epoch": routes.epoch + 1})
            await self._offer(memory, token, heard)
        epoch = memory.routes.epoch
        present = {(host, answer.incarnation) for host, answer in heard.items()}
        memory.taken = {one: taken for one, taken in memory.taken.items() if one in present}
        return RouteState(epoch, sum(taken == epoch for taken in memory.taken.values()))

    async def _offer(self, memory: _Memory, token: str, heard: dict[str, FrontendStatus]) -> bool:
        """Sends the routes to frontends that did not take them yet; False when one refused."""
        routes = memory.routes
        if routes is None:
            return True
        late = [
            (host, answer.incarnation)
            for host, answer in heard.items()
            if memory.taken.get((host, answer.incarnation)) != routes.epoch
        ]
        taken = await asyncio.gather(*(self._engines.put_routes(host, token, routes) for host, _ in late))
        memory.taken |= {one: routes.epoch for one, took in zip(late, taken, strict=True) if took}
        return all(taken)
