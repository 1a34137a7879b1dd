"""Which commands there are, where each one's source is, and how it tells its version."""

from __future__ import annotations

from dataclasses import dataclass

from xdeepserve_cluster.binaries.modules import pinned_version
from xdeepserve_cluster.binaries.versions import Version


@dataclass(frozen=True)
class Tool:
    """A command: `package` is its main package in the module file `module`.

    `stamps` are the variables that give the binary its version, with `{version}`, `{major}` and `{minor}` filled
    in at build time. `skew` is how many minors a copy found on the machine may be away from the pinned one.
    """

    name: str
    module: str
    package: str
    ask: tuple[str, ...] = ("--version",)
    stamps: tuple[str, ...] = ()
    skew: int = 0

    @property
    def version(self) -> Version:
        return pinned_version(self.module)

    def linker_flags(self) -> str:
        """No symbol tables (half the size), and the version stamps."""
        version = self.version
        fields = {"version": f"v{version}", "major": version.major, "minor": version.minor}
        return " ".join(["-s -w", *(f"-X {stamp.format(**fields)}" for stamp in self.stamps)])


def _kubernetes(name: str, ask: tuple[str, ...] = ("--version",), skew: int = 0) -> Tool:
    base = "k8s.io/component-base/version"
    stamps = (
        f"{base}.gitVersion={{version}}",
        f"{base}.gitMajor={{major}}",
        f"{base}.gitMinor={{minor}}",
        f"{base}.gitCommit=unknown",
        f"{base}.gitTreeState=clean",
    )
    return Tool(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", ask, stamps, skew)


def _helm() -> Tool:
    # Without the last two, `helm template` takes the cluster for a Kubernetes 1.20 and refuses newer charts.
    kubernetes = pinned_version("kubernetes")
    chartutil = "helm.sh/helm/v3/pkg/chartutil"
    stamps = (
        "helm.sh/helm/v3/internal/version.version={version}",
        f"{chartutil}.k8sVersionMajor={kubernetes.major}",
        f"{chartutil}.k8sVersionMinor={kubernetes.minor}",
    )
    return Tool("helm", "helm", "helm.sh/helm/v3/cmd/helm", ("version", "--short"), stamps)


CLUSTER_TOOLS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "helm")
TOOLS = {
    tool.name: tool
    for tool in (
        Tool("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
        _kubernetes("kube-apiserver"),
        _kubernetes("kube-controller-manager"),
        _kubernetes("kube-scheduler"),
        _kubernetes("kubectl", ask=("version", "--client"), skew=1),
        _helm(),
        Tool("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    )
}
