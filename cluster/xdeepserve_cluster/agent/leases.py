"""Heartbeats: a Lease for each node in kube-node-lease, as the kubelet renews it. A lost server's falls silent."""

from __future__ import annotations

import asyncio
import logging

from xdeepserve_cluster.agent.host import Host
from xdeepserve_cluster.agent.moments import rfc3339_micro
from xdeepserve_operator.runtime.kube import UNREACHABLE, ApiError, NotFound, Object
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
            await asyncio.gather(*(self._renew(name) for name, state in self._host.servers.items() if not state.lost))
            await asyncio.sleep(self._duration_s / RENEWALS)

    async def _renew(self, name: str) -> None:
        api, spec = self._host.api, self._spec(name)
        try:
            try:
                await api.patch(LEASES, name, {"spec": {"renewTime": spec["renewTime"]}}, NAMESPACE)
            except NotFound:
                await api.create(LEASES, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
        except (ApiError, *UNREACHABLE) as error:
            logger.warning("lease of node %s: %s", name, error)

    def _spec(self, name: str) -> Object:
        now = rfc3339_micro(self._host.clock())
        return {"holderIdentity": name, "leaseDurationSeconds": self._duration_s, "renewTime": now}
