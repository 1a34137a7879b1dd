"""The charts render what a restricted, shared cluster lets in, and nothing that needs to be explained away."""

from typing import Any

import pytest

CHARTS = ["xdeepserve-crds", "xdeepserve"]
VARIANTS = [
    (),
    ("replicas=2", "engineImage=engine:1"),
    ("serviceAccount.create=false", "serviceAccount.name=given"),
    ("fullnameOverride=other", "podLabels.team=serving", "nodeSelector.disk=ssd"),
    ("dashboards.enabled=true", "podMonitors.enabled=true"),
    ("userRoles=false", "image.tag=1.2.3", "priorityClassName=high", "imagePullSecrets[0].name=key"),
]
every_variant = pytest.mark.parametrize("settings", VARIANTS, ids=[" ".join(variant) for variant in VARIANTS])


def one(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [obj for obj in objects if obj["kind"] == kind]
    return found


@pytest.mark.parametrize("chart", CHARTS)
def test_lint_is_clean(helm: Any, chart: str) -> None:
    done = helm("lint", "--strict", chart)
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


@every_variant
def test_pods_meet_the_restricted_security_standard(render: Any, settings: tuple[str, ...]) -> None:
    pod = one(render("xdeepserve", *settings), "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert all(
        set(volume) <= {"name", "configMap", "emptyDir", "projected", "secret"} for volume in pod.get("volumes", [])
    )
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"]
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])


@every_variant
def test_everything_carries_the_common_labels(render: Any, settings: tuple[str, ...]) -> None:
    for obj in render("xdeepserve", *settings):
        labels = obj["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "xdeepserve"
        assert labels["app.kubernetes.io/instance"] == "xdeepserve"
        assert {"app.kubernetes.io/name", "app.kubernetes.io/version", "app.kubernetes.io/managed-by"} <= set(labels)


@every_variant
def test_the_selector_finds_the_pods_and_survives_an_upgrade(render: Any, settings: tuple[str, ...]) -> None:
    spec = one(render("xdeepserve", *settings), "Deployment")["spec"]
    selector = spec["selector"]["matchLabels"]
    assert selector.items() <= spec["template"]["metadata"]["labels"].items()
    assert not {"app.kubernetes.io/version", "helm.sh/chart"} & set(selector)


@every_variant
def test_bindings_name_the_account_that_the_pods_run_as(render: Any, settings: tuple[str, ...]) -> None:
    objects = render("xdeepserve", *settings)
    account = one(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"]
    for kind, role in (("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")):
        binding = one(objects, kind)
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "serving"}]
        assert binding["roleRef"]["name"] in [obj["metadata"]["name"] for obj in objects if obj["kind"] == role]


def test_namespaced_objects_go_to_the_release_namespace(render: Any) -> None:
    cluster_wide = {"ClusterRole", "ClusterRoleBinding"}
    for obj in render("xdeepserve"):
        assert obj["metadata"].get("namespace") == (None if obj["kind"] in cluster_wide else "serving")


def test_the_operator_is_told_what_it_reads_from_its_environment(render: Any) -> None:
    (container,) = one(render("xdeepserve", "leaseSeconds=30"), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", "xdeepserve_operator"]
    fields = {
        entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in container["env"] if "valueFrom" in entry
    }
    values = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
    assert fields == {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP"}
    assert values == {"XDEEPSERVE_ENGINE_IMAGE": container["image"], "XDEEPSERVE_LEASE_SECONDS": "30"}


def test_an_engine_image_of_its_own(render: Any) -> None:
    (container,) = one(render("xdeepserve", "engineImage=engine:1"), "Deployment")["spec"]["template"]["spec"][
        "containers"
    ]
    assert {"name": "XDEEPSERVE_ENGINE_IMAGE", "value": "engine:1"} in container["env"]


def test_probes_ask_the_port_that_is_declared(render: Any) -> None:
    (container,) = one(render("xdeepserve"), "Deployment")["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": 8081}
    probes = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {probe["port"] for probe in probes.values()} == {"http"}
    assert probes["livenessProbe"]["path"] == "/healthz"
    assert probes["readinessProbe"]["path"] == probes["startupProbe"]["path"] == "/readyz"


@pytest.mark.parametrize("release", ["xdeepserve", "prod", "r" * 53])
def test_names_fit_whatever_the_release_is_called(render: Any, release: str) -> None:
    for obj in render("xdeepserve", release=release):
        assert len(obj["metadata"]["name"]) <= 63


def test_crds_stay_when_their_chart_goes(render: Any) -> None:
    for crd in render("xdeepserve-crds"):
        assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
