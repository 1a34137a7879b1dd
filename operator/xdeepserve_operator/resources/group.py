"""The DPGroup of one data-parallel group. It is created with its place: to exist is to hold dies."""

from collections.abc import Mapping
from typing import Any

from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.base import Chip, LocalReference
from xdeepserve_operator.api.v1alpha1.executor import TaskExecutorSpec
from xdeepserve_operator.api.v1alpha1.group import DPGroupSpec
from xdeepserve_operator.api.v1alpha1.update import Leaving
from xdeepserve_operator.resources import children
from xdeepserve_operator.resources.metadata import child_metadata, instance_labels


def dp_group(
    executor: Mapping[str, Any],
    spec: TaskExecutorSpec,
    replica: int,
    index: int,
    *,
    node: str,
    chip: Chip,
    attempt: int,
    revision: str,
) -> dict[str, Any]:
    """The DPGroup ``index`` of ``replica``, placed on ``node``."""
    name = executor["metadata"]["name"]
    placed = DPGroupSpec(
        executor_ref=LocalReference(name=name),
        role=spec.role,
        replica=replica,
        index=index,
        dies=spec.parallelism.tp,
        chip=chip,
        node=node,
        attempt=attempt,
        revision=revision,
    )
    return _group(executor, name=children.group_name(name, replica, index), spec=placed.to_wire())


def marked(executor: Mapping[str, Any], group: Mapping[str, Any], leaving: Leaving | None) -> dict[str, Any]:
    """A DPGroup whose instance leaves from now on, or, without ``leaving``, stays after all."""
    spec = {field: value for field, value in group["spec"].items() if field != "leaving"}
    mark = {} if leaving is None else {"leaving": leaving.to_wire()}
    return _group(executor, name=group["metadata"]["name"], spec=spec | mark)


def _group(executor: Mapping[str, Any], *, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "DPGroup",
        "metadata": child_metadata(executor, "TaskExecutor", name, instance_labels(executor, spec["replica"])),
        "spec": dict(spec),
    }
