"""The ExpertPlacement of a ModelDeployment's role."""

from collections.abc import Mapping
from typing import Any

from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.deployment import Role
from xdeepserve_operator.api.v1alpha1.experts import Balancing
from xdeepserve_operator.resources import children
from xdeepserve_operator.resources.metadata import child_metadata, deployment_labels


def expert_placement(deployment: Mapping[str, Any], role: Role, balancing: Balancing) -> dict[str, Any]:
    """It has the name of the role's TaskExecutor, which it places; what the role does not say is left to others."""
    name = deployment["metadata"]["name"]
    executor = children.executor_name(name, role.name)
    labels = deployment_labels(name) | {names.LABEL_ROLE: role.type}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ExpertPlacement",
        "metadata": child_metadata(deployment, "ModelDeployment", executor, labels),
        "spec": {"targetRef": {"name": executor}, "phase": role.type, **balancing.to_wire()},
    }
