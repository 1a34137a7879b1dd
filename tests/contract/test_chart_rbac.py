"""The operator may do what its code does, and no more."""

from typing import Any

import pytest

READ = {"get", "list", "watch"}
OWN = READ | {"create", "patch", "delete"}
SERVING = "serving.xdeepserve.io"
# (group, resource) -> verbs, by what runtime/ asks for: cache.py reads, writer.py writes, lease.py elects.
CLUSTER_WIDE = {
    (SERVING, "superpods"): READ,
    (SERVING, "modeldeployments"): READ,
    (SERVING, "faultinjections"): READ,
    (SERVING, "scalingpolicies"): READ,
    (SERVING, "expertplacements"): OWN,
    (SERVING, "taskexecutors"): OWN,
    (SERVING, "dpgroups"): OWN | {"deletecollection"},
    (SERVING, "superpods/status"): {"patch"},
    (SERVING, "modeldeployments/status"): {"patch"},
    (SERVING, "taskexecutors/status"): {"patch"},
    (SERVING, "dpgroups/status"): {"patch"},
    (SERVING, "faultinjections/status"): {"patch"},
    (SERVING, "scalingpolicies/status"): {"patch"},
    (SERVING, "expertplacements/status"): {"patch"},
    (SERVING, "taskexecutors/scale"): {"patch"},
    (SERVING, "modeldeployments/finalizers"): {"update"},
    (SERVING, "taskexecutors/finalizers"): {"update"},
    (SERVING, "dpgroups/finalizers"): {"update"},
    (SERVING, "expertplacements/finalizers"): {"update"},
    ("", "pods"): OWN | {"deletecollection"},
    ("", "services"): READ | {"create", "patch"},
    ("apps", "deployments"): READ | {"create", "patch"},
    ("apps", "controllerrevisions"): OWN,
    ("", "configmaps"): OWN,
    ("", "nodes"): READ,
    ("", "secrets"): {"get", "create"},
    ("", "events"): {"create"},
}
Rules = dict[tuple[str, str], set[str]]


def granted(role: dict[str, Any]) -> Rules:
    result: Rules = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                result.setdefault((group, resource), set()).update(rule["verbs"])
    return result


@pytest.fixture
def roles(render: Any) -> dict[str, dict[str, Any]]:
    return {
        f"{obj['kind']}/{obj['metadata']['name']}": obj
        for obj in render("xdeepserve")
        if obj["kind"] in ("ClusterRole", "Role")
    }


def test_the_operator_is_granted_what_it_uses(roles: dict[str, Any]) -> None:
    assert granted(roles["ClusterRole/xdeepserve"]) == CLUSTER_WIDE


def test_the_lease_is_the_only_one_it_may_change(roles: dict[str, Any]) -> None:
    create, change = roles["Role/xdeepserve"]["rules"]
    assert (create["resources"], create["verbs"]) == (["leases"], ["create"])
    assert (change["resources"], change["resourceNames"]) == (["leases"], ["xdeepserve-operator"])
    assert set(change["verbs"]) == {"get", "update", "patch"}


def test_nothing_is_granted_by_wildcard(roles: dict[str, Any]) -> None:
    for name, role in roles.items():
        for rule in role["rules"]:
            words = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert not [word for word in words if "*" in word], name
            assert "nonResourceURLs" not in rule


def test_only_administrators_of_a_namespace_break_hardware(roles: dict[str, Any]) -> None:
    aggregated = {
        level: {
            (resource, verb)
            for role in roles.values()
            if role["metadata"]["labels"].get(f"rbac.authorization.k8s.io/aggregate-to-{level}") == "true"
            for (_, resource), verbs in granted(role).items()
            for verb in verbs
        }
        for level in ("view", "edit", "admin")
    }
    assert aggregated["view"] < aggregated["edit"] < aggregated["admin"]
    assert {verb for _, verb in aggregated["view"]} == READ
    assert ("modeldeployments", "create") in aggregated["edit"]
    assert ("dpgroups", "create") not in aggregated["admin"]
    assert aggregated["admin"] - aggregated["edit"] == {
        ("faultinjections", verb) for verb in ("create", "update", "patch", "delete", "deletecollection")
    }
