"""Keeps the Node objects of the servers as they should be: registered, Ready, with their healthy dies.

Level-based: a change of health or any change of a Node marks the server; then the observed Node is compared with what
it should be, and written only if it differs. So a node that the controller manager found silent, or that somebody
deleted, comes back by itself. Labels, annotations and status go in one request, as the kubelet does it: for nodes, the
status subresource takes metadata too. A lost server is not written at all.
"""

from __future__ import annotations

import asyncio
import logging

from xdeepserve_cluster.agent.changes import Changes
from xdeepserve_cluster.agent.host import Host, ServerState
from xdeepserve_cluster.agent.retries import insist
from xdeepserve_cluster.agent.servers import differs, node_object
from xdeepserve_operator.api.names import AGENT_FIELD_MANAGER
from xdeepserve_operator.runtime.kube import Object
from xdeepserve_operator.runtime.resources import NODES

logger = logging.getLogger(__name__)


class NodeKeeper:
    """Writes the nodes of all servers; `port` is where their logs are served."""

    def __init__(self, host: Host, port: int) -> None:
        self._host, self._port = host, port
        self._observed: dict[str, Object] = {}
        self._dirty: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self.changes = Changes()

    def on_event(self, kind: str, node: Object) -> None:
        """A Node changed."""
        name = node["metadata"]["name"]
        if name not in self._host.servers:
            return
        if kind == "DELETED":
            self._observed.pop(name, None)
        else:
            self._observed[name] = node
        self.changes.notify()
        self.mark(name)

    def mark(self, name: str) -> None:
        """A server's node may have to be written."""
        if name not in self._queued:
            self._queued.add(name)
            self._dirty.put_nowait(name)

    def registered(self) -> bool:
        """Whether every server's node is as it should be."""
        return all(
            name in self._observed and not differs(self._observed[name], self._wanted(state))
            for name, state in self._host.servers.items()
        )

    async def run(self) -> None:
        """Writes what was marked, for ever."""
        while True:
            name = await self._dirty.get()
            self._queued.discard(name)
            state = self._host.servers[name]
            if not state.lost:
                await self._write(name, self._wanted(state))

    async def _write(self, name: str, wanted: Object) -> None:
        api, observed = self._host.api, self._observed.get(name)
        if observed is None:
            await insist(lambda: api.create(NODES, wanted), f"node {name}: registration")
        elif differs(observed, wanted):
            await insist(
                lambda: api.apply(NODES, wanted, subresource="status", field_manager=AGENT_FIELD_MANAGER),
                f"node {name}: status",
            )

    def _wanted(self, state: ServerState) -> Object:
        return node_object(state.server, state.unhealthy, self._port, self._host.clock())
