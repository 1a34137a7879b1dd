"""What a FaultInjection strikes, and what that means for the servers. Pure.

A target is resolved once: among all that it may mean, sorted by server and die, a generator with the target's seed
picks one, so the same cluster and the same seed give the same die. Dies that are broken already are not picked again.
From then on the health of the hardware is a function of the strikes that exist: taking one away mends it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from xdeepserve_operator.api.names import LABEL_EXECUTOR
from xdeepserve_operator.api.v1alpha1.fault import FaultTarget
from xdeepserve_operator.runtime.kube import Object

WHOLE_SERVER = -1
Place = tuple[str, int]  # server's name and number of the die, or WHOLE_SERVER


@dataclass(frozen=True)
class Tenant:
    """A pod with running processes, and the dies it holds."""

    namespace: str
    name: str
    executor: str
    server: str
    dies: tuple[int, ...]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Strike:
    """A fault that was carried out and is not mended."""

    kind: str  # DieKill | DieHang | NodeLoss
    server: str
    die: int


@dataclass(frozen=True)
class Health:
    """The state of all servers."""

    unhealthy: Mapping[str, frozenset[int]]
    lost: frozenset[str]


def tenant(pod: Object, dies: tuple[int, ...]) -> Tenant:
    """A pod as faults see it."""
    metadata = pod["metadata"]
    executor = metadata.get("labels", {}).get(LABEL_EXECUTOR, "")
    return Tenant(metadata["namespace"], metadata["name"], executor, pod["spec"]["nodeName"], dies)


def choose(
    kind: str,
    target: FaultTarget,
    namespace: str,
    servers: Mapping[str, Iterable[int]],
    tenants: Iterable[Tenant],
    health: Health,
) -> Place | None:
    """Where a fault strikes: a die, or a server if its kind is NodeLoss; None if nothing matches.

    `servers` gives each server's dies. A target with a taskExecutor means hardware under a pod of it in `namespace`;
    one with a node alone any die of it. A hang needs a process that can hang.
    """
    if target.task_executor or kind == "DieHang":
        places = {
            (tenant.server, die)
            for tenant in tenants
            if target.task_executor in (None, tenant.executor)
            and (target.task_executor is None or tenant.namespace == namespace)
            for die in tenant.dies
        }
    else:
        places = {(server, die) for server, dies in servers.items() for die in dies}
    places = {
        (server, die)
        for server, die in places
        if target.node in (None, server) and target.die in (None, die) and server not in health.lost
    }
    if kind == "NodeLoss":
        places = {(server, WHOLE_SERVER) for server, _ in places}
    else:
        places = {(server, die) for server, die in places if die not in health.unhealthy.get(server, ())}
    return random.Random(target.random.seed).choice(sorted(places)) if places else None


def health_of(strikes: Iterable[Strike]) -> Health:
    """What the strikes amount to."""
    unhealthy: dict[str, frozenset[int]] = {}
    lost: set[str] = set()
    for strike in strikes:
        if strike.kind == "DieKill":
            unhealthy[strike.server] = unhealthy.get(strike.server, frozenset()) | {strike.die}
        elif strike.kind == "NodeLoss":
            lost.add(strike.server)
    return Health(unhealthy, frozenset(lost))


def struck(place: Place, tenants: Iterable[Tenant]) -> list[Tenant]:
    """The pods that run there, sorted by namespace and name."""
    server, die = place
    found = [tenant for tenant in tenants if tenant.server == server and (die == WHOLE_SERVER or die in tenant.dies)]
    return sorted(found, key=lambda tenant: (tenant.namespace, tenant.name))


def no_target(target: FaultTarget, servers: Set[str]) -> str:
    """Why nothing matches, for people."""
    if target.node and target.node not in servers:
        return f"{target.node} is not one of the servers: {', '.join(sorted(servers))}"
    wanted = [
        f"{name} {value}"
        for name, value in (("node", target.node), ("die", target.die), ("taskExecutor", target.task_executor))
        if value is not None
    ]
    return f"no running pod on healthy hardware matches {', '.join(wanted)}; waiting for one"
