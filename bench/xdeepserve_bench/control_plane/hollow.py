"""A cluster of hollow servers with the operator beside it, all processes of this machine, gone afterwards.

Everything is started with the cluster's mark in its environment, so that taking the cluster down finds it even after a
crash of the benchmark.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from prometheus_client.parser import text_string_to_metric_families

from xdeepserve_bench.control_plane.manifests import IMAGE, NAMESPACE, PEER, SERVERS, nodes, super_pod
from xdeepserve_bench.processes import Cost, cost
from xdeepserve_cluster import controlplane, processes
from xdeepserve_cluster.binaries import find_or_build
from xdeepserve_cluster.controlplane import Cluster, ClusterSpec
from xdeepserve_cluster.controlplane.layout import MARKER, Layout
from xdeepserve_cluster.processes import ProcessId
from xdeepserve_cluster.progress import Progress
from xdeepserve_demo.install import NAMESPACE as SYSTEM
from xdeepserve_demo.install import install
from xdeepserve_demo.tools import Tools
from xdeepserve_operator.runtime.kube import KubeApi, Object
from xdeepserve_operator.runtime.resources import NAMESPACES, NODES, SERVICEACCOUNTS, SUPERPODS, Resource

# Pods of hollow servers get addresses in 127.64…191.0.0/16, another for every process that runs a cluster; the emulated
# servers' pods live in 127.16.0.0/12. Operators listen at the upper end, which no pod reaches.
NETWORK = f"127.{64 + os.getpid() % 128}"
OPERATOR_HOST, HEALTH_PORT = f"{NETWORK}.255.1", 8081
SECOND_HOST = f"{NETWORK}.255.2"
LEASE_SECONDS = 120  # hollow nodes renew in a quarter of it: hundreds of them must not be what is measured
OPERATOR = [sys.executable, "-P", "-m", "xdeepserve_operator"]
AT_ONCE = 32
WRITES = frozenset({"create", "apply", "patch", "delete", "put"})


@dataclass
class Hollow:
    """The running cluster. ``operators`` are its processes, by identity."""

    cluster: Cluster
    api: KubeApi
    operators: dict[str, ProcessId] = field(default_factory=dict)
    _kubeconfig: Path | None = None

    async def add_superpod(self, name: str, servers: int = SERVERS) -> None:
        """Registers servers and their SuperPod."""
        await together(self.api.create(NODES, node) for node in nodes(name, time.time(), servers))
        await self.api.create(SUPERPODS, super_pod(name))

    async def start_operator(self, identity: str = "operator", host: str = OPERATOR_HOST) -> ProcessId:
        """Starts an operator with the rights of the chart's service account; returns when it is ready."""
        environment = await self.operator_environment(identity, host)
        argv = OPERATOR
        process = self.operators[identity] = self.spawn(identity, argv, environment)
        async with asyncio.timeout(60), aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(f"http://{host}:{HEALTH_PORT}/readyz") as answer:
                        if answer.status == 200:
                            return process
                except aiohttp.ClientError:
                    pass
                if not process.alive():
                    raise RuntimeError(f"the operator ended; see {self.log(identity)}")
                await asyncio.sleep(0.1)

    async def operator_environment(self, identity: str = "operator", host: str = OPERATOR_HOST) -> dict[str, str]:
        """What an operator finds in its environment."""
        if self._kubeconfig is None:
            self._kubeconfig = await self._service_account()
        return {
            "KUBECONFIG": str(self._kubeconfig),
            "POD_IP": host,
            "POD_NAME": identity,
            "POD_NAMESPACE": SYSTEM,
            "XDEEPSERVE_ENGINE_IMAGE": IMAGE.name,
        }

    def stop(self, process: ProcessId) -> None:
        """TERM, then KILL."""
        processes.stop([process], 10.0)

    def spawn(self, name: str, argv: list[str], environment: dict[str, str] | None = None) -> ProcessId:
        """Starts a process that belongs to the cluster."""
        marked = {**os.environ, MARKER: str(self.cluster.directory), **(environment or {})}
        return processes.spawn(argv, self.log(name), marked)

    def log(self, name: str) -> Path:
        """Output of a process."""
        return self.cluster.directory / "logs" / f"{name}.log"

    def usage(self, identity: str = "operator") -> Cost:
        """Memory and processor time of an operator."""
        return cost(self.operators[identity].pid)

    async def samples(self, host: str = OPERATOR_HOST) -> list[Any]:
        """The operator's metrics."""
        async with aiohttp.ClientSession() as http, http.get(f"http://{host}:{HEALTH_PORT}/metrics") as answer:
            families = text_string_to_metric_families(await answer.text())
            return [sample for family in families for sample in family.samples]

    async def writes(self) -> dict[str, float]:
        """Requests of the operator that wrote something other than its Lease, so far, by verb and resource."""
        return {
            f"{sample.labels['verb']} {sample.labels['resource']}": sample.value
            for sample in await self.samples()
            if sample.name == "xdeepserve_api_calls_total"
            and sample.labels["verb"] in WRITES
            and sample.labels["resource"] != "leases"
        }

    async def _service_account(self) -> Path:
        accounts, _ = await self.api.list(SERVICEACCOUNTS, SYSTEM)
        account = next(name for one in accounts if (name := one["metadata"]["name"]) != "default")
        answer = await self.api.request(
            "POST",
            SERVICEACCOUNTS.path(SYSTEM, account, "token"),
            json={
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": 86400},
            },
        )
        path = self.cluster.directory / "operator-kubeconfig"
        _write_kubeconfig(self.cluster, path, answer["status"]["token"])
        return path


@asynccontextmanager
async def hollow_cluster(root: Path, progress: Progress) -> AsyncIterator[Hollow]:
    """Control plane, charts (no operator pod), kwok and the stand-in; no server yet."""
    kwok = find_or_build(["kwok"], progress=progress)["kwok"]
    spec = ClusterSpec(name=f"hollow-{os.getpid()}", agent=False, node_grace_seconds=LEASE_SECONDS)
    try:
        cluster = await asyncio.to_thread(controlplane.up, spec, root=root, progress=progress)
        async with KubeApi.connect(cluster.kubeconfig) as api:
            hollow = Hollow(cluster, api)
            await install(Tools(cluster.tools, cluster.kubeconfig), "replicas=0")
            await api.create(NAMESPACES, {"metadata": {"name": PEER}})
            config = str(cluster.kubeconfig)
            hollow.spawn("kwok", [str(kwok), *_kwok_flags(config)])
            module = "xdeepserve_bench.control_plane.standin"
            hollow.spawn("standin", [sys.executable, "-P", "-m", module, "--kubeconfig", config])
            yield hollow
    finally:
        await asyncio.to_thread(controlplane.down, spec.name, root=root, progress=progress)


async def together(requests: Iterable[Any]) -> None:
    """Awaits all, a bounded number at once."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(request: Any) -> None:
        async with gate:
            await request

    async with asyncio.TaskGroup() as group:
        for request in requests:
            group.create_task(one(request))


async def names_of(api: KubeApi, resource: Resource, namespace: str = NAMESPACE) -> list[str]:
    """Names of all objects of a kind in a namespace."""
    items, _ = await api.list(resource, namespace)
    return [str(item["metadata"]["name"]) for item in items]


def owner_uids(obj: Object) -> list[str]:
    """Uids of an object's owners."""
    return [str(one["uid"]) for one in obj["metadata"].get("ownerReferences") or ()]


def _write_kubeconfig(running: Cluster, path: Path, token: str) -> None:
    """The administrator's kubeconfig with another user; the authority as a file, for the operator may be killed."""
    document = yaml.safe_load(running.kubeconfig.read_text())
    for cluster in document["clusters"]:
        del cluster["cluster"]["certificate-authority-data"]
        cluster["cluster"]["certificate-authority"] = str(
            Layout(running.directory.parent, running.name).certificate("ca")
        )
    for user in document["users"]:
        user["user"] = {"token": token}
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document))


def _kwok_flags(kubeconfig: str) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--config={Path(__file__).with_name('stages.yaml')}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        f"--cidr={NETWORK}.0.1/16",
        "--node-ip=127.0.0.1",
        f"--node-lease-duration-seconds={LEASE_SECONDS}",
        "--v=ERROR",
    ]
