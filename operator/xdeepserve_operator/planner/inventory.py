"""Status of a SuperPod: dies by chip, servers by name."""

from collections.abc import Mapping, Sequence
from typing import Any

from xdeepserve_operator.api.v1alpha1.superpod import DieCounts, ServerStatus, SuperPodStatus
from xdeepserve_operator.planner.readiness import Verdict
from xdeepserve_operator.planner.servers import Server


def inventory(generation: int, servers: Sequence[Server]) -> dict[str, Any]:
    """The status without conditions. Servers with a mismatch are listed, and their dies not counted."""
    chips = sorted({server.chip for server in servers if server.mismatch is None})
    return SuperPodStatus(
        observed_generation=generation,
        dies=[_count(chip, [one for one in servers if one.chip == chip and one.mismatch is None]) for chip in chips],
        nodes=[
            ServerStatus(
                name=server.name,
                pool=server.pool,
                ready=server.health.schedulable,
                free=server.free,
                faulted=sorted(server.health.unhealthy),
                mismatch=server.mismatch,
            )
            for server in servers
        ],
    ).to_wire()


def superpod_verdict(spec: Mapping[str, Any], servers: Sequence[Server]) -> Verdict:
    """Ready of a SuperPod: every pool has a server that can be used."""
    for pool in spec["pools"]:
        mine = [server for server in servers if server.pool == pool["name"]]
        if any(server.usable for server in mine):
            continue
        lies = [f"{server.name}: {server.mismatch}" for server in mine if server.mismatch is not None]
        if lies:
            return Verdict(False, "Mismatch", f"pool {pool['name']} has no usable server; {lies[0]}")
        return Verdict(False, "NoServers", f"pool {pool['name']} has no server that is ready and schedulable")
    return Verdict(True, "Ready", "every pool has servers")


def _count(chip: Any, servers: Sequence[Server]) -> DieCounts:
    return DieCounts(
        chip=chip,
        capacity=sum(server.capacity for server in servers),
        allocated=sum(server.used for server in servers),
        faulted=sum(len(server.health.unhealthy) for server in servers),
        largest_free_block=max((server.free for server in servers), default=0),
    )
