"""values.schema.json refuses what would render nonsense, and says which value it was."""

from typing import Any

import pytest


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("replicas=-1", "replicas"),
        ("replicas=many", "replicas"),
        ("replica=1", "replica"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("image.repository=", "repository"),
        ("image.tag=a b", "tag"),
        ("image.digest=sha256:0", "digest"),
        ("leaseSeconds=1", "leaseSeconds"),
        ("serviceAccount.name=Upper", "name"),
        ("resources.limits.memory=lots", "memory"),
        ("resources.requests.gpu=1", "gpu"),
        ("userRoles=perhaps", "userRoles"),
        ("dashboards.enabled=maybe", "enabled"),
        ("podMonitors.deployments[0].name=chat", "namespace"),
        ("nodeSelector=ssd", "nodeSelector"),
        ("imagePullSecrets[0]=key", "imagePullSecrets"),
        ("fullnameOverride=Upper", "fullnameOverride"),
    ],
)
def test_a_bad_value_is_refused(helm: Any, setting: str, named: str) -> None:
    done = helm("template", "xdeepserve", "xdeepserve", "--set", setting)
    assert done.returncode != 0
    assert "don't meet the specifications of the schema" in done.stderr
    assert named in done.stderr


def test_the_crds_chart_takes_no_values(helm: Any) -> None:
    assert helm("template", "crds", "xdeepserve-crds", "--set", "keep=false").returncode != 0
