"""What the containers of engines, TE-shells and frontends have in common.

One process a container, started from one JSON document in the environment, under the restricted pod security
standard, with no service account: nothing in these pods talks to the API server.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from flowserve.wire import WireModel
from xdeepserve_operator.api import names
from xdeepserve_operator.resources.settings import EngineImage

POD_IP = f"$({names.ENV_POD_IP})"  # expanded by the kubelet, for the variable is declared before its use
GRACE_SECONDS = 5
_HEALTH = {"httpGet": {"path": "/health", "port": names.PORT_CONTROL}, "timeoutSeconds": 3}


def configuration(document: WireModel) -> str:
    """The JSON text of a configuration whose ``host`` is POD_IP.

    Only that reference may be expanded: every other dollar sign is doubled, so that no name given by a user is read
    as a reference to another variable.
    """
    text = document.model_dump_json()
    return text.replace("$", "$$").replace(f"${POD_IP}", POD_IP)


def environment(document: WireModel, token_secret: str) -> list[dict[str, Any]]:
    """The variables every process gets."""
    return [
        {"name": names.ENV_POD_IP, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
        {"name": names.ENV_ENGINE_CONFIG, "value": configuration(document)},
        {
            "name": names.ENV_CONTROL_TOKEN,
            "valueFrom": {"secretKeyRef": {"name": token_secret, "key": "token"}},
        },
    ]


def container(
    module: str,
    image: EngineImage,
    env: Sequence[Mapping[str, Any]],
    ports: Mapping[str, int],
    resources: Mapping[str, Mapping[str, str]],
    *,
    slow_start: bool = False,
) -> dict[str, Any]:
    """A container that runs ``python -m module``.

    Readiness is asked every second, for a routed instance waits for it; liveness is generous, for recovery hears
    silence sooner and does more than to start a process again. ``slow_start``: may spend ten minutes on loading.
    """
    body: dict[str, Any] = {
        "name": module.rpartition(".")[2],
        "image": image.name,
        "imagePullPolicy": image.pull_policy,
        "command": ["python", "-m", module],
        "env": [dict(variable) for variable in env],
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
        "resources": {name: dict(amounts) for name, amounts in resources.items()},
        "readinessProbe": {
            "httpGet": {"path": "/health/ready", "port": names.PORT_CONTROL},
            "periodSeconds": 1,
            "timeoutSeconds": 1,
            "failureThreshold": 3,
        },
        "livenessProbe": {**_HEALTH, "periodSeconds": 5, "failureThreshold": 6},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    if slow_start:
        body["startupProbe"] = {**_HEALTH, "periodSeconds": 1, "failureThreshold": 600}
    return body


def pod_spec(body: Mapping[str, Any], image: EngineImage) -> dict[str, Any]:
    """The spec of a pod with one container."""
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [dict(body)],
    }
    if image.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in image.pull_secrets]
    return spec
