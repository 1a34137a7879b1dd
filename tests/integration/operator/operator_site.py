"""A namespace on a real control plane where the operator works: how the tests ask for things and wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from xdeepserve_cluster.controlplane import Cluster
from xdeepserve_demo.assets import models
from xdeepserve_demo.install import NAMESPACE
from xdeepserve_demo.observe import Observer, condition
from xdeepserve_demo.tools import Tools
from xdeepserve_operator.api import names
from xdeepserve_operator.runtime.kube import KubeApi, NotFound
from xdeepserve_operator.runtime.resources import (
    MODELDEPLOYMENTS,
    NAMESPACES,
    PODS,
    SUPERPODS,
    TASKEXECUTORS,
    Resource,
)

MODEL = "tiny-deepseek-v3"
SUPERPOD = "pod-a"
SECONDS = 90.0  # on a machine that is busy with other things
WRITES = frozenset({"create", "apply", "patch", "delete"})
Object = dict[str, Any]


@dataclass(frozen=True)
class Site:
    """One namespace."""

    cluster: Cluster
    tools: Tools
    api: KubeApi
    namespace: str

    async def kubectl(self, *words: str) -> str:
        """kubectl in this namespace."""
        return await self.tools.kubectl("--namespace", self.namespace, *words)

    async def create(self, resource: Resource, name: str, **parts: Any) -> Object:
        """Creates an object from its parts besides metadata."""
        metadata = {"name": name, "namespace": self.namespace, **parts.pop("metadata", {})}
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        return await self.api.create(resource, {**head, **parts, "metadata": metadata})

    async def deploy(self, name: str = "chat", **changes: Any) -> None:
        """Creates a ModelDeployment: one prefill instance, one decode instance of two groups."""
        await self.create(MODELDEPLOYMENTS, name, spec=deployment_spec(**changes))

    async def execute(self, name: str, uri: str) -> None:
        """Creates a TaskExecutor by itself: one prefill instance."""
        spec = {"role": "Prefill", "chips": ["910B"], "superPodRef": {"name": SUPERPOD}}
        await self.create(TASKEXECUTORS, name, spec=spec | {"model": {"name": name, "uri": uri}})

    async def names(self, resource: Resource, labels: str = "") -> list[str]:
        """Names of what exists."""
        found, _ = await self.api.list(resource, self.namespace, labels=labels)
        return sorted(item["metadata"]["name"] for item in found)

    async def engines(self) -> list[Object]:
        """Engine pods."""
        found, _ = await self.api.list(PODS, self.namespace, labels=f"{names.LABEL_COMPONENT}=engine")
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    async def until(self, resource: Resource, name: str, test: Callable[[Object], bool], what: str) -> Object:
        """Waits until an object passes a test."""
        async with self.following(resource, name) as observer:
            return await observer.until(test, what, SECONDS)

    @asynccontextmanager
    async def following(self, resource: Resource, name: str) -> AsyncIterator[Observer]:
        """Follows an object inside the block."""
        observer = Observer(name)
        namespace = self.namespace if resource.namespaced else None
        task = asyncio.create_task(observer.follow(self.api, resource, namespace))
        try:
            yield observer
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def ready(self, name: str = "chat", resource: Resource = MODELDEPLOYMENTS) -> Object:
        """Waits until an object is Ready at its newest generation."""
        return await self.until(resource, name, _ready, "Ready")

    async def refused(self, name: str, reason: str, resource: Resource = MODELDEPLOYMENTS) -> str:
        """Waits until an object is not Ready for a reason; returns the message."""

        def says(obj: Object) -> bool:
            ready = condition(obj, "Ready")
            return (ready["status"], ready["reason"]) == ("False", reason)

        return str(condition(await self.until(resource, name, says, reason), "Ready")["message"])

    async def gone(self, resource: Resource, name: str) -> None:
        """Waits until an object does not exist."""
        async with asyncio.timeout(SECONDS):
            try:
                while True:
                    await self.api.get(resource, name, self.namespace)
                    await asyncio.sleep(0.1)
            except NotFound:
                return

    async def until_all_dies_are_free(self) -> None:
        """Waits until the SuperPod counts no die in use, earlier tests' included."""

        def free(superpod: Object) -> bool:
            return not any(count["allocated"] for count in superpod.get("status", {}).get("dies", []))

        await self.until(SUPERPODS, SUPERPOD, free, "free")

    async def operator_writes(self) -> float:
        """Requests of all operators, so far, that write something other than the Lease."""
        total = 0.0
        async with aiohttp.ClientSession() as http:
            for pod in (await self.api.list(PODS, NAMESPACE))[0]:
                async with http.get(f"http://{pod['status']['podIP']}:8081/metrics") as answer:
                    text = await answer.text()
                for family in text_string_to_metric_families(text):
                    if family.name == "xdeepserve_api_calls":
                        total += sum(
                            sample.value
                            for sample in family.samples
                            if sample.name.endswith("_total")
                            and sample.labels["verb"] in WRITES
                            and sample.labels["resource"] != "leases"
                        )
        return total


def deployment_spec(
    uri: str = "", *, prefill: Object | None = None, decode: Object | None = None, **others: Any
) -> Object:
    """The spec of a small ModelDeployment; ``prefill`` and ``decode`` change those roles."""
    two = {"dp": 2, "tp": 1, "ep": 2}
    roles = [
        {"name": "prefill", "type": "Prefill", "chips": ["910B"], **(prefill or {})},
        {"name": "decode", "type": "Decode", "chips": ["910C"], "parallelism": two, **(decode or {})},
    ]
    model = {"name": MODEL, "uri": uri or f"file://{models() / MODEL}", "maxContextTokens": 1024}
    return {"superPodRef": {"name": SUPERPOD}, "model": model, "roles": roles, **others}


@asynccontextmanager
async def site(cluster: Cluster, namespace: str, labels: dict[str, str] | None = None) -> AsyncIterator[Site]:
    """A namespace; it is deleted afterwards, with everything in it."""
    async with KubeApi.connect(cluster.kubeconfig) as api:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels or {}}}
        await api.create(NAMESPACES, body)
        here = Site(cluster, Tools(cluster.tools, cluster.kubeconfig), api, namespace)
        try:
            yield here
        finally:
            await api.delete(NAMESPACES, namespace)


def _ready(obj: Object) -> bool:
    ready = condition(obj, "Ready")
    return ready["status"] == "True" and ready["observedGeneration"] == obj["metadata"]["generation"]
