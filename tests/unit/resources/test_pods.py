"""Pods as the API server, the scheduler and the engine will read them."""

import json
from typing import Any

import pytest

from flowserve.wire import EngineConfig, FrontendConfig, ShellConfig
from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.deployment import ModelDeploymentSpec
from xdeepserve_operator.api.v1alpha1.executor import TaskExecutorSpec
from xdeepserve_operator.resources.engine import engine_pod
from xdeepserve_operator.resources.frontend import frontend_deployment, frontend_service
from xdeepserve_operator.resources.group import dp_group
from xdeepserve_operator.resources.settings import EngineImage
from xdeepserve_operator.resources.shell import shell_pod, shell_selector

Object = dict[str, Any]
IMAGE = EngineImage("registry.example/xdeepserve:1", "Always", ("pull",))
EXECUTOR: Object = {
    "metadata": {
        "name": "chat-decode",
        "namespace": "prod",
        "uid": "te-uid",
        "labels": {names.LABEL_DEPLOYMENT: "chat"},
    },
    "spec": {
        "role": "Decode",
        "chips": ["910C"],
        "superPodRef": {"name": "pod-a"},
        "parallelism": {"dp": 4, "tp": 2, "ep": 8},
        "model": {"name": "tiny", "uri": "file:///models/tiny", "maxContextTokens": 2048},
        "tuning": {"maxBatchPerGroup": 5, "kvBlocks": 77},
        "resources": {"cpu": "1500m", "memory": "2048Mi"},
    },
}
SPEC = TaskExecutorSpec.model_validate(EXECUTOR["spec"])
DEPLOYMENT: Object = {"metadata": {"name": "chat", "namespace": "prod", "uid": "md-uid"}}
DEPLOYMENT_SPEC: Object = {
    "superPodRef": {"name": "pod-a"},
    "model": {"name": "tiny", "uri": "file:///models/tiny"},
    "roles": [
        {"name": "p", "type": "Prefill", "chips": ["910B"]},
        {"name": "d", "type": "Decode", "chips": ["910C"]},
    ],
}


def group() -> Object:
    body = dp_group(EXECUTOR, SPEC, 1, 3, node="server-7", chip="910C", attempt=2, revision="abc-def")
    body["metadata"]["uid"] = "group-uid"
    return body


def engine() -> Object:
    return engine_pod(EXECUTOR, SPEC, group(), "chat-control", IMAGE)


def frontend(**spec: Any) -> Object:
    parsed = ModelDeploymentSpec.model_validate(DEPLOYMENT_SPEC | spec)
    template: Object = frontend_deployment(DEPLOYMENT, parsed, "chat-control", IMAGE)["spec"]["template"]
    return template


def every_pod() -> list[Object]:
    return [engine(), shell_pod(EXECUTOR, 1, "abc-def", "chat-control", IMAGE), frontend()]


def environment(pod: Object) -> dict[str, Object]:
    return {one["name"]: one for one in pod["spec"]["containers"][0]["env"]}


def config(pod: Object) -> str:
    text: str = environment(pod)[names.ENV_ENGINE_CONFIG]["value"]
    return text.replace("$(POD_IP)", "127.3.2.1")


@pytest.mark.parametrize("pod", every_pod(), ids=["engine", "shell", "frontend"])
def test_every_pod_meets_the_restricted_standard_and_has_no_way_to_the_api_server(pod: Object) -> None:
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert all(one["effect"] == "NoExecute" and one["tolerationSeconds"] <= 10 for one in spec.get("tolerations", ()))
    assert "volumes" not in spec


@pytest.mark.parametrize("pod", every_pod(), ids=["engine", "shell", "frontend"])
def test_every_pod_starts_again_ends_soon_and_says_why(pod: Object) -> None:
    container = pod["spec"]["containers"][0]
    assert (pod["spec"]["restartPolicy"], pod["spec"]["terminationGracePeriodSeconds"]) == ("Always", 5)
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert (container["image"], container["imagePullPolicy"]) == (IMAGE.name, "Always")
    assert pod["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    ready, alive = container["readinessProbe"], container["livenessProbe"]
    assert ready["httpGet"] == {"path": "/health/ready", "port": names.PORT_CONTROL}
    assert alive["httpGet"] == {"path": "/health", "port": names.PORT_CONTROL}
    assert ready["periodSeconds"] == 1
    assert alive["periodSeconds"] * alive["failureThreshold"] >= 30, "recovery hears silence long before"


@pytest.mark.parametrize("pod", every_pod(), ids=["engine", "shell", "frontend"])
def test_the_address_is_declared_before_the_configuration_that_uses_it(pod: Object) -> None:
    order = [one["name"] for one in pod["spec"]["containers"][0]["env"]]
    assert order.index(names.ENV_POD_IP) < order.index(names.ENV_ENGINE_CONFIG)
    assert order.index(names.ENV_ENGINE_CONFIG) < order.index(names.ENV_CONTROL_TOKEN), "the token is never expanded"
    reference = environment(pod)[names.ENV_CONTROL_TOKEN]["valueFrom"]["secretKeyRef"]
    assert reference == {"name": "chat-control", "key": "token"}
    assert json.loads(config(pod))["host"] == "127.3.2.1"


def test_an_engine_gets_its_configuration() -> None:
    parsed = EngineConfig.model_validate_json(config(engine()))
    assert (parsed.name, parsed.instance, parsed.role, parsed.dp_rank) == (
        "chat-decode-1-dp3",
        "chat-decode-1",
        "Decode",
        3,
    )
    assert (parsed.model_name, parsed.model_uri) == ("tiny", "file:///models/tiny")
    assert (parsed.limits.speculative_tokens, parsed.limits.kv_cache_dtype) == (0, "float32")
    limits = parsed.limits
    assert (limits.max_context_tokens, limits.max_batch, limits.kv_blocks, limits.max_ranks) == (2048, 5, 77, 4)


def test_drafts_and_the_form_of_kv_are_the_models() -> None:
    model = SPEC.model.model_validate(
        EXECUTOR["spec"]["model"] | {"speculative": {"tokens": 2}, "kvCacheDtype": "INT8"}
    )
    pod = engine_pod(EXECUTOR, SPEC.model_copy(update={"model": model}), group(), "s", IMAGE)
    limits = EngineConfig.model_validate_json(config(pod)).limits
    assert (limits.speculative_tokens, limits.kv_cache_dtype) == (2, "int8")


def test_an_engine_runs_on_its_server_with_its_dies() -> None:
    pod = engine()
    assert "nodeName" not in pod["spec"], "the scheduler still checks taints and dies"
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms["nodeSelectorTerms"] == [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["server-7"]}]}
    ]
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"cpu": "1500m", "memory": "2Gi", names.RESOURCE_DIE: "2"}
    assert resources["limits"] == {"memory": "2Gi", names.RESOURCE_DIE: "2"}
    assert pod["spec"]["containers"][0]["command"] == ["python", "-m", "flowserve.engine"]


def test_an_engine_is_found_by_its_labels_and_goes_with_its_group() -> None:
    metadata = engine()["metadata"]
    assert metadata["name"] == "chat-decode-1-dp3-2"
    assert metadata["labels"] == {
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_COMPONENT: "engine",
        names.LABEL_DEPLOYMENT: "chat",
        names.LABEL_EXECUTOR: "chat-decode",
        names.LABEL_EXECUTOR_UID: "te-uid",
        names.LABEL_ROLE: "Decode",
        names.LABEL_REPLICA: "1",
        names.LABEL_GROUP: "chat-decode-1-dp3",
        names.LABEL_REVISION: "abc-def",
        names.LABEL_ATTEMPT: "2",
    }
    owner = metadata["ownerReferences"][0]
    assert (owner["kind"], owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (
        "DPGroup",
        "group-uid",
        True,
        True,
    )


@pytest.mark.parametrize("name", ["a$b", "$$", "$(XDEEPSERVE_CONTROL_TOKEN)", 'quote " and \\', "模型"])
def test_no_name_a_user_gives_is_expanded(name: str) -> None:
    """The kubelet turns ``$$`` into ``$`` and ``$(KNOWN)`` into a value; everything else stays."""
    model = SPEC.model.model_copy(update={"name": name})
    pod = engine_pod(EXECUTOR, SPEC.model_copy(update={"model": model}), group(), "s", IMAGE)
    text = environment(pod)[names.ENV_ENGINE_CONFIG]["value"]
    halves = [half.replace("$(POD_IP)", "127.3.2.1") for half in text.split("$$")]
    assert EngineConfig.model_validate_json("$".join(halves)).model_name == name


def test_a_shell_knows_its_instance_and_is_what_scale_counts() -> None:
    pod = shell_pod(EXECUTOR, 1, "abc-def", "chat-control", IMAGE)
    parsed = ShellConfig.model_validate_json(config(pod))
    assert (pod["metadata"]["name"], parsed.instance, parsed.role) == ("chat-decode-1-shell", "chat-decode-1", "Decode")
    selector = dict(pair.split("=") for pair in shell_selector("chat-decode").split(","))
    assert selector.items() <= pod["metadata"]["labels"].items()
    assert not selector.items() <= engine()["metadata"]["labels"].items(), "an engine pod is no replica"
    assert "affinity" not in pod["spec"]


def test_a_frontend_is_rolled_without_closing_the_entrance() -> None:
    spec = ModelDeploymentSpec.model_validate(DEPLOYMENT_SPEC | {"frontend": {"replicas": 3}})
    body = frontend_deployment(DEPLOYMENT, spec, "chat-control", IMAGE)
    assert body["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert body["spec"]["replicas"] == 3
    selector = body["spec"]["selector"]["matchLabels"]
    assert selector.items() <= body["spec"]["template"]["metadata"]["labels"].items()
    assert frontend_service(DEPLOYMENT)["spec"]["selector"] == selector
    assert FrontendConfig.model_validate_json(config(body["spec"]["template"])).deployment == "chat"


def test_api_keys_come_from_the_users_secret() -> None:
    assert names.ENV_API_KEYS not in environment(frontend())
    keyed = environment(frontend(frontend={"apiKeysSecretRef": {"name": "keys"}}))
    assert keyed[names.ENV_API_KEYS]["valueFrom"]["secretKeyRef"] == {"name": "keys", "key": "keys"}
