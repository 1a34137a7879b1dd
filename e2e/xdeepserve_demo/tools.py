"""kubectl and helm as a user runs them, against one cluster."""

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xdeepserve_demo.errors import CommandFailed

TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class Tools:
    """The commands in ``directory``, pointed at ``kubeconfig``; they never see the user's own settings."""

    directory: Path
    kubeconfig: Path

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
        helm_home = self.kubeconfig.parent / "helm"
        environment = {
            "PATH": f"{self.directory}:{os.environ.get('PATH', '')}",
            "HOME": os.environ.get("HOME", str(helm_home)),
            "KUBECONFIG": str(self.kubeconfig),
            "HELM_CACHE_HOME": str(helm_home / "cache"),
            "HELM_CONFIG_HOME": str(helm_home / "config"),
            "HELM_DATA_HOME": str(helm_home / "data"),
            "KUBECACHEDIR": str(self.kubeconfig.parent / "kubectl-cache"),
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
