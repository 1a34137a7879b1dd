"""The frontend of a ModelDeployment: a Deployment, and a Service for clusters whose pod IPs can be routed."""

from collections.abc import Mapping
from typing import Any

from flowserve.wire import FrontendConfig
from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.deployment import ModelDeploymentSpec
from xdeepserve_operator.resources import children
from xdeepserve_operator.resources.containers import POD_IP, container, environment, pod_spec
from xdeepserve_operator.resources.metadata import child_metadata, deployment_labels
from xdeepserve_operator.resources.settings import EngineImage

_LOST_SECONDS = 5  # a lost server takes the entrance with it; Kubernetes would wait 300 s for it to come back
_RESOURCES = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}


def frontend_labels(deployment: str) -> dict[str, str]:
    """Labels of frontend pods; also their selector."""
    return {names.LABEL_COMPONENT: names.COMPONENT_FRONTEND, **deployment_labels(deployment)}


def frontend_deployment(
    deployment: Mapping[str, Any], spec: ModelDeploymentSpec, token_secret: str, image: EngineImage
) -> dict[str, Any]:
    """The Deployment. A new pod is ready before an old one goes, so that the entrance never closes."""
    name = deployment["metadata"]["name"]
    config = FrontendConfig(
        deployment=name,
        model_name=spec.model.name,
        model_uri=spec.model.uri,
        max_context_tokens=spec.model.max_context_tokens,
        max_body_bytes=spec.frontend.max_body_bytes,
        host=POD_IP,
        api_port=names.PORT_API,
        control_port=names.PORT_CONTROL,
    )
    env = environment(config, token_secret)
    if spec.frontend.api_keys_secret_ref is not None:
        keys = {"name": spec.frontend.api_keys_secret_ref.name, "key": "keys"}
        env.append({"name": names.ENV_API_KEYS, "valueFrom": {"secretKeyRef": keys}})
    ports = {"api": names.PORT_API, "control": names.PORT_CONTROL}
    labels = frontend_labels(name)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": child_metadata(deployment, "ModelDeployment", children.frontend_name(name), labels),
        "spec": {
            "replicas": spec.frontend.replicas,
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {
                "metadata": {"labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY, **labels}},
                "spec": pod_spec(container("flowserve.frontend", image, env, ports, _RESOURCES), image)
                | {"tolerations": _tolerations()},
            },
        },
    }


def frontend_service(deployment: Mapping[str, Any]) -> dict[str, Any]:
    """The Service in front of ready frontend pods."""
    name = deployment["metadata"]["name"]
    labels = frontend_labels(name)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(deployment, "ModelDeployment", children.frontend_name(name), labels),
        "spec": {
            "selector": labels,
            "ports": [{"name": "api", "port": names.PORT_API, "targetPort": names.PORT_API}],
        },
    }


def _tolerations() -> list[dict[str, Any]]:
    """How long a pod outlives the silence of its server."""
    return [
        {
            "key": f"node.kubernetes.io/{condition}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _LOST_SECONDS,
        }
        for condition in ("not-ready", "unreachable")
    ]
