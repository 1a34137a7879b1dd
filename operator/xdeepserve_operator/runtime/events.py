"""Kubernetes Events, written in the background: a reconciler never waits for one, and a lost one harms nothing.

The log tells the same story, so that it outlives the hour that Kubernetes keeps events.

Callers speak on transitions only. The queue is bounded; when the API server is slow the newest events are dropped and
counted, never the reconciler held up. What is still queued when the Lease is lost is the next leader's to say.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

import structlog

from xdeepserve_operator.api.names import FIELD_MANAGER
from xdeepserve_operator.runtime.kube import UNREACHABLE, ApiError, KubeApi, Object
from xdeepserve_operator.runtime.metrics import EVENTS_DROPPED
from xdeepserve_operator.runtime.resources import EVENTS

logger = structlog.get_logger(__name__)
QUEUE_LIMIT = 1000
MESSAGE_LIMIT = 1024  # of the API server


def event_about(obj: Object, reason: str, message: str, *, warning: bool, now: datetime, unique: str) -> Object:
    """The Event object (core/v1) about ``obj``; cluster-wide objects are spoken of in ``default``."""
    metadata, moment = obj["metadata"], now.strftime("%Y-%m-%dT%H:%M:%SZ")
    namespace = metadata.get("namespace") or "default"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name'][:200]}.{unique}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": obj.get("apiVersion", ""),
            "kind": obj.get("kind", ""),
            "name": metadata["name"],
            "namespace": metadata.get("namespace", ""),
            "uid": metadata.get("uid", ""),
        },
        "reason": reason,
        "message": message[:MESSAGE_LIMIT],
        "type": "Warning" if warning else "Normal",
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "reportingInstance": "",
    }


class EventWriter:
    """Queue of events and the task that writes them."""

    def __init__(self, api: KubeApi, may_write: Callable[[], bool] = lambda: True) -> None:
        self._api, self._may_write = api, may_write
        self._queue: asyncio.Queue[Object] = asyncio.Queue(QUEUE_LIMIT)

    def say(self, obj: Object, reason: str, message: str, *, warning: bool = False) -> None:
        """Queues one event."""
        about = {
            "kind": obj.get("kind"),
            "namespace": obj["metadata"].get("namespace"),
            "name": obj["metadata"]["name"],
        }
        logger.info(message, reason=reason, **about)
        body = event_about(obj, reason, message, warning=warning, now=datetime.now(UTC), unique=uuid4().hex[:16])
        try:
            self._queue.put_nowait(body)
        except asyncio.QueueFull:
            EVENTS_DROPPED.inc()

    async def run(self) -> None:
        """Writes for ever."""
        while True:
            body = await self._queue.get()
            if not self._may_write():
                EVENTS_DROPPED.inc()
                continue
            try:
                await self._api.create(EVENTS, body)
            except (ApiError, *UNREACHABLE) as error:
                EVENTS_DROPPED.inc()
                logger.info("event not written", reason=body["reason"], error=str(error))
