"""Kubeconfigs with the certificates inside, so that each one works wherever it is read."""

from __future__ import annotations

import base64
from pathlib import Path

import yaml

from xdeepserve_cluster.controlplane.layout import Layout
from xdeepserve_cluster.files import write_atomically


def write_kubeconfigs(layout: Layout, server: str) -> None:
    """The administrator's kubeconfig, and one for each component that is a client of `server`."""
    layout.kubeconfigs.mkdir(mode=0o700, exist_ok=True)
    write_atomically(layout.kubeconfig, kubeconfig(layout, server, "admin"))
    for user in ("kube-controller-manager", "kube-scheduler", "agent"):
        write_atomically(layout.kubeconfigs / user, kubeconfig(layout, server, user))


def kubeconfig(layout: Layout, server: str, user: str) -> str:
    """YAML of a kubeconfig whose one context is `xdeepserve-NAME`, with the client certificate of `user`."""
    cluster = f"xdeepserve-{layout.name}"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": cluster,
                "cluster": {"server": server, "certificate-authority-data": _data(layout.certificate("ca"))},
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _data(layout.certificate(user)),
                    "client-key-data": _data(layout.key(user)),
                },
            }
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    }
    return yaml.safe_dump(document, sort_keys=False)


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
