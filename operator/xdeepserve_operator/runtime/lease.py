"""Leader election by a ``coordination.k8s.io`` Lease: two operators may run, one works.

The holder renews twice in ``renew_seconds``, so that one renewal that is answered late costs nothing. A candidate
takes over when it has watched the same record unchanged for ``lease_seconds`` of its own monotonic clock, so clocks of
different machines are never compared. Every write carries the resourceVersion it was decided on, so of two candidates
one loses with a conflict. A holder that could not renew for ``lease_seconds - renew_seconds`` stops itself before
anyone else may start: ``held()`` turns false by the clock alone, even while a request hangs; a write begun just before
has ``renew_seconds`` to end (see ``writer``).
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from xdeepserve_operator.runtime.kube import UNREACHABLE, AlreadyExists, ApiError, Conflict, KubeApi, NotFound, Object
from xdeepserve_operator.runtime.resources import LEASES

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LeaseSettings:
    """Where the Lease is and how fast it turns; durations in seconds."""

    namespace: str
    identity: str
    name: str = "xdeepserve-operator"
    lease_seconds: float = 12.0
    renew_seconds: float = 4.0


class Lease:
    """One contender for the Lease."""

    def __init__(
        self, api: KubeApi, settings: LeaseSettings, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._api, self._settings, self._monotonic = api, settings, monotonic
        self._renewed_at: float | None = None
        self._seen: tuple[str, float] = ("", 0.0)  # (resourceVersion of a foreign record, when first seen)

    def held(self) -> bool:
        """Whether this process may write now."""
        limit = self._settings.lease_seconds - self._settings.renew_seconds
        return self._renewed_at is not None and self._monotonic() - self._renewed_at < limit

    async def acquire(self) -> None:
        """Returns when the Lease is ours."""
        while not await self._try():  # noqa: ASYNC110 - the Lease changes on the server
            await asyncio.sleep(self._settings.renew_seconds / 4)
        logger.info("lease acquired by %s", self._settings.identity)

    async def keep(self) -> None:
        """Renews until the Lease is lost, then returns; the caller must stop all writing at once."""
        while self.held():  # noqa: ASYNC110
            await asyncio.sleep(self._settings.renew_seconds / (2 if await self._try() else 8))
        logger.error("lease lost by %s", self._settings.identity)

    async def release(self) -> None:
        """Lets the next one start without waiting; failure is harmless."""
        if not self.held():
            return
        self._renewed_at = None
        try:
            current = await self._api.get(LEASES, self._settings.name, self._settings.namespace)
            if current["spec"].get("holderIdentity") == self._settings.identity:
                await self._api.patch(
                    LEASES,
                    self._settings.name,
                    [
                        {"op": "test", "path": "/metadata/resourceVersion", "value": _version(current)},
                        {"op": "replace", "path": "/spec/holderIdentity", "value": ""},
                    ],
                    self._settings.namespace,
                )
        except (ApiError, *UNREACHABLE) as error:
            logger.info("lease not released: %s", error)

    async def _try(self) -> bool:
        started = self._monotonic()
        try:
            async with asyncio.timeout(self._settings.renew_seconds):
                if await self._write():
                    self._renewed_at = started
                    return True
        except (AlreadyExists, Conflict):
            pass
        except (ApiError, *UNREACHABLE) as error:
            logger.warning("lease not renewed: %s", error)
        return False

    async def _write(self) -> bool:
        settings = self._settings
        try:
            current = await self._api.get(LEASES, settings.name, settings.namespace)
        except NotFound:
            await self._api.create(LEASES, self._record(None))
            return True
        holder = current["spec"].get("holderIdentity") or ""
        if holder not in ("", settings.identity) and not self._expired(current):
            return False
        await self._api.request("PUT", LEASES.path(settings.namespace, settings.name), json=self._record(current))
        return True

    def _expired(self, current: Object) -> bool:
        version, now = _version(current), self._monotonic()
        if self._seen[0] != version:
            self._seen = (version, now)
        return now - self._seen[1] >= self._settings.lease_seconds

    def _record(self, current: Object | None) -> Object:
        settings, now = self._settings, datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = dict(current["spec"]) if current else {}
        if spec.get("holderIdentity") != settings.identity:
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + (1 if current else 0)
            spec["acquireTime"] = now
        spec |= {
            "holderIdentity": settings.identity,
            "leaseDurationSeconds": max(1, round(settings.lease_seconds)),
            "renewTime": now,
        }
        metadata = {"name": settings.name, "namespace": settings.namespace}
        if current:
            metadata["resourceVersion"] = _version(current)
        return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}


def _version(obj: Object) -> str:
    return str(obj["metadata"]["resourceVersion"])
