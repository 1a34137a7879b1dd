"""Kubeconfigs: the administrator's, and those of the control plane's own processes.

The administrator's has the certificates inside, so that it works wherever it is read. The others name the files, which
lie beside them: a client writes what is inside into temporary files, and one that is killed leaves its key there.
"""

from __future__ import annotations

import base64
from pathlib import Path

import yaml

from xdeepserve_cluster.controlplane.layout import Layout
from xdeepserve_cluster.files import write_atomically


def write_kubeconfigs(layout: Layout, server: str) -> None:
    """The administrator's kubeconfig, and one for each component that is a client of `server`."""
    layout.kubeconfigs.mkdir(mode=0o700, exist_ok=True)
    write_atomically(layout.kubeconfig, kubeconfig(layout, server, "admin", inside=True))
    for user in ("kube-controller-manager", "kube-scheduler", "agent"):
        write_atomically(layout.kubeconfigs / user, kubeconfig(layout, server, user, inside=False))


def kubeconfig(layout: Layout, server: str, user: str, *, inside: bool) -> str:
    """YAML of a kubeconfig whose one context is `xdeepserve-NAME`, with the client certificate of `user`."""
    cluster = f"xdeepserve-{layout.name}"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": cluster,
                "cluster": {"server": server} | _part("certificate-authority", layout.certificate("ca"), inside),
            }
        ],
        "users": [
            {
                "name": user,
                "user": _part("client-certificate", layout.certificate(user), inside)
                | _part("client-key", layout.key(user), inside),
            }
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    }
    return yaml.safe_dump(document, sort_keys=False)


def _part(field: str, path: Path, inside: bool) -> dict[str, str]:
    if inside:
        return {f"{field}-data": base64.b64encode(path.read_bytes()).decode()}
    return {field: str(path.absolute())}
