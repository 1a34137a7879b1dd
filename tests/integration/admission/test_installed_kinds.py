"""What kubectl makes of the installed CRDs: defaults, columns, /scale, explain, the examples."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from admission_samples import MODEL_DEPLOYMENT, NAMESPACE, SAMPLES, SUPERPOD, TASK_EXECUTOR, Object

from xdeepserve_operator.api.v1alpha1.deployment import ModelDeploymentSpec
from xdeepserve_operator.api.v1alpha1.executor import TaskExecutorSpec
from xdeepserve_operator.api.v1alpha1.kinds import KINDS, Kind
from xdeepserve_operator.api.v1alpha1.superpod import SuperPodSpec

Kubectl = Callable[..., str]
EXAMPLES = Path(__file__).parents[3] / "examples"
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)


@pytest.mark.usefixtures("installed")
@each_kind
def test_the_schema_is_structural(kubectl: Kubectl, kind: Kind) -> None:
    path = "{range .status.conditions[*]}{.type}={.status} {end}"
    conditions = kubectl("get", "crd", f"{kind.plural}.serving.xdeepserve.io", "-o", f"jsonpath={path}").split()
    assert "Established=True" in conditions
    assert "NamesAccepted=True" in conditions
    assert not [condition for condition in conditions if condition.startswith("NonStructuralSchema=True")]


@pytest.mark.parametrize(
    ("sample", "spec_type"),
    [(SUPERPOD, SuperPodSpec), (MODEL_DEPLOYMENT, ModelDeploymentSpec), (TASK_EXECUTOR, TaskExecutorSpec)],
    ids=["SuperPod", "ModelDeployment", "TaskExecutor"],
)
async def test_the_api_server_fills_the_defaults_of_the_types(admission: Any, sample: Object, spec_type: Any) -> None:
    stored = await admission.create(sample)
    assert stored["spec"] == spec_type.model_validate(sample["spec"]).to_wire()


@pytest.mark.usefixtures("installed")
@each_kind
def test_short_names_and_the_category_are_free(kubectl: Kubectl, kind: Kind) -> None:
    table = kubectl("api-resources", "--no-headers", "--api-group=serving.xdeepserve.io", "--categories=xdeepserve")
    row = next(line.split() for line in table.splitlines() if line.split()[0] == kind.plural)
    assert row[1] == ",".join(kind.short_names)
    assert row[-1] == kind.kind


async def test_the_columns_show_ready_and_reason(admission: Any, kubectl: Kubectl) -> None:
    for sample in SAMPLES:
        await admission.create(sample, keep=True)
    try:
        for kind in KINDS:
            header = kubectl("get", kind.plural, "-A").splitlines()[0].split()
            wide = kubectl("get", kind.plural, "-A", "-o", "wide").splitlines()[0].split()
            assert header[-1] == wide[-1] == "AGE"
            assert "REASON" in header
            assert [column.name.upper() for column in kind.columns] == wide[-len(kind.columns) :]
    finally:
        for sample in SAMPLES:
            await admission.delete(sample)


async def test_a_task_executor_scales(admission: Any, kubectl: Kubectl) -> None:
    await admission.create(TASK_EXECUTOR, keep=True)
    try:
        kubectl("scale", "te/chat-decode", "-n", NAMESPACE, "--replicas=3")
        assert kubectl("get", "te", "chat-decode", "-n", NAMESPACE, "-o", "jsonpath={.spec.replicas}") == "3"
    finally:
        await admission.delete(TASK_EXECUTOR)


@pytest.mark.usefixtures("installed")
@each_kind
def test_explain_reads_well(kubectl: Kubectl, kind: Kind) -> None:
    text = kubectl("explain", kind.plural, "--recursive=false")
    assert kind.description in " ".join(text.split())
    fields = kubectl("explain", f"{kind.plural}.spec")
    assert "<no description>" not in fields


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_examples_are_taken(kubectl: Kubectl, path: Path) -> None:
    assert "(server dry run)" in kubectl("create", "--dry-run=server", "-n", NAMESPACE, "-f", str(path))
