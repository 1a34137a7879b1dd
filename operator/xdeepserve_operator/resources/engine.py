"""The pod of one DP group's attempt, pinned to the server that the group was placed on.

The pin is a required node affinity on the node's name, not ``nodeName``: the scheduler still checks taints and free
dies, and the device plugin picks the die numbers, never an unhealthy one.
"""

from collections.abc import Mapping
from typing import Any

from flowserve.wire import Donor, EngineConfig, Limits
from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.executor import TaskExecutorSpec
from xdeepserve_operator.resources import children
from xdeepserve_operator.resources.containers import POD_IP, container, environment, pod_spec
from xdeepserve_operator.resources.metadata import child_metadata, instance_labels
from xdeepserve_operator.resources.quantity import canonical_cpu, canonical_memory
from xdeepserve_operator.resources.settings import EngineImage


def engine_pod(
    executor: Mapping[str, Any],
    spec: TaskExecutorSpec,
    group: Mapping[str, Any],
    token_secret: str,
    image: EngineImage,
    donor: str = "",
) -> dict[str, Any]:
    """The Pod for a DPGroup's current attempt; ``spec`` is the executor's, parsed; ``donor`` has its weights."""
    place = group["spec"]
    name = group["metadata"]["name"]
    instance = children.instance_name(executor["metadata"]["name"], place["replica"])
    config = engine_config(name, instance, place["index"], spec, donor)
    pod_name = children.engine_pod_name(name, place["attempt"])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": child_metadata(group, "DPGroup", pod_name, group_labels(executor, group)),
        "spec": engine_spec(config, spec, place["dies"], place["node"], token_secret, image),
    }


def engine_config(name: str, instance: str, rank: int, spec: TaskExecutorSpec, donor: str = "") -> EngineConfig:
    """What an engine of an executor is told; its host is a reference that the kubelet expands.

    ``donor``: address of an engine whose weights it starts with; empty for those on the disk.
    """
    return EngineConfig(
        name=name,
        instance=instance,
        role=spec.role,
        dp_rank=rank,
        model_name=spec.model.name,
        model_uri=spec.model.uri,
        limits=Limits(
            max_context_tokens=spec.model.max_context_tokens,
            max_batch=spec.tuning.max_batch_per_group,
            prefill_chunk_tokens=spec.tuning.prefill_chunk_tokens,
            kv_block_tokens=spec.tuning.kv_block_tokens,
            kv_blocks=spec.tuning.kv_blocks,
            max_ranks=spec.parallelism.dp,
            kv_cache_dtype="int8" if spec.model.kv_cache_dtype == "INT8" else "float32",
            speculative_tokens=spec.model.speculative.tokens if spec.model.speculative else 0,
        ),
        host=POD_IP,
        api_port=names.PORT_API,
        control_port=names.PORT_CONTROL,
        doorbell_port=names.PORT_DOORBELL,
        fabric_port=names.PORT_FABRIC,
        donor=Donor(host=donor, control_port=names.PORT_CONTROL) if donor else None,
    )


def engine_spec(
    config: EngineConfig, spec: TaskExecutorSpec, dies: int, node: str, token_secret: str, image: EngineImage
) -> dict[str, Any]:
    """The spec of an engine's pod with ``dies`` dies of ``node``."""
    count, memory = str(dies), canonical_memory(spec.resources.memory)
    engine = container(
        "flowserve.engine",
        image,
        environment(config, token_secret),
        {"api": names.PORT_API, "control": names.PORT_CONTROL, "fabric": names.PORT_FABRIC},
        {
            "requests": {
                "cpu": canonical_cpu(spec.resources.cpu),
                "memory": memory,
                names.RESOURCE_DIE: count,
            },
            "limits": {"memory": memory, names.RESOURCE_DIE: count},
        },
        slow_start=True,
    )
    return pod_spec(engine, image) | {"affinity": _only_on(node)}


def group_labels(executor: Mapping[str, Any], group: Mapping[str, Any]) -> dict[str, str]:
    """Labels of the pod of a DPGroup's current attempt."""
    place = group["spec"]
    return {
        **instance_labels(executor, place["replica"]),
        names.LABEL_COMPONENT: names.COMPONENT_ENGINE,
        names.LABEL_GROUP: group["metadata"]["name"],
        names.LABEL_REVISION: place["revision"],
        names.LABEL_ATTEMPT: str(place["attempt"]),
    }


def _only_on(node: str) -> dict[str, Any]:
    by_name = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [{"matchFields": [by_name]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
