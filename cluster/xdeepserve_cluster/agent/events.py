"""Warnings about pods as Events, for `kubectl describe`. Best effort; one that repeats is written once."""

from __future__ import annotations

import asyncio
import logging

from xdeepserve_cluster.agent.host import Host
from xdeepserve_cluster.agent.moments import rfc3339
from xdeepserve_operator.runtime.kube import UNREACHABLE, ApiError, Object
from xdeepserve_operator.runtime.resources import EVENTS

logger = logging.getLogger(__name__)
MAX_MESSAGE = 1000


class PodEvents:
    """The warnings about one pod."""

    def __init__(self, host: Host, pod: Object) -> None:
        self._host, self._metadata, self._node = host, pod["metadata"], pod["spec"]["nodeName"]
        self._last: tuple[str, str] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def warn(self, reason: str, message: str) -> None:
        """Writes a warning in the background."""
        if (reason, message) == self._last:
            return
        self._last = (reason, message)
        task = asyncio.create_task(self._write(reason, message[:MAX_MESSAGE]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, reason: str, message: str) -> None:
        name, namespace, now = self._metadata["name"], self._metadata["namespace"], rfc3339(self._host.clock())
        pod = {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": namespace, "uid": self._metadata["uid"]}
        event = {
            "metadata": {"generateName": f"{name}.", "namespace": namespace},
            "involvedObject": pod,
            "type": "Warning",
            "reason": reason,
            "message": message,
            "source": {"component": "kubelet", "host": self._node},
            "reportingComponent": "kubelet",
            "reportingInstance": self._node,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._host.api.create(EVENTS, event)
        except (ApiError, *UNREACHABLE) as error:
            logger.info("event for pod %s: %s", name, error)
