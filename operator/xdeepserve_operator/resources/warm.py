"""The pod of a warm engine, before and after it became a DP group's.

The spec is that of an engine pod with a provisional name, and cannot change later; labels and owner can. So an assigned
pod keeps the name that it was made under.
"""

from collections.abc import Mapping
from typing import Any

from flowserve.wire import EngineConfig
from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.executor import TaskExecutorSpec
from xdeepserve_operator.resources import children
from xdeepserve_operator.resources.engine import engine_config, engine_spec, group_labels
from xdeepserve_operator.resources.metadata import child_metadata, executor_labels
from xdeepserve_operator.resources.settings import EngineImage

Object = dict[str, Any]


def warm_pod(
    executor: Mapping[str, Any],
    spec: TaskExecutorSpec,
    revision: str,
    name: str,
    node: str,
    token_secret: str,
    image: EngineImage,
) -> Object:
    """A pod that waits on ``node`` for its assignment, of the TaskExecutor."""
    config = engine_config(name, executor["metadata"]["name"], 0, spec).model_copy(update={"warm": True})
    labels = {
        **executor_labels(executor),
        names.LABEL_COMPONENT: names.COMPONENT_WARM,
        names.LABEL_REVISION: revision,
    }
    metadata = child_metadata(executor, "TaskExecutor", name, labels, {names.ANNOTATION_SERVER: node})
    body = engine_spec(config, spec, spec.parallelism.tp, node, token_secret, image)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def adopted(body: Mapping[str, Any], executor: Mapping[str, Any], group: Mapping[str, Any]) -> Object:
    """The pod ``body`` of a warm engine, now of the DPGroup."""
    before = body["metadata"]
    labels = group_labels(executor, group)
    metadata = child_metadata(group, "DPGroup", before["name"], labels, before["annotations"])
    return {**body, "metadata": metadata}


def assignment(
    executor: Mapping[str, Any], spec: TaskExecutorSpec, group: Mapping[str, Any], host: str, donor: str = ""
) -> EngineConfig:
    """What the engine at ``host`` is told to become, with the weights of ``donor`` if there is one."""
    place = group["spec"]
    instance = children.instance_name(executor["metadata"]["name"], place["replica"])
    config = engine_config(group["metadata"]["name"], instance, place["index"], spec, donor)
    return config.model_copy(update={"host": host})
