"""The operator's chart in a namespace that enforces the restricted Pod Security standard, and its rights as granted."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from xdeepserve_cluster.controlplane import Cluster
from xdeepserve_operator.runtime.kube import KubeApi
from xdeepserve_operator.runtime.resources import PODS

CHART = Path(__file__).parents[3] / "helm" / "xdeepserve"
NAMESPACE = "restricted"
RELEASE = "rights"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{RELEASE}-xdeepserve"


@pytest.fixture(scope="module")
def chart(installed: Cluster, kubectl: Callable[..., str]) -> list[dict[str, Any]]:
    """The chart's objects; all but the Deployment are in the cluster."""
    kubectl("create", "namespace", NAMESPACE)
    kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    command = [installed.tools / "helm", "template", RELEASE, CHART, "--namespace", NAMESPACE]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    objects = [obj for obj in yaml.safe_load_all(rendered) if obj]
    rights = yaml.safe_dump_all([obj for obj in objects if obj["kind"] != "Deployment"])
    file = installed.directory / "rights.yaml"
    file.write_text(rights, encoding="utf-8")
    kubectl("apply", "-f", str(file))
    return objects


async def test_the_pod_is_admitted_under_the_restricted_standard(chart: Any, installed: Cluster) -> None:
    (deployment,) = [obj for obj in chart if obj["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]
    pod["metadata"] |= {"name": "operator", "namespace": NAMESPACE}
    async with KubeApi.connect(installed.kubeconfig) as api:
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        stored = await api.request("POST", PODS.path(NAMESPACE), params=query, json=pod)
    assert stored["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


@pytest.mark.usefixtures("chart")
@pytest.mark.parametrize(
    ("verb", "what", "namespace", "allowed"),
    [
        ("list", "pods", "default", True),
        ("patch", "dpgroups.serving.xdeepserve.io", "default", True),
        ("patch", "taskexecutors.serving.xdeepserve.io/scale", "default", True),
        ("create", "leases.coordination.k8s.io", NAMESPACE, True),
        ("update", "leases.coordination.k8s.io/xdeepserve-operator", NAMESPACE, True),
        ("update", "leases.coordination.k8s.io/another", NAMESPACE, False),
        ("create", "leases.coordination.k8s.io", "default", False),
        ("list", "secrets", "default", False),
        ("delete", "secrets", "default", False),
        ("patch", "nodes", "", False),
        ("create", "faultinjections.serving.xdeepserve.io", "default", False),
        ("delete", "modeldeployments.serving.xdeepserve.io", "default", False),
        ("create", "pods/exec", "default", False),
    ],
)
async def test_the_account_may_do_its_work_only(
    installed: Cluster, verb: str, what: str, namespace: str, allowed: bool
) -> None:
    resource, _, rest = what.partition("/")
    plural, _, group = resource.partition(".")
    part = "name" if plural == "leases" else "subresource"
    attributes = {"verb": verb, "resource": plural, "group": group, "namespace": namespace, part: rest}
    review = {"spec": {"user": ACCOUNT, "resourceAttributes": attributes}}
    async with KubeApi.connect(installed.kubeconfig) as api:
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = await api.request("POST", path, json=review)
    assert answer["status"]["allowed"] is allowed
