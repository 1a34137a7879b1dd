"""An API server over HTTP, in this process, with everything that a real one does to its clients on a bad day.

Objects, resourceVersions, paged lists, label selectors, watches with bookmarks, server-side apply (maps are merged,
lists replaced), status as a subresource, preconditions, discovery. What goes wrong is asked for by the test:

* ``refuse``: the next requests that match get a status (429 with Retry-After, 500 …);
* ``hang``: requests that match are held until ``release``; what they wanted to write is not written if the client left;
* ``compact``: resourceVersions up to now are forgotten: watches and pages that start there get 410;
* ``drop_watches``: all watch connections end in the middle;
* ``vanish``: an object goes without any event, as in the gap between two watches;
* ``freeze``: reads answer from how it was until ``thaw``, watches say nothing: a stale replica.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from xdeepserve_operator.runtime import resources
from xdeepserve_operator.runtime.resources import Resource

Object = dict[str, Any]
Key = tuple[str, str, str]  # plural, namespace, name
KNOWN = [value for value in vars(resources).values() if isinstance(value, Resource)]
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True)
class Target:
    """What a request's path speaks of."""

    resource: Resource
    namespace: str
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        return self.resource.plural, self.namespace, self.name


@dataclass
class _Trouble:
    matches: Callable[[web.Request], bool]
    status: int
    headers: dict[str, str]
    left: int


@dataclass
class ApiServer:
    """What happened, as (method, path): ``requests`` in the order of arrival, ``written`` those that changed
    something, ``abandoned`` those whose client left while they were held.
    """

    objects: dict[Key, Object] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    written: list[tuple[str, str]] = field(default_factory=list)
    abandoned: list[tuple[str, str]] = field(default_factory=list)
    version: int = 1
    url: str = ""
    _log: list[tuple[int, str, Object]] = field(default_factory=list)
    _oldest: int = 0
    _trouble: list[_Trouble] = field(default_factory=list)
    _held: Callable[[web.Request], bool] | None = None
    _released: asyncio.Event = field(default_factory=asyncio.Event)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _generation_of_watches: int = 0
    _frozen: dict[Key, Object] | None = None

    def refuse(
        self, status: int, matches: Callable[[web.Request], bool] = lambda _: True, *, times: int = 1, **headers: str
    ) -> None:
        self._trouble.append(_Trouble(matches, status, {k.replace("_", "-"): v for k, v in headers.items()}, times))

    def hang(self, matches: Callable[[web.Request], bool]) -> None:
        self._held = matches
        self._released.clear()

    def release(self) -> None:
        self._held = None
        self._released.set()

    def compact(self) -> None:
        self._oldest = self.version

    def drop_watches(self) -> None:
        self._generation_of_watches += 1
        self._announce()

    def vanish(self, resource: Resource, namespace: str, name: str) -> None:
        del self.objects[resource.plural, namespace, name]
        self.version += 1

    def freeze(self) -> None:
        self._frozen = copy.deepcopy(self.objects)

    def thaw(self) -> None:
        self._frozen = None
        self._announce()

    def put(self, resource: Resource, body: Object) -> Object:
        """Someone else's write: creates or replaces."""
        metadata = body["metadata"]
        return self._store((resource.plural, metadata.get("namespace", ""), metadata["name"]), resource, body)

    def remove(self, resource: Resource, namespace: str, name: str) -> None:
        """Someone else's deletion."""
        gone = self.objects.pop((resource.plural, namespace, name))
        self._say("DELETED", resource, gone)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits until it holds after some request or write."""
        async with asyncio.timeout(10):
            while not holds():
                await self._news.wait()

    def writes_to(self, plural: str) -> list[tuple[str, str]]:
        return [(method, path) for method, path in self.written if f"/{plural}" in path]

    # Requests.

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        self._announce()
        if self._held is not None and self._held(request):
            try:
                await self._released.wait()
            except asyncio.CancelledError:
                self.abandoned.append((request.method, request.path))
                self._announce()
                raise
        for trouble in self._trouble:
            if trouble.left and trouble.matches(request):
                trouble.left -= 1
                return _status(trouble.status, "Refused", "asked for by the test", trouble.headers)
        if (found := _discovery(request.path)) is not None:
            return web.json_response(found)
        target = _parse(request.path)
        if target is None:
            return _status(404, "NotFound", request.path)
        if request.method in WRITES:
            return await self._write(request, target)
        if request.query.get("watch"):
            return await self._watch(request, target)
        return self._get(target) if target.name else self._list(request, target)

    def _get(self, target: Target) -> web.Response:
        found = (self._frozen if self._frozen is not None else self.objects).get(target.key)
        return web.json_response(found) if found is not None else _status(404, "NotFound", str(target.key))

    def _list(self, request: web.Request, target: Target) -> web.Response:
        start, _, version = request.query.get("continue", f"0@{self.version}").partition("@")
        if int(version) < self._oldest:
            return _status(410, "Expired", "the provided continue parameter is too old")
        shown = self._frozen if self._frozen is not None else self.objects
        matching = [obj for key, obj in sorted(shown.items()) if self._matches(request, target, key, obj)]
        limit = int(request.query.get("limit", "0")) or len(matching)
        page: list[Object] | None = matching[int(start) : int(start) + limit]
        metadata: Object = {"resourceVersion": version}
        if int(start) + limit < len(matching):
            metadata["continue"] = f"{int(start) + limit}@{version}"
        if "PartialObjectMetadata" in request.headers.get("Accept", ""):
            page = [{"metadata": obj["metadata"]} for obj in page] or None
        return web.json_response({"kind": f"{target.resource.kind}List", "metadata": metadata, "items": page})

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        seen = int(request.query.get("resourceVersion") or "0")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        mine = self._generation_of_watches
        while mine == self._generation_of_watches:
            if seen < self._oldest:
                gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
                await _line(response, "ERROR", gone)
                return response
            news = self._news
            for version, kind, obj in [] if self._frozen is not None else list(self._log):
                key = (target.resource.plural, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
                if version > seen and obj["kind"] == target.resource.kind and self._matches(request, target, key, obj):
                    await _line(response, kind, obj)
            if self._frozen is None:
                seen = self.version
            await news.wait()
        if request.transport is not None:
            request.transport.abort()
        return response

    async def _write(self, request: web.Request, target: Target) -> web.Response:
        text = await request.text()
        body = json.loads(text) if text else {}
        current = self.objects.get(target.key)
        if request.method == "POST":
            name = body["metadata"]["name"]
            key = (target.resource.plural, target.namespace, name)
            if key in self.objects:
                return _status(409, "AlreadyExists", f"{key} already exists")
            return self._answer(request, self._store(key, target.resource, body), 201)
        if request.method == "DELETE" and not target.name:
            return self._delete_collection(request, target)
        if request.method == "DELETE":
            return self._delete(request, target, current, body)
        kind = request.headers.get("Content-Type", "")
        if current is None and ("apply" not in kind or target.subresource):
            return _status(404, "NotFound", str(target.key))
        if request.method == "PUT":
            if body["metadata"].get("resourceVersion") != (current or {})["metadata"]["resourceVersion"]:
                return _status(409, "Conflict", "the object has been modified")
            merged = body
        elif "json-patch" in kind:
            merged = copy.deepcopy(current or {})
            if not _patch(merged, body):
                return _status(422, "Invalid", "the test operation failed")
        else:
            expected = body["metadata"].get("resourceVersion") if "metadata" in body else None
            if expected is not None and expected != (current or {"metadata": {}})["metadata"].get("resourceVersion"):
                return _status(409, "Conflict", "the object has been modified")
            merged = _merge(copy.deepcopy(current or {}), body)
        return self._answer(request, self._store(target.key, target.resource, merged))

    def _delete(self, request: web.Request, target: Target, current: Object | None, options: Object) -> web.Response:
        if current is None:
            return _status(404, "NotFound", str(target.key))
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted not in (None, current["metadata"]["uid"]):
            return _status(409, "Conflict", "the UID in the precondition does not match")
        del self.objects[target.key]
        self._say("DELETED", target.resource, current)
        return self._answer(request, {"kind": "Status", "status": "Success"})

    def _delete_collection(self, request: web.Request, target: Target) -> web.Response:
        for key in [key for key, obj in self.objects.items() if self._matches(request, target, key, obj)]:
            self._say("DELETED", target.resource, self.objects.pop(key))
        return self._answer(request, {"kind": f"{target.resource.kind}List", "metadata": {}, "items": None})

    def _answer(self, request: web.Request, body: Object, status: int = 200) -> web.Response:
        self.written.append((request.method, request.path))
        self._announce()
        return web.json_response(body, status=status)

    def _matches(self, request: web.Request, target: Target, key: Key, obj: Object) -> bool:
        labels, fields = (
            dict(part.split("=") for part in request.query.get(selector, "").split(",") if part)
            for selector in ("labelSelector", "fieldSelector")
        )
        return (
            key[0] == target.resource.plural
            and target.namespace in ("", key[1])
            and labels.items() <= (obj["metadata"].get("labels") or {}).items()
            and all(_at(obj, path) == value for path, value in fields.items())
        )

    def _store(self, key: Key, resource: Resource, body: Object) -> Object:
        before = self.objects.get(key)
        stored = copy.deepcopy(body)
        metadata = stored["metadata"]
        old = before["metadata"] if before else {"uid": f"uid-{self.version + 1}", "generation": 0}
        changed = before is None or before.get("spec") != stored.get("spec")
        metadata |= {"uid": old["uid"], "generation": old["generation"] + int(changed)}
        metadata.setdefault("creationTimestamp", "2025-01-01T00:00:00Z")
        stored |= {"apiVersion": resource.api_version, "kind": resource.kind}
        self.objects[key] = stored
        self._say("MODIFIED" if before else "ADDED", resource, stored)
        return copy.deepcopy(stored)

    def _say(self, kind: str, resource: Resource, obj: Object) -> None:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self._log.append((self.version, kind, copy.deepcopy(obj)))
        self._announce()

    def _announce(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def write_kubeconfig(path: Path, url: str) -> Path:
    """How a client finds the server and says who it is."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": {"token": "t"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


async def serve(server: ApiServer) -> web.AppRunner:
    """Starts listening on a free port of the loopback interface; the caller cleans up."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    # A client that leaves cancels what it asked for, as in the real one.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    return runner


def _parse(path: str) -> Target | None:
    parts = path.strip("/").split("/")
    base, rest = (("", parts[1]), parts[2:]) if parts[0] == "api" else ((parts[1], parts[2]), parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    for resource in KNOWN:
        if (resource.group, resource.version, resource.plural) == (*base, rest[0]):
            return Target(resource, namespace, *rest[1:3])
    return None


def _discovery(path: str) -> Object | None:
    parts = path.strip("/").split("/")
    if parts == ["api"]:
        return {"versions": ["v1"]}
    if parts == ["apis"]:
        groups = {resource.group: resource.version for resource in KNOWN if resource.group}
        return {
            "groups": [
                {
                    "name": group,
                    "preferredVersion": {"version": version},
                    "versions": [{"groupVersion": f"{group}/{version}", "version": version}],
                }
                for group, version in groups.items()
            ]
        }
    if parts == ["version"]:
        return {"major": "1", "minor": "34"}
    if (parts[0], len(parts)) not in (("api", 2), ("apis", 3)):
        return None
    group = "" if parts[0] == "api" else parts[1]
    listed = [resource for resource in KNOWN if (resource.group, resource.version) == (group, parts[-1])]
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    return {
        "resources": [
            {
                "name": one.plural,
                "singularName": one.kind.lower(),
                "kind": one.kind,
                "namespaced": one.namespaced,
                "verbs": verbs,
            }
            for one in listed
        ]
    }


def _at(obj: Object, path: str) -> Any:
    """The field that a field selector names: two words with a dot."""
    part, _, name = path.partition(".")
    return obj.get(part, {}).get(name)


def _merge(into: Object, body: Object) -> Object:
    for name, value in body.items():
        if value is None:
            into.pop(name, None)
        else:
            into[name] = _merge(into.get(name) or {}, value) if isinstance(value, dict) else value
    return into


def _patch(obj: Object, steps: list[Object]) -> bool:
    for step in steps:
        *path, last = step["path"].strip("/").split("/")
        target = obj
        for part in path:
            target = target[part]
        if step["op"] == "test" and target.get(last) != step["value"]:
            return False
        target[last] = step["value"]
    return True


async def _line(response: web.StreamResponse, kind: str, obj: Object) -> None:
    await response.write(json.dumps({"type": kind, "object": obj}).encode() + b"\n")


def _status(code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code, headers=headers)
