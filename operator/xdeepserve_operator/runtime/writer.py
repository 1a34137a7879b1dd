"""All writes of the controllers, each only if it would change something, and only while the Lease is held.

``apply`` and ``update_status`` use server-side apply. A write is skipped when the same body was written before and the
stored object still holds every field of it; a foreign edit breaks the second test and is undone. Where the API
server stores a value in another spelling the second test can never hold, so the object's generation stands in for it.
A write that was begun under the Lease is given up after ``write_seconds``, before another operator may begin. At most
``IN_FLIGHT`` writes are on their way at once, so that a slow API server still answers each of them, and the Lease.
Every answer goes into the store at once: a reconciler reads its own writes.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from xdeepserve_operator.api.names import FIELD_MANAGER
from xdeepserve_operator.runtime import resources
from xdeepserve_operator.runtime.cache import trim
from xdeepserve_operator.runtime.events import EventWriter
from xdeepserve_operator.runtime.kube import AlreadyExists, Conflict, KubeApi, NotFound, Object
from xdeepserve_operator.runtime.resources import Resource
from xdeepserve_operator.runtime.store import Store
from xdeepserve_operator.runtime.tokens import Tokens

RESOURCES: dict[str, Resource] = {
    resource.kind: resource
    for resource in (
        resources.SUPERPODS,
        resources.MODELDEPLOYMENTS,
        resources.TASKEXECUTORS,
        resources.DPGROUPS,
        resources.FAULTINJECTIONS,
        resources.SCALINGPOLICIES,
        resources.EXPERTPLACEMENTS,
        resources.CONFIGMAPS,
        resources.PODS,
        resources.NODES,
        resources.DEPLOYMENTS,
        resources.CONTROLLERREVISIONS,
        resources.SERVICES,
    )
}


IN_FLIGHT = 32


class NotLeader(Exception):
    """A write was attempted without the Lease; nothing was sent."""


def holds(wanted: Any, actual: Any) -> bool:
    """Whether every field of ``wanted`` stands in ``actual`` with the same value; lists match item by item."""
    if isinstance(wanted, dict):
        return isinstance(actual, dict) and all(holds(value, actual.get(name)) for name, value in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(actual, list)
            and len(wanted) == len(actual)
            and all(holds(mine, theirs) for mine, theirs in zip(wanted, actual, strict=True))
        )
    return bool(wanted == actual)


@dataclass(frozen=True)
class _Written:
    body: str  # as JSON
    generation: int | None  # of the stored object, when its spelling differs from ours


class Writer:
    """Implements the controllers' ``Cluster``."""

    def __init__(
        self,
        api: KubeApi,
        store: Store,
        events: EventWriter,
        may_write: Callable[[], bool],
        *,
        write_seconds: float = 4.0,
    ) -> None:
        self._api, self._store, self._events = api, store, events
        self._may_write, self._write_seconds = may_write, write_seconds
        self._gate = asyncio.Semaphore(IN_FLIGHT)
        self._written: dict[tuple[str, str], _Written] = {}  # by (object | status, uid)
        self._tokens = Tokens(api, self._fenced)

    async def apply(self, kind: str, body: Object) -> Object:
        """Makes the object be like ``body``; creates it when absent."""
        metadata = body["metadata"]
        current = self._store.get(kind, metadata.get("namespace"), metadata["name"])
        if current is not None and self._unchanged("object", current, body, current):
            return current
        async with self._fenced():
            stored = await self._api.apply(RESOURCES[kind], body, field_manager=FIELD_MANAGER)
        self._keep(kind, stored)
        self._remember(kind, "object", stored, body, stored)
        return stored

    async def create(self, kind: str, body: Object) -> Object:
        """Creates the object; when the name is taken already, returns what holds it."""
        metadata = body["metadata"]
        resource = RESOURCES[kind]
        document = {"apiVersion": resource.api_version, "kind": kind, **body}
        try:
            async with self._fenced():
                stored = await self._api.create(resource, document)
        except AlreadyExists:
            stored = await self._api.get(resource, metadata["name"], metadata.get("namespace"))
        self._keep(kind, stored)
        return stored

    async def strip(self, kind: str, obj: Object, fields: Sequence[str]) -> Object:
        """Takes fields away, unless the object has changed meanwhile."""
        metadata = obj["metadata"]
        known = {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]}
        steps = [known, *({"op": "remove", "path": field} for field in fields)]
        async with self._fenced():
            stored = await self._api.patch(RESOURCES[kind], metadata["name"], steps, metadata.get("namespace"))
        self._keep(kind, stored)
        return stored

    async def update_status(self, kind: str, obj: Object, status: Object) -> None:
        """Makes our part of the status be ``status``; an object that is gone is left alone."""
        metadata = obj["metadata"]
        current = self._store.get(kind, metadata.get("namespace"), metadata["name"])
        if current is None or self._unchanged("status", current, status, current.get("status")):
            return
        named = {name: metadata[name] for name in ("name", "namespace", "uid") if metadata.get(name)}
        try:
            async with self._fenced():
                stored = await self._api.apply(
                    RESOURCES[kind],
                    {"metadata": named, "status": status},
                    field_manager=FIELD_MANAGER,
                    subresource="status",
                )
        except NotFound:
            return
        self._keep(kind, stored)
        self._remember(kind, "status", stored, status, stored.get("status"))

    async def scale(self, executor: Object, replicas: int) -> None:
        """Sets a TaskExecutor's replicas through ``/scale``, as kubectl and autoscalers do."""
        metadata = executor["metadata"]
        async with self._fenced():
            await self._api.patch(
                resources.TASKEXECUTORS,
                metadata["name"],
                {"spec": {"replicas": replicas}},
                metadata["namespace"],
                subresource="scale",
            )

    async def delete(self, kind: str, obj: Object, *, grace_seconds: int | None = None) -> None:
        """Deletes this life of the object; absent is fine."""
        metadata = obj["metadata"]
        with suppress(Conflict):  # another life holds the name: this one is gone
            async with self._fenced():
                await self._api.delete(
                    RESOURCES[kind],
                    metadata["name"],
                    metadata.get("namespace"),
                    grace_seconds=grace_seconds,
                    uid=metadata["uid"],
                )

    async def delete_all(self, kind: str, namespace: str, labels: Mapping[str, str], fields: Mapping[str, str]) -> None:
        """Deletes all objects with these labels and fields, by one request: they should be few."""
        async with self._fenced():
            await self._api.delete_collection(RESOURCES[kind], namespace, labels, fields)

    def forget(self, uid: str) -> None:
        """Drops what is remembered of an object that is gone."""
        for part in ("object", "status"):
            self._written.pop((part, uid), None)

    async def token(self, namespace: str, secret_name: str, owner: Object) -> str:
        """The control token in the Secret's key ``token``; made on first use, owned by ``owner``."""
        return await self._tokens.get(namespace, secret_name, owner)

    def event(self, obj: Object, reason: str, message: str, *, warning: bool = False) -> None:
        """Says that something changed."""
        self._events.say(obj, reason, message, warning=warning)

    @asynccontextmanager
    async def _fenced(self) -> AsyncIterator[None]:
        async with self._gate:
            if not self._may_write():
                raise NotLeader("the Lease is not held; another operator may be writing")
            async with asyncio.timeout(self._write_seconds):
                yield

    def _keep(self, kind: str, stored: Object) -> None:
        """Into the store goes what a watch would put there."""
        self._store.put(kind, trim({"apiVersion": RESOURCES[kind].api_version, "kind": kind, **stored}) or stored)

    def _unchanged(self, part: str, current: Object, wanted: Object, actual: Any) -> bool:
        known = self._written.get((part, current["metadata"]["uid"]))
        if known is None or known.body != json.dumps(wanted, sort_keys=True):
            return False
        if known.generation is not None:
            return bool(known.generation == current["metadata"].get("generation", 0))
        return holds(wanted, actual)

    def _remember(self, kind: str, part: str, stored: Object, wanted: Object, actual: Any) -> None:
        metadata = stored["metadata"]
        current = self._store.get(kind, metadata.get("namespace"), metadata["name"])
        if current is None or current["metadata"]["uid"] != metadata["uid"]:
            return  # it is gone, and has been forgotten already
        generation = None if holds(wanted, actual) else metadata.get("generation", 0)
        self._written[(part, metadata["uid"])] = _Written(json.dumps(wanted, sort_keys=True), generation)
