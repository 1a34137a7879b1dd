"""What surrounds the processes of one pod: its directory with volumes, logs and tokens, and the API to read from."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Set
from dataclasses import dataclass
from pathlib import Path

from xdeepserve_cluster.agent import volumes
from xdeepserve_cluster.agent.host import Host, ServerState
from xdeepserve_cluster.agent.podspec import Objects, Reference
from xdeepserve_cluster.agent.service_account import PodTokens
from xdeepserve_operator.runtime.kube import NotFound, Object
from xdeepserve_operator.runtime.resources import CONFIGMAPS, SECRETS

_RESOURCES = {"ConfigMap": CONFIGMAPS, "Secret": SECRETS}


@dataclass
class Sandbox:
    """`pod` carries its final annotations and address; `changed` asks for a new status, `warn` writes an event."""

    host: Host
    server: ServerState
    pod: Object
    changed: Callable[[], None]
    warn: Callable[[str, str], None]  # (reason, message)

    def __post_init__(self) -> None:
        self._tokens = PodTokens(self.host, self.pod)

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def address(self) -> str:
        return str(self.pod["status"]["podIP"])

    @property
    def directory(self) -> Path:
        return self.host.settings.pod_directory(self.pod["metadata"]["uid"])

    @property
    def home(self) -> Path:
        return self.directory / "home"

    @property
    def grace_s(self) -> float:
        """Seconds between TERM and KILL."""
        return float(self.pod["spec"].get("terminationGracePeriodSeconds", 30))

    async def prepare(self) -> None:
        """Makes the directories and fills the volumes. Raises ConfigError, ApiError; may be called again."""
        for path in (self.directory, self.home, self.directory / "termination"):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        objects = await self.read(volumes.references(self.pod))
        tokens = await self._tokens.request()
        for volume in self.pod["spec"].get("volumes", []):
            found = volumes.files(volume, self.pod, objects, tokens)
            if "hostPath" not in volume:
                volumes.write(volumes.directory(volume, self.directory), found)

    async def keep_tokens(self) -> None:
        """Writes new tokens before the old ones expire, for ever; returns at once if the pod has none."""
        await self._tokens.keep(self._renew_tokens)

    async def read(self, references: Set[Reference]) -> Objects:
        """Reads ConfigMaps and Secrets of the pod's namespace. Raises ApiError."""
        wanted = sorted(references)
        return dict(zip(wanted, await asyncio.gather(*map(self._read_one, wanted)), strict=True))

    async def _renew_tokens(self) -> None:
        tokens = await self._tokens.request()
        for volume in self.pod["spec"].get("volumes", []):
            if found := volumes.token_files(volume, tokens):
                volumes.write(volumes.directory(volume, self.directory), found)

    async def _read_one(self, reference: Reference) -> Object | None:
        kind, name = reference
        try:
            return await self.host.api.get(_RESOURCES[kind], name, self.pod["metadata"]["namespace"])
        except NotFound:
            return None


def remove_directory(path: Path) -> None:
    """Removes what a pod had on disk; links are not followed."""
    shutil.rmtree(path, ignore_errors=True)
