"""TaskExecutors and DPGroups as the API server takes them."""

from typing import Any

import pytest

from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.deployment import ModelDeploymentSpec, Role
from xdeepserve_operator.api.v1alpha1.executor import TaskExecutorSpec
from xdeepserve_operator.api.v1alpha1.group import DPGroupSpec
from xdeepserve_operator.api.v1alpha1.update import Leaving
from xdeepserve_operator.resources import children
from xdeepserve_operator.resources.executor import replicas_to_ask, task_executor
from xdeepserve_operator.resources.group import dp_group, marked
from xdeepserve_operator.resources.quantity import canonical_cpu, canonical_memory
from xdeepserve_operator.resources.revision import (
    Template,
    deployment_data,
    deployment_revision,
    executor_revision,
    template_of,
)

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


def test_a_group_that_leaves_says_why_and_stays_as_it_is() -> None:
    owner = executor(DECODE)
    owner["metadata"]["uid"] = "te-uid"
    spec = TaskExecutorSpec.model_validate(owner["spec"])
    body = dp_group(owner, spec, 1, 0, node="server-3", chip="910C", attempt=5, revision="r")
    leaving = marked(owner, body, Leaving(reason="Outdated", since="2025-01-01T00:00:00Z"))
    assert DPGroupSpec.model_validate(leaving["spec"]).leaving is not None
    assert leaving["metadata"] == body["metadata"]
    assert marked(owner, leaving, None) == body


def test_a_revision_gives_back_what_an_instance_was_made_from() -> None:
    owner = executor(DECODE)
    owner["metadata"]["uid"] = "te-uid"
    spec = TaskExecutorSpec.model_validate(owner["spec"])
    stored = executor_revision(owner, Template(spec, "engine:1"), "5f3a")
    assert stored["metadata"]["name"] == "chat-decode-5f3a"
    assert "replicas" not in stored["data"]["spec"]
    assert "update" not in stored["data"]["spec"]
    later = owner["spec"] | {"model": {"name": "tiny", "uri": "file:///models/next"}, "replicas": 7}
    old = template_of(stored, later)
    assert old is not None
    assert (old.spec.model.uri, old.spec.replicas, old.image) == ("file:///models/tiny", 7, "engine:1")


@pytest.mark.parametrize(
    "data", [None, {}, {"spec": {"role": "Cook"}, "image": "x"}, {"spec": {}}, {"image": "x", "spec": 3}]
)
def test_a_revision_that_makes_no_sense_is_none(data: object) -> None:
    assert template_of({"data": data}, executor(DECODE)["spec"]) is None


def test_the_history_of_a_deployment_holds_what_engines_are_made_from() -> None:
    data = deployment_data(SPEC)
    assert [role["name"] for role in data["roles"]] == ["prefill", "decode"]
    assert all("replicas" not in role and "update" not in role for role in data["roles"])
    body = deployment_revision(DEPLOYMENT, data, "5f3a", 4)
    assert (body["metadata"]["name"], body["revision"], body["kind"]) == ("chat-5f3a", 4, "ControllerRevision")
    assert body["metadata"]["ownerReferences"][0]["kind"] == "ModelDeployment"
