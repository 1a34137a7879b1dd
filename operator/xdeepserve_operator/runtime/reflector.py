"""Keeps a local picture of a collection: list, watch, and after a gap list again and report the differences.

Invariant: the sequence of events given to ``on_event`` is one that the API server could have sent without any gap,
so a consumer needs no knowledge of reconnects: after a relist, objects that vanished are reported DELETED, new ones
ADDED, and those with another resourceVersion MODIFIED. Errors never end it; it backs off up to 30 s. Consumers that
keep less than whole objects say so by ``trim``, and what it makes nothing of is never reported; what is gone comes
whole, for it is not kept.
"""

import asyncio
import logging
from collections.abc import Callable

from xdeepserve_operator.runtime.kube import UNREACHABLE, ApiError, Gone, KubeApi, Object
from xdeepserve_operator.runtime.resources import Resource

logger = logging.getLogger(__name__)
Key = tuple[str, str]
MAX_BACKOFF_SECONDS = 30.0
_STANDING = frozenset({"ADDED", "MODIFIED"})


def key_of(obj: Object) -> Key:
    """(namespace, name); the namespace is empty for cluster-wide objects."""
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


class Reflector:
    """Feeds ``on_event(type, object)`` for one collection until cancelled."""

    def __init__(
        self,
        api: KubeApi,
        resource: Resource,
        on_event: Callable[[str, Object], None],
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        trim: Callable[[Object], Object | None] = lambda obj: obj,
    ) -> None:
        self._api, self._resource, self._on_event = api, resource, on_event
        self._namespace, self._labels, self._fields = namespace, labels, fields
        self._trim = trim
        self._known: dict[Key, Object] = {}
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Runs for ever; ``synced`` is set after the first list was delivered."""
        backoff = 0.1
        version: str | None = None
        while True:
            try:
                if version is None:
                    version = await self._relist()
                    self.synced.set()
                async for kind, obj in self._api.watch(
                    self._resource,
                    self._namespace,
                    resource_version=version,
                    labels=self._labels,
                    fields=self._fields,
                ):
                    version = obj["metadata"]["resourceVersion"]
                    backoff = 0.1
                    if kind == "DELETED" and key_of(obj) in self._known:
                        self._deliver(kind, obj)
                    elif kind in _STANDING and (kept := self._trim(obj)) is not None:
                        self._deliver(kind, kept)
            except Gone:
                version = None
            except (ApiError, *UNREACHABLE, ValueError) as error:
                logger.info("watch of %s interrupted: %s", self._resource.plural, error)
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, MAX_BACKOFF_SECONDS)

    async def _relist(self) -> str:
        items, version = await self._api.list(self._resource, self._namespace, labels=self._labels, fields=self._fields)
        kept = [one for item in items if (one := self._trim(item)) is not None]
        current = {key_of(item): item for item in kept}
        for key in [key for key in self._known if key not in current]:
            self._deliver("DELETED", self._known[key])
        for key, item in current.items():
            before = self._known.get(key)
            if before is None:
                self._deliver("ADDED", item)
            elif before["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
                self._deliver("MODIFIED", item)
        return version

    def _deliver(self, kind: str, obj: Object) -> None:
        if kind == "DELETED":
            self._known.pop(key_of(obj), None)
        else:
            self._known[key_of(obj)] = obj
        self._on_event(kind, obj)
