"""Feeds the store: one full list at the start, then watch events, and a rare audit for deletions that a watch missed.

A watch that reconnects by listing again never says which objects vanished in the gap, so every ``AUDIT_SECONDS`` the
names (metadata only, paged) are compared and the missing dropped. Objects are trimmed before they are kept: nobody
reads ``managedFields``, and of other tenants' pods only what they take from a server is of interest.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

import structlog

from xdeepserve_operator.api.names import LABEL_MANAGED_BY, MANAGED_BY, RESOURCE_DIE
from xdeepserve_operator.runtime import resources
from xdeepserve_operator.runtime.kube import UNREACHABLE, ApiError, KubeApi, Object
from xdeepserve_operator.runtime.reflector import Reflector
from xdeepserve_operator.runtime.resources import Resource
from xdeepserve_operator.runtime.store import Store

logger = structlog.get_logger(__name__)
AUDIT_SECONDS = 300.0
FIRST_BACKOFF_SECONDS, LAST_BACKOFF_SECONDS = 0.1, 10.0
MANAGED_ONLY = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
WATCHED: dict[Resource, str] = {  # resource -> label selector
    resources.SUPERPODS: "",
    resources.MODELDEPLOYMENTS: "",
    resources.TASKEXECUTORS: "",
    resources.DPGROUPS: "",
    resources.FAULTINJECTIONS: "",
    resources.SCALINGPOLICIES: "",
    resources.EXPERTPLACEMENTS: "",
    resources.NODES: "",
    resources.PODS: "",  # of all tenants: their dies count as used
    resources.DEPLOYMENTS: MANAGED_ONLY,
    resources.SERVICES: MANAGED_ONLY,
    resources.CONTROLLERREVISIONS: MANAGED_ONLY,
    resources.CONFIGMAPS: MANAGED_ONLY,  # maps of experts
}


_METADATA = frozenset({"managedFields", "selfLink", "generateName"})  # nobody reads these
_STATUS = ("phase", "podIP", "conditions")
_STATES = ("name", "state", "lastState", "started")


def trim(obj: Object) -> Object | None:
    """What is worth keeping of an object; None when nothing is.

    Of pods, that is what decisions are made on; of other tenants' pods only what they take from a server.
    """
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _METADATA}
    if obj.get("kind") != "Pod":
        return obj | {"metadata": metadata}
    spec, status = obj["spec"], obj.get("status", {})
    taking = {part: _taking(spec.get(part) or ()) for part in ("containers", "initContainers")}
    kept = {"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": spec.get("nodeName", ""), **taking}}
    if (metadata.get("labels") or {}).get(LABEL_MANAGED_BY) == MANAGED_BY:
        states = [{part: one[part] for part in _STATES if part in one} for one in status.get("containerStatuses") or ()]
        told = {part: status[part] for part in _STATUS if part in status}
        return kept | {"metadata": metadata, "status": told | {"containerStatuses": states}}
    if not any(taking.values()):
        return None
    names = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
    few = {name: metadata[name] for name in names if name in metadata}
    return kept | {"metadata": few, "status": {"phase": status.get("phase", "")}}


def _taking(containers: Iterable[Object]) -> list[Object]:
    """Containers that hold dies."""
    return [
        {"name": one["name"], "resources": one["resources"]}
        for one in containers
        if RESOURCE_DIE in (one.get("resources", {}).get("requests") or {})
    ]


# Kinds that come in thousands are followed without the framework, which takes milliseconds for every event.
FOLLOWED = (resources.PODS, resources.DPGROUPS, resources.NODES)


class Cache:
    """Keeps the store like the cluster; ``forget(uid)`` hears what is gone, ``turn()`` that an audit begins."""

    def __init__(
        self, api: KubeApi, store: Store, forget: Callable[[str], None], turn: Callable[[], None] = lambda: None
    ) -> None:
        self._api, self._store, self._forget, self._turn = api, store, forget, turn
        self.synced = False

    def changed(self, resource: Resource, obj: Object) -> None:
        """An object was added or changed."""
        kept = _keep(resource, obj)
        if kept is not None:
            self._store.put(resource.kind, kept)

    def deleted(self, resource: Resource, obj: Object) -> None:
        """An object is gone."""
        self._store.remove(resource.kind, {"apiVersion": resource.api_version, "kind": resource.kind, **obj})
        self._forget(obj["metadata"].get("uid", ""))  # last: whoever is woken may look at it once more

    async def fill(self) -> None:
        """Lists everything once, however often that takes; afterwards the store shows the whole cluster."""
        async with asyncio.TaskGroup() as group:
            for resource, selector in WATCHED.items():
                group.create_task(self._fill(resource, selector))
        self.synced = True

    async def follow(self) -> None:
        """Watches the kinds that come in thousands, for ever."""
        async with asyncio.TaskGroup() as group:
            for resource in FOLLOWED:
                heard, keep = partial(self._heard, resource), partial(self._known, resource)
                reflector = Reflector(self._api, resource, heard, labels=WATCHED[resource], trim=keep)
                group.create_task(reflector.run())

    def _heard(self, resource: Resource, kind: str, obj: Object) -> None:
        if kind == "DELETED":
            self.deleted(resource, obj)
        else:
            self._store.put(resource.kind, obj)

    def _known(self, resource: Resource, obj: Object) -> Object | None:
        """The stored object, where the watch only repeats what the answer to our own write has told; else a new one."""
        metadata = obj["metadata"]
        stored = self._store.get(resource.kind, metadata.get("namespace"), metadata["name"])
        same = stored is not None and stored["metadata"].get("resourceVersion") == metadata["resourceVersion"]
        return stored if same else _keep(resource, obj)

    async def audit(self) -> None:
        """Looks for missed deletions, for ever."""
        while True:
            await asyncio.sleep(AUDIT_SECONDS)
            self._turn()
            for resource, selector in WATCHED.items():
                try:
                    await self._audit(resource, selector)
                except (ApiError, *UNREACHABLE) as error:
                    logger.info("audit postponed", kind=resource.kind, error=str(error))

    async def _fill(self, resource: Resource, selector: str) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            try:
                items, _ = await self._api.list(resource, labels=selector)
            except (ApiError, *UNREACHABLE) as error:
                logger.warning("list to be repeated", kind=resource.kind, error=str(error))
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, LAST_BACKOFF_SECONDS)
                continue
            for item in items:
                self.changed(resource, item)
            return

    async def _audit(self, resource: Resource, selector: str) -> None:
        before = list(self._store.keys(resource.kind))
        items = await self._api.list_metadata(resource, labels=selector)
        for obj in missing(self._store, resource.kind, before, items):
            logger.warning("deletion was missed", kind=resource.kind, name=obj["metadata"]["name"])
            self.deleted(resource, obj)


def _keep(resource: Resource, obj: Object) -> Object | None:
    return trim({"apiVersion": resource.api_version, "kind": resource.kind, **obj})


def missing(store: Store, kind: str, keys: Iterable[tuple[str, str]], listed: Iterable[Object]) -> list[Object]:
    """Stored objects that a list taken after ``keys`` no longer shows; those created meanwhile are not asked."""
    alive = {item["metadata"].get("uid") for item in listed}
    stored = (store.get(kind, namespace, name) for namespace, name in keys)
    return [obj for obj in stored if obj is not None and obj["metadata"].get("uid") not in alive]
