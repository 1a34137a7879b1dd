"""TaskExecutors and DPGroups as the API server takes them."""

from typing import Any

import pytest

from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.deployment import ModelDeploymentSpec, Role
from xdeepserve_operator.api.v1alpha1.executor import TaskExecutorSpec
from xdeepserve_operator.api.v1alpha1.group import DPGroupSpec
from xdeepserve_operator.resources import children
from xdeepserve_operator.resources.executor import replicas_to_ask, task_executor
from xdeepserve_operator.resources.group import dp_group
from xdeepserve_operator.resources.quantity import canonical_cpu, canonical_memory

Object = dict[str, Any]
DEPLOYMENT: Object = {"metadata": {"name": "chat", "namespace": "prod", "uid": "md-uid"}}
SPEC = ModelDeploymentSpec.model_validate(
    {
        "superPodRef": {"name": "pod-a"},
        "model": {"name": "tiny", "uri": "file:///models/tiny"},
        "roles": [
            {"name": "prefill", "type": "Prefill", "chips": ["910B", "910C"], "replicas": 3, "maxBatchPerGroup": 2},
            {"name": "decode", "type": "Decode", "chips": ["910C"], "parallelism": {"dp": 2, "tp": 4, "ep": 8}},
        ],
    }
)
PREFILL, DECODE = SPEC.roles


def executor(role: Role, *, create: bool = True) -> Object:
    return task_executor(DEPLOYMENT, SPEC, role, create=create)


def test_a_role_becomes_a_task_executor() -> None:
    body = executor(PREFILL)
    spec = TaskExecutorSpec.model_validate(body["spec"])
    assert body["metadata"]["name"] == "chat-prefill"
    assert (spec.role, spec.chips, spec.tuning.max_batch_per_group) == ("Prefill", ["910B", "910C"], 2)
    assert (spec.gang and (spec.gang.name, spec.gang.members)) == ("chat", 2)
    assert spec.control_token_secret_ref is not None
    assert spec.control_token_secret_ref.name == "chat-control"
    assert body["metadata"]["labels"][names.LABEL_DEPLOYMENT] == "chat"
    assert body["metadata"]["ownerReferences"][0]["kind"] == "ModelDeployment"


def test_replicas_are_written_at_creation_only() -> None:
    assert executor(PREFILL)["spec"]["replicas"] == 3
    assert "replicas" not in executor(PREFILL, create=False)["spec"]


@pytest.mark.parametrize(("asked_before", "scale_to"), [("3", None), ("2", 3), (None, 3)])
def test_only_a_change_of_the_role_scales(asked_before: str | None, scale_to: int | None) -> None:
    annotations = {} if asked_before is None else {names.ANNOTATION_REQUESTED_REPLICAS: asked_before}
    scaled_by_a_user = {"metadata": {"annotations": annotations}, "spec": {"replicas": 9}}
    assert replicas_to_ask(scaled_by_a_user, PREFILL) == scale_to


def test_a_group_carries_its_place() -> None:
    owner = executor(DECODE)
    owner["metadata"]["uid"] = "te-uid"
    spec = TaskExecutorSpec.model_validate(owner["spec"])
    body = dp_group(owner, spec, 1, 1, node="server-3", chip="910C", attempt=5, revision="r")
    placed = DPGroupSpec.model_validate(body["spec"])
    assert body["metadata"]["name"] == "chat-decode-1-dp1"
    assert (placed.node, placed.chip, placed.dies, placed.attempt, placed.revision) == ("server-3", "910C", 4, 5, "r")
    assert (placed.executor_ref.name, placed.replica, placed.index) == ("chat-decode", 1, 1)
    labels = body["metadata"]["labels"]
    assert (labels[names.LABEL_EXECUTOR], labels[names.LABEL_REPLICA]) == ("chat-decode", "1")


def test_names_are_functions_of_their_owners() -> None:
    assert children.group_name("chat-decode", 0, 1) == "chat-decode-0-dp1"
    assert children.engine_pod_name("chat-decode-0-dp1", 2) == "chat-decode-0-dp1-2"
    assert children.shell_name("chat-decode", 0) == "chat-decode-0-shell"
    assert children.frontend_name("chat") == "chat-frontend"
    assert children.control_secret_name("chat") == "chat-control"


def test_the_longest_names_fit() -> None:
    longest = children.executor_name("m" * 30, "r" * 15)
    pod = children.engine_pod_name(children.group_name(longest, 255, 1023), 99999)
    assert len(pod) <= 63


@pytest.mark.parametrize(
    ("text", "canonical"), [("250m", "250m"), ("0.25", "250m"), ("1000m", "1"), ("1.5", "1500m"), ("2", "2")]
)
def test_cores_are_spelled_as_the_api_server_does(text: str, canonical: str) -> None:
    assert canonical_cpu(text) == canonical


@pytest.mark.parametrize(
    ("text", "canonical"), [("256Mi", "256Mi"), ("1024Mi", "1Gi"), ("1536Mi", "1536Mi"), ("2Gi", "2Gi")]
)
def test_memory_is_spelled_as_the_api_server_does(text: str, canonical: str) -> None:
    assert canonical_memory(text) == canonical
