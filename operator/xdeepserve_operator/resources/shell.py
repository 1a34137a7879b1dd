"""The TE-shell pod of one replica: the one pod that a TaskExecutor's selector counts for that replica."""

from collections.abc import Mapping
from typing import Any

from flowserve.wire import ShellConfig
from xdeepserve_operator.api import names
from xdeepserve_operator.resources import children
from xdeepserve_operator.resources.containers import POD_IP, container, environment, pod_spec
from xdeepserve_operator.resources.metadata import child_metadata, instance_labels
from xdeepserve_operator.resources.settings import EngineImage

_RESOURCES = {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}}


def shell_pod(
    executor: Mapping[str, Any], replica: int, revision: str, token_secret: str, image: EngineImage
) -> dict[str, Any]:
    """The Pod; wherever the scheduler likes, for it needs no die."""
    name = executor["metadata"]["name"]
    config = ShellConfig(
        instance=children.instance_name(name, replica),
        role=executor["spec"]["role"],
        host=POD_IP,
        control_port=names.PORT_CONTROL,
    )
    env, ports = environment(config, token_secret), {"control": names.PORT_CONTROL}
    labels = {
        **instance_labels(executor, replica),
        names.LABEL_COMPONENT: names.COMPONENT_SHELL,
        names.LABEL_REVISION: revision,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": child_metadata(executor, "TaskExecutor", children.shell_name(name, replica), labels),
        "spec": pod_spec(container("flowserve.shell", image, env, ports, _RESOURCES), image),
    }


def shell_selector(executor: str) -> str:
    """Label selector of a TaskExecutor's TE-shells, for /scale."""
    return f"{names.LABEL_COMPONENT}={names.COMPONENT_SHELL},{names.LABEL_EXECUTOR}={executor}"
