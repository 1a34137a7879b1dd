"""Heartbeats: a Lease for each node in kube-node-lease, as the kubelet renews it. A lost server's falls silent."""

from __future__ import annotations

import asyncio
import logging

from xdeepserve_cluster.agent.host import Host
from xdeepserve_cluster.agent.moments import rfc3339_micro
from xdeepserve_cluster.agent.retries import UNREACHABLE
from xdeepserve_operator.runtime.kube import ApiError, NotFound, Object
from xdeepserve_operator.runtime.resources import LEASES

logger = logging.getLogger(__name__)
NAMESPACE = "kube-node-lease"
RENEWALS = 4  # in the duration of a lease


class Heartbeats:
    """Renews the leases of all servers that are not lost, four times in `duration_s` seconds."""

    def __init__(self, host: Host, duration_s: int) -> None:
        self._host, self._duration_s = host, duration_s

    async def run(self) -> None:
        """For ever; a renewal that fails is the next one's business."""
        while True:
            for name, state in self._host.servers.items():
                if not state.lost:
                    try:
                        await self._renew(name)
                    except (ApiError, *UNREACHABLE) as error:
                        logger.warning("lease of node %s: %s", name, error)
            await asyncio.sleep(self._duration_s / RENEWALS)

    async def _renew(self, name: str) -> None:
        api = self._host.api
        spec: Object = {"renewTime": rfc3339_micro(self._host.clock())}
        try:
            await api.patch(LEASES, name, {"spec": spec}, NAMESPACE)
        except NotFound:
            spec = {**spec, "holderIdentity": name, "leaseDurationSeconds": self._duration_s}
            await api.create(LEASES, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
