"""The TaskExecutor of a ModelDeployment's role.

``spec.replicas`` belongs to /scale. It is written once, at creation; afterwards the body leaves it out, and an
annotation remembers what the ModelDeployment last asked for, so that only a change of the role scales again and
``kubectl scale`` is never fought.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.base import LocalReference
from xdeepserve_operator.api.v1alpha1.deployment import ModelDeploymentSpec, Role
from xdeepserve_operator.api.v1alpha1.executor import EngineTuning, Gang, TaskExecutorSpec
from xdeepserve_operator.api.v1alpha1.update import Pace
from xdeepserve_operator.resources import children
from xdeepserve_operator.resources.metadata import child_metadata, deployment_labels


def executor_spec(deployment: Mapping[str, Any], spec: ModelDeploymentSpec, role: Role) -> TaskExecutorSpec:
    """What the role makes of its TaskExecutor."""
    name = deployment["metadata"]["name"]
    return TaskExecutorSpec(
        role=role.type,
        chips=role.chips,
        superpod_ref=spec.superpod_ref,
        replicas=role.replicas,
        parallelism=role.parallelism,
        model=spec.model,
        tuning=EngineTuning(max_batch_per_group=role.max_batch_per_group),
        resources=role.resources,
        warm=role.warm,
        weights_from=role.weights_from,
        update=role.update,
        rollout=Pace(paused=spec.rollout.paused, progress_deadline_seconds=spec.rollout.progress_deadline_seconds),
        priority=spec.priority,
        gang=Gang(name=name, members=len(spec.roles), timeout_seconds=spec.gang_timeout_seconds),
        control_token_secret_ref=LocalReference(name=children.control_secret_name(name)),
    )


def task_executor(
    deployment: Mapping[str, Any], spec: ModelDeploymentSpec, role: Role, *, create: bool
) -> dict[str, Any]:
    """The TaskExecutor, with ``replicas`` only when it is being created."""
    name = deployment["metadata"]["name"]
    wanted = executor_spec(deployment, spec, role).to_wire()
    if not create:
        del wanted["replicas"]
    return {
        "apiVersion": names.API_VERSION,
        "kind": "TaskExecutor",
        "metadata": child_metadata(
            deployment,
            "ModelDeployment",
            children.executor_name(name, role.name),
            deployment_labels(name) | {names.LABEL_ROLE: role.type},
            {names.ANNOTATION_REQUESTED_REPLICAS: str(role.replicas)},
        ),
        "spec": wanted,
    }


def leftovers(executor: Mapping[str, Any], wanted: TaskExecutorSpec) -> list[str]:
    """JSON pointers to what a TaskExecutor still has and is to have no more.

    Whoever created a field owns it beside those who apply it later, so leaving it out of what is applied does not take
    it away. Only what ``wanted`` knows and leaves out is meant: a newer API may have fields with defaults of its own.
    """

    def absent(value: Any, stored: Any, path: str) -> Iterator[str]:
        if value is None and stored is not None:
            yield path
        elif isinstance(value, dict) and isinstance(stored, dict):
            for field, inner in value.items():
                yield from absent(inner, stored.get(field), f"{path}/{field}")

    return list(absent(wanted.model_dump(by_alias=True, mode="json"), executor["spec"], "/spec"))


def replicas_to_ask(executor: Mapping[str, Any], role: Role) -> int | None:
    """Replicas to scale to, when the role asks for another number than it last did; None otherwise."""
    annotations = executor["metadata"].get("annotations") or {}
    return None if annotations.get(names.ANNOTATION_REQUESTED_REPLICAS) == str(role.replicas) else role.replicas
