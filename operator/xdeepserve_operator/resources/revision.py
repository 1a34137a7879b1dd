"""ControllerRevisions: what a TaskExecutor's instances, or a ModelDeployment's roles, were made from.

The data of a revision is the part of the spec that it covers, so that an instance of an old revision can be made anew
while a rollout is paused or partitioned, and a deployment can go back. The API server never lets data change.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.deployment import ModelDeploymentSpec
from xdeepserve_operator.api.v1alpha1.executor import TaskExecutorSpec
from xdeepserve_operator.resources import children
from xdeepserve_operator.resources.metadata import child_metadata, deployment_labels, executor_labels

EXECUTOR_FIELDS = ("role", "superPodRef", "chips", "parallelism", "model", "tuning", "resources")
ROLE_FIELDS = ("chips", "parallelism", "maxBatchPerGroup", "resources")


@dataclass(frozen=True, slots=True)
class Template:
    """What an instance is made from; of ``spec`` only what a revision covers counts."""

    spec: TaskExecutorSpec
    image: str


def executor_revision(executor: Mapping[str, Any], template: Template, revision: str) -> dict[str, Any]:
    """The ControllerRevision of what a TaskExecutor's instances of ``revision`` are made from."""
    spec = template.spec.to_wire()
    data = {"image": template.image, "spec": {field: spec[field] for field in EXECUTOR_FIELDS}}
    name = children.revision_name(executor["metadata"]["name"], revision)
    labels = executor_labels(executor) | {names.LABEL_REVISION: revision}
    return _revision(child_metadata(executor, "TaskExecutor", name, labels), data, 1)


def template_of(stored: Mapping[str, Any], spec: Mapping[str, Any]) -> Template | None:
    """Reads it back, over the present ``spec`` for what revisions do not cover; None when it is no such thing."""
    data = stored.get("data") or {}
    try:
        return Template(TaskExecutorSpec.model_validate({**spec, **data.get("spec", {})}), data["image"])
    except (ValidationError, KeyError, TypeError):
        return None


def deployment_data(spec: ModelDeploymentSpec) -> dict[str, Any]:
    """What going back to a ModelDeployment's revision restores: the model, and by role what its engines are."""
    roles = [role.to_wire() for role in spec.roles]
    return {
        "model": spec.model.to_wire(),
        "roles": [{"name": role["name"], **{field: role[field] for field in ROLE_FIELDS}} for role in roles],
    }


def change_cause(obj: Mapping[str, Any]) -> str:
    """Why a ModelDeployment is as it is, or why one of its revisions was made; empty when nobody said so."""
    return str((obj["metadata"].get("annotations") or {}).get(names.ANNOTATION_CHANGE_CAUSE, ""))


def deployment_revision(
    deployment: Mapping[str, Any], data: Mapping[str, Any], revision: str, number: int
) -> dict[str, Any]:
    """The ControllerRevision ``number`` of a ModelDeployment; it remembers why its author says it was made."""
    name, cause = deployment["metadata"]["name"], change_cause(deployment)
    labels = deployment_labels(name) | {names.LABEL_REVISION: revision}
    annotations = {names.ANNOTATION_CHANGE_CAUSE: cause} if cause else None
    named = children.revision_name(name, revision)
    metadata = child_metadata(deployment, "ModelDeployment", named, labels, annotations)
    return _revision(metadata, data, number)


def _revision(metadata: Mapping[str, Any], data: Mapping[str, Any], number: int) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": dict(metadata),
        "data": dict(data),
        "revision": number,
    }
