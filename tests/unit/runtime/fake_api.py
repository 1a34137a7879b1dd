"""A tiny in-memory API server for the runtime's own tests: resourceVersions, conflicts, failures on demand."""

import asyncio
import copy
from typing import Any

from xdeepserve_operator.runtime.kube import AlreadyExists, Conflict, NotFound


class FakeApi:
    """Implements the parts of ``KubeApi`` that leases and the writer use."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.calls: list[str] = []
        self.down = False
        self._version = 0

    async def get(self, resource, name, namespace=None):
        await self._enter("get")
        return copy.deepcopy(self._find(resource, name, namespace))

    async def create(self, resource, body):
        await self._enter("create")
        key = self._key(resource, body["metadata"]["name"], body["metadata"].get("namespace"))
        if key in self.objects:
            raise AlreadyExists(409, "AlreadyExists", str(key))
        return self._store(key, body, {"uid": f"uid-{self._version}", "generation": 1})

    async def apply(self, resource, body, *, field_manager, subresource=None, force=True):
        await self._enter("apply")
        metadata = body["metadata"]
        key = self._key(resource, metadata["name"], metadata.get("namespace"))
        if subresource and key not in self.objects:
            raise NotFound(404, "NotFound", str(key))
        before = self.objects.get(key, {"metadata": {"uid": f"uid-{self._version}", "generation": 1}})
        merged = {**before, **body, "metadata": {**before["metadata"], **metadata}}
        return self._store(key, merged, {})

    async def patch(self, resource, name, patch, namespace=None, *, subresource=None):
        await self._enter("patch")
        obj = copy.deepcopy(self._find(resource, name, namespace))
        for step in patch:
            *path, last = step["path"].strip("/").split("/")
            target = obj
            for part in path:
                target = target[part]
            if step["op"] == "test" and target[last] != step["value"]:
                raise Conflict(422, "Invalid", "test failed")
            target[last] = step["value"]
        return self._store(self._key(resource, name, namespace), obj, {})

    async def request(self, method, path, json):
        await self._enter(method.lower())
        key = next(k for k in self.objects if path.endswith(f"/{k[0]}/{k[2]}"))
        if json["metadata"]["resourceVersion"] != self.objects[key]["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "changed meanwhile")
        return self._store(key, json, {})

    async def _enter(self, verb: str) -> None:
        self.calls.append(verb)
        await asyncio.sleep(0)  # others run between deciding and writing
        if self.down:
            raise TimeoutError

    def _find(self, resource, name, namespace):
        key = self._key(resource, name, namespace)
        if key not in self.objects:
            raise NotFound(404, "NotFound", str(key))
        return self.objects[key]

    def _store(self, key, body, extra):
        self._version += 1
        stored = copy.deepcopy(body)
        stored["metadata"] = {**extra, **stored["metadata"], "resourceVersion": str(self._version)}
        self.objects[key] = stored
        return copy.deepcopy(stored)

    @staticmethod
    def _key(resource, name, namespace):
        return resource.plural, namespace or "", name
