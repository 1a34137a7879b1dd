"""One cluster with the operator in it and a model on top: the steps that demo, benchmark and tests share."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xdeepserve_cluster import controlplane
from xdeepserve_cluster.controlplane import Cluster, ClusterSpec
from xdeepserve_cluster.progress import Progress
from xdeepserve_demo.assets import asset, models
from xdeepserve_demo.install import install
from xdeepserve_demo.observe import Observer, condition
from xdeepserve_demo.tools import Tools
from xdeepserve_operator.runtime.kube import KubeApi
from xdeepserve_operator.runtime.resources import MODELDEPLOYMENTS

NAMESPACE = "default"
DEPLOYMENT = "chat"
MODEL = "austen-deepseek-v3"
READY_SECONDS = 90.0


@dataclass
class Session:
    """A running cluster and the ways to talk to it."""

    cluster: Cluster
    tools: Tools
    api: KubeApi
    deployment: Observer = field(default_factory=lambda: Observer(DEPLOYMENT))
    _following: asyncio.Task[None] | None = None

    @property
    def checkpoint(self) -> Path:
        """The model's files."""
        return models() / MODEL

    async def install(self) -> None:
        """Installs the charts, waits for the operator and begins to follow the deployment."""
        await install(self.tools)
        follow = self.deployment.follow(self.api, MODELDEPLOYMENTS, NAMESPACE)
        self._following = asyncio.create_task(follow)

    async def stop(self) -> None:
        """Stops following."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def apply(self, path: Path | None = None) -> None:
        """``kubectl apply`` of the quickstart, or of another file."""
        await self.tools.kubectl("apply", "-f", str(path or asset("examples") / "quickstart.yaml"))

    async def wait_ready(self, timeout: float = READY_SECONDS) -> None:
        """``kubectl wait`` for the ModelDeployment, as a user does."""
        await self.tools.kubectl(
            *("wait", "--for=condition=Ready", f"modeldeployment/{DEPLOYMENT}", f"--timeout={timeout:.0f}s"),
            timeout=timeout + 5,
        )

    async def endpoint(self, timeout: float = READY_SECONDS) -> str:
        """Base URL of the OpenAI API once the deployment is Ready."""
        ready = await self.deployment.until(lambda obj: condition(obj, "Ready")["status"] == "True", "Ready", timeout)
        return str(ready["status"]["endpoint"])

    async def pods(self) -> list[dict[str, Any]]:
        """The deployment's pods by name."""
        found = await self.tools.get("pods", "--selector", "app.kubernetes.io/managed-by=xdeepserve")
        return sorted(found["items"], key=lambda pod: str(pod["metadata"]["name"]))


@asynccontextmanager
async def session(
    spec: ClusterSpec, progress: Progress, *, keep: bool = False, root: Path | None = None
) -> AsyncIterator[Session]:
    """Brings the cluster up, and down again at the end unless ``keep``, whatever happened in between."""
    try:
        cluster = await asyncio.to_thread(controlplane.up, spec, root=root, progress=progress)
        async with KubeApi.connect(cluster.kubeconfig) as api:
            current = Session(cluster, Tools(cluster.tools, cluster.kubeconfig), api)
            try:
                yield current
            finally:
                await current.stop()
    finally:
        if not keep:
            with progress.step("everything taken down"):
                await asyncio.to_thread(controlplane.down, spec.name, root=root)
