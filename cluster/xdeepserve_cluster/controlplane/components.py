"""The processes of a cluster: command lines, order and readiness. Pure: nothing is started here.

Two stages: etcd and the API server start together (the API server waits for its store by itself), the others when
both are ready. Single copies need no leader election. The endpoint controllers stay off: pod addresses here are
loopback addresses, which Endpoints and EndpointSlices refuse, so that they would retry for ever.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from xdeepserve_cluster.controlplane.layout import Layout
from xdeepserve_cluster.controlplane.pki import SERVICE_ACCOUNT
from xdeepserve_cluster.controlplane.readiness import Check, FileCheck, HttpsCheck
from xdeepserve_cluster.controlplane.spec import ClusterSpec

HOST = "127.0.0.1"
SERVICE_RANGE = "10.96.0.0/16"
PORT_NAMES = ("etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "agent")
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "agent")
OFF = ("endpoints-controller", "endpointslice-controller", "endpointslice-mirroring-controller")
CLIENT_LIMITS = {"kube-api-qps": "1000", "kube-api-burst": "2000"}


@dataclass(frozen=True)
class Component:
    """A process to run: ready when all of `checks` pass, killed if it ignores TERM for `grace_s` seconds."""

    name: str
    argv: tuple[str, ...]
    stage: int
    checks: tuple[Check, ...]
    grace_s: float = 5.0


def api_server_url(ports: Mapping[str, int]) -> str:
    return f"https://{HOST}:{ports['kube-apiserver']}"


def components(
    spec: ClusterSpec, layout: Layout, ports: Mapping[str, int], tools: Mapping[str, Path]
) -> list[Component]:
    """All components of a cluster in the order of their start."""
    plan = _Plan(layout, ports, tools, spec.node_grace_seconds)
    found = [plan.etcd(), plan.api_server(), plan.controller_manager(), plan.scheduler()]
    return [*found, plan.agent(spec)] if spec.agent else found


@dataclass(frozen=True)
class _Plan:
    layout: Layout
    ports: Mapping[str, int]
    tools: Mapping[str, Path]
    node_grace_s: int

    def etcd(self) -> Component:
        url, peer_url = self._url("etcd"), self._url("etcd-peer")
        flags = {
            "name": "etcd",
            "data-dir": self.layout.etcd_data,
            "listen-client-urls": url,
            "advertise-client-urls": url,
            "listen-peer-urls": peer_url,
            "initial-advertise-peer-urls": peer_url,
            "initial-cluster": f"etcd={peer_url}",
            "unsafe-no-fsync": "true",  # a lost machine loses the cluster's pods anyway
            "log-level": "warn",
        }
        for prefix in ("", "peer-"):
            flags |= {
                f"{prefix}cert-file": self._crt("etcd"),
                f"{prefix}key-file": self._key("etcd"),
                f"{prefix}trusted-ca-file": self._crt("etcd-ca"),
                f"{prefix}client-cert-auth": "true",
            }
        return self._component("etcd", flags, 0, self._check(f"{url}/readyz", "etcd-ca", "etcd"))

    def api_server(self) -> Component:
        flags = {
            "bind-address": HOST,
            "advertise-address": HOST,
            "secure-port": self.ports["kube-apiserver"],
            "tls-cert-file": self._crt("apiserver"),
            "tls-private-key-file": self._key("apiserver"),
            "client-ca-file": self._crt("ca"),
            "etcd-servers": self._url("etcd"),
            "etcd-cafile": self._crt("etcd-ca"),
            "etcd-certfile": self._crt("apiserver-etcd"),
            "etcd-keyfile": self._key("apiserver-etcd"),
            "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
            "service-account-key-file": self.layout.pki / f"{SERVICE_ACCOUNT}.pub",
            "service-account-signing-key-file": self._key(SERVICE_ACCOUNT),
            "service-cluster-ip-range": SERVICE_RANGE,
            "authorization-mode": "Node,RBAC",
            "allow-privileged": "true",
            "endpoint-reconciler-type": "none",
            "kubelet-certificate-authority": self._crt("kubelet-ca"),
            "kubelet-client-certificate": self._crt("apiserver-kubelet"),
            "kubelet-client-key": self._key("apiserver-kubelet"),
            "kubelet-preferred-address-types": "InternalIP,Hostname",
            "profiling": "false",
        }
        return self._component("kube-apiserver", flags, 0, self._api_check("/readyz"))

    def controller_manager(self) -> Component:
        flags = {
            **self._api_client("kube-controller-manager"),
            "controllers": ",".join(["*", *(f"-{name}" for name in OFF)]),
            "use-service-account-credentials": "true",
            "service-account-private-key-file": self._key(SERVICE_ACCOUNT),
            "root-ca-file": self._crt("ca"),
            "cluster-signing-cert-file": self._crt("ca"),
            "cluster-signing-key-file": self._key("ca"),
            "service-cluster-ip-range": SERVICE_RANGE,
            # On one machine a silent node is a lost node: the defaults (5 s, 50 s) are for real networks.
            "node-monitor-period": "1s",
            "node-monitor-grace-period": f"{self.node_grace_s}s",
        }
        health = self._check(f"{self._url('kube-controller-manager')}/healthz", "ca", "admin")
        # Its first visible work, and what every pod without a service account of its own needs.
        works = self._api_check("/api/v1/namespaces/default/serviceaccounts/default")
        return self._component("kube-controller-manager", flags, 1, health, works)

    def scheduler(self) -> Component:
        health = self._check(f"{self._url('kube-scheduler')}/healthz", "ca", "admin")
        return self._component("kube-scheduler", self._api_client("kube-scheduler"), 1, health)

    def agent(self, spec: ClusterSpec) -> Component:
        flags: dict[str, object] = {
            "kubeconfig": self.layout.kubeconfigs / "agent",
            "state-dir": self.layout.agent,
            "shm-dir": self.layout.shared_memory,
            "servers": spec.servers,
            "superpod": spec.superpod,
            "serving-cert": self._crt("agent-serving"),
            "serving-key": self._key("agent-serving"),
            "client-ca": self._crt("kubelet-ca"),
            "port": self.ports["agent"],
            "ready-file": self.layout.agent_ready,
            "lease-seconds": self.node_grace_s,
        }
        if spec.models:
            flags["models-dir"] = spec.models.absolute()
        # -P: what lies in the directory where the user stands must not be imported.
        argv = (sys.executable, "-P", "-m", "xdeepserve_cluster.agent", *_arguments(flags))
        return Component("agent", argv, 1, (FileCheck(self.layout.agent_ready),), grace_s=10.0)

    def _api_client(self, name: str) -> dict[str, object]:
        kubeconfig = self.layout.kubeconfigs / name
        return {
            "kubeconfig": kubeconfig,
            "authentication-kubeconfig": kubeconfig,
            "authentication-skip-lookup": "true",  # there is no aggregation layer whose settings it would look up
            "client-ca-file": self._crt("ca"),
            "authorization-kubeconfig": kubeconfig,
            "bind-address": HOST,
            "secure-port": self.ports[name],
            "tls-cert-file": self._crt(f"{name}-serving"),
            "tls-private-key-file": self._key(f"{name}-serving"),
            "leader-elect": "false",
            "profiling": "false",
            **CLIENT_LIMITS,
        }

    def _component(self, name: str, flags: Mapping[str, object], stage: int, *checks: Check) -> Component:
        return Component(name, (str(self.tools[name]), *_arguments(flags)), stage, checks)

    def _api_check(self, path: str) -> HttpsCheck:
        return self._check(f"{api_server_url(self.ports)}{path}", "ca", "admin")

    def _check(self, url: str, authority: str, client: str) -> HttpsCheck:
        return HttpsCheck(url, self._crt(authority), self._crt(client), self._key(client))

    def _url(self, port: str) -> str:
        return f"https://{HOST}:{self.ports[port]}"

    def _crt(self, name: str) -> Path:
        return self.layout.certificate(name)

    def _key(self, name: str) -> Path:
        return self.layout.key(name)


def _arguments(flags: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items()]
