"""kubectl and helm as a user runs them, against one cluster."""

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xdeepserve_cluster.binaries import find_or_build
from xdeepserve_cluster.progress import Progress
from xdeepserve_demo.errors import CommandFailed

TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class Tools:
    """The commands in ``directory``, pointed at ``kubeconfig``; they never see the user's own settings.

    What they keep goes into ``home``, by default beside the kubeconfig.
    """

    directory: Path
    kubeconfig: Path
    home: Path | None = None

    @classmethod
    @contextmanager
    def borrowed(cls, kubeconfig: Path, progress: Progress) -> "Iterator[Tools]":
        """For a cluster that is not ours: nothing is left beside its kubeconfig. Raises ClusterError."""
        if not kubeconfig.is_file():
            raise CommandFailed(f"{kubeconfig}: there is no such kubeconfig")
        with tempfile.TemporaryDirectory(prefix="xdeepserve-") as home:
            directory = Path(home, "bin")
            directory.mkdir()
            for name, path in find_or_build(("kubectl", "helm"), progress=progress).items():
                (directory / name).symlink_to(path.resolve())
            yield cls(directory, kubeconfig.resolve(), Path(home))

    async def kubectl(self, *arguments: str, timeout: float = TIMEOUT_SECONDS) -> str:
        """Runs kubectl; returns what it printed."""
        return await self._run("kubectl", *arguments, timeout=timeout)

    async def helm(self, *arguments: str, timeout: float = TIMEOUT_SECONDS) -> str:
        """Runs helm; returns what it printed."""
        return await self._run("helm", *arguments, timeout=timeout)

    async def get(self, *arguments: str) -> Any:
        """``kubectl get … -o json``, decoded."""
        return json.loads(await self.kubectl("get", *arguments, "-o", "json"))

    async def _run(self, command: str, *arguments: str, timeout: float) -> str:
        home = self.home or self.kubeconfig.parent
        helm_home = home / "helm"
        environment = {
            "PATH": f"{self.directory}:{os.environ.get('PATH', '')}",
            "HOME": os.environ.get("HOME", str(helm_home)),
            "KUBECONFIG": str(self.kubeconfig),
            "HELM_CACHE_HOME": str(helm_home / "cache"),
            "HELM_CONFIG_HOME": str(helm_home / "config"),
            "HELM_DATA_HOME": str(helm_home / "data"),
            "KUBECACHEDIR": str(home / "kubectl-cache"),
        }
        process = await asyncio.create_subprocess_exec(
            str(self.directory / command),
            *arguments,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(timeout):
                output, errors = await process.communicate()
        except BaseException:
            process.kill()
            await process.wait()
            raise
        if process.returncode:
            raise CommandFailed(f"{command} {' '.join(arguments)}: {errors.decode().strip() or output.decode()}")
        return output.decode()
