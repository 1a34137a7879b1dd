"""Writes one pod's status: only when it differs from what was written last, and never two writes at once.

Changes that come while a write is under way fold into the next one, so a pod that starts and is ready at once costs
one write. The annotation that names its dies goes with the same request. Server-side apply needs no read and no
resourceVersion; the uid makes sure that a new pod of the same name is not meant.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from xdeepserve_cluster.agent.host import Host, ServerState
from xdeepserve_cluster.agent.retries import insist
from xdeepserve_cluster.agent.status import PodFacts, pod_status
from xdeepserve_operator.api.names import AGENT_FIELD_MANAGER
from xdeepserve_operator.runtime.kube import Object
from xdeepserve_operator.runtime.resources import PODS

logger = logging.getLogger(__name__)


class StatusPublisher:
    """`pod()` gives the pod as last observed; `facts` is read at every write."""

    def __init__(self, host: Host, server: ServerState, pod: Callable[[], Object], facts: PodFacts) -> None:
        self._host, self._server, self._pod, self._facts = host, server, pod, facts
        self._changed = asyncio.Event()
        self._written: Object = {}
        self._version = 0  # resourceVersion of our last write
        self.annotations: dict[str, str] = {}

    def changed(self) -> None:
        """Something that the status shows may have changed."""
        self._changed.set()

    def observed(self, pod: Object) -> None:
        """The pod changed in the API. If somebody turned a condition of ours since our last write, it is written again.

        The controller manager does that to pods of a node that it takes for dead.
        """
        if not self._written or int(pod["metadata"]["resourceVersion"]) <= self._version:
            return
        if _states(self._written["status"]).items() <= _states(pod.get("status", {})).items():
            return
        self._written = {}
        self.changed()

    async def run(self) -> None:
        """Publishes changes for ever; when the pod is gone, somebody will cancel this."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._server.changes.until(lambda: not self._server.lost)
            try:
                await self.publish()
            except Exception:
                logger.exception("status of pod %s", self._pod()["metadata"]["name"])

    async def publish(self, *, pointless: Callable[[], bool] = lambda: False) -> None:
        """Writes the status now if it differs, unless that turns out to be pointless."""
        body = self._body()
        if body == self._written:
            return

        async def write() -> None:
            answer = await self._host.api.apply(PODS, body, subresource="status", field_manager=AGENT_FIELD_MANAGER)
            self._version = int(answer["metadata"]["resourceVersion"])

        self._written = body
        await insist(write, f"status of pod {body['metadata']['name']}", pointless=pointless)

    def _body(self) -> Object:
        pod = self._pod()
        metadata: Object = {key: pod["metadata"][key] for key in ("name", "namespace", "uid")}
        if self.annotations:
            metadata["annotations"] = self.annotations
        known: Object = self._written.get("status") or pod.get("status", {})
        status = pod_status(pod, self._facts, known.get("conditions", []), self._host.clock())
        return {"metadata": metadata, "status": status}


def _states(status: Object) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in status.get("conditions", [])}
