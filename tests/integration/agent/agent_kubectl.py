"""kubectl as the tests of the emulated servers use it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import Any

from xdeepserve_cluster.controlplane import Cluster

TIMEOUT_S = 20


@dataclass(frozen=True)
class Kubectl:
    """Runs kubectl in a namespace."""

    cluster: Cluster
    namespace: str

    def run(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """The command's result, whatever it is."""
        tool, kubeconfig = str(self.cluster.tools / "kubectl"), str(self.cluster.kubeconfig)
        command = [tool, "--kubeconfig", kubeconfig, "--namespace", self.namespace, *words]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)

    def __call__(self, *words: str, stdin: str | None = None) -> str:
        """Its output; fails the test with what it complains of."""
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def apply(self, *objects: dict[str, Any]) -> None:
        """Creates objects or changes them."""
        self("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def get(self, *words: str) -> dict[str, Any]:
        """An object, or a list of them."""
        found: dict[str, Any] = json.loads(self("get", *words, "-o", "json"))
        return found

    def until(self, what: str, condition: str) -> None:
        """Waits for a condition of an object, by a watch."""
        self("wait", what, f"--for={condition}", f"--timeout={TIMEOUT_S}s")


def pod(name: str, command: list[str], *, labels: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    """A pod of one container `c`; `container` adds to it, everything else to the pod's spec."""
    container = {"name": "c", "image": "none", "command": command, **fields.pop("container", {})}
    spec = {"terminationGracePeriodSeconds": 2, "containers": [container], **fields}
    metadata = {"name": name, "labels": {"app": name, **(labels or {})}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def fault(name: str, kind: str, **target: Any) -> dict[str, Any]:
    """A FaultInjection."""
    spec = {"fault": {"type": kind}, "target": target}
    return {
        "apiVersion": "serving.xdeepserve.io/v1alpha1",
        "kind": "FaultInjection",
        "metadata": {"name": name},
        "spec": spec,
    }
