"""An API server as far as the agent needs one, in memory; every write is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from xdeepserve_cluster.agent.addresses import Addresses
from xdeepserve_cluster.agent.host import Host, ServerState, Settings
from xdeepserve_cluster.agent.servers import parse_servers
from xdeepserve_operator.runtime.kube import KubeApi, NotFound, Object
from xdeepserve_operator.runtime.resources import Resource

SERVER = "pod-a-910c-0"


class FakeApi:
    """`objects` can be read by (plural, name); `writes` are (verb, plural, body or name), in order."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.writes: list[tuple[str, str, Any]] = []
        self.fail: Callable[[], Exception | None] = lambda: None
        self._version = 0
        self._written = asyncio.Condition()

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        try:
            return self.objects[resource.plural, name]
        except KeyError:
            raise NotFound(404, "NotFound", f"{resource.plural} {name}") from None

    async def apply(self, resource: Resource, body: Object, **options: Any) -> Object:
        return await self._write("apply", resource.plural, body)

    async def create(self, resource: Resource, body: Object) -> Object:
        return await self._write("create", resource.plural, body)

    async def delete(self, resource: Resource, name: str, namespace: str | None = None, **options: Any) -> None:
        await self._write("delete", resource.plural, {"name": name, **options})

    async def statuses(self, holds: Callable[[Object], bool], plural: str = "pods") -> Object:
        """Waits until the status that was applied last holds."""
        await self.until(lambda: holds(self.last(plural)))
        return self.last(plural)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits until it holds after some write."""
        async with asyncio.timeout(5), self._written:
            await self._written.wait_for(holds)

    def last(self, plural: str = "pods") -> Object:
        """The status applied last; empty before the first."""
        bodies = self.applied(plural)
        return cast(Object, bodies[-1]["status"]) if bodies else {}

    def applied(self, plural: str = "pods") -> list[Object]:
        return [body for verb, kind, body in self.writes if (verb, kind) == ("apply", plural)]

    async def _write(self, verb: str, plural: str, body: Any) -> Object:
        await asyncio.sleep(0)
        if error := self.fail():
            raise error
        self._version += 1
        async with self._written:
            self.writes.append((verb, plural, body))
            self._written.notify_all()
        return {"metadata": {"resourceVersion": str(self._version)}}


def make_host(api: FakeApi, directory: Path, servers: str = "910C=1") -> Host:
    """A host of emulated servers with nothing but `api` behind it."""
    (directory / "shm").mkdir()
    return Host(
        settings=Settings(directory, directory / "shm", None, "https://127.0.0.1:1", "127.0.0.1", "1"),
        api=cast(KubeApi, api),
        servers={server.name: ServerState(server) for server in parse_servers(servers, "pod-a")},
        addresses=Addresses(str(directory)),
    )
