"""Deletes the pods of a TaskExecutor that is gone, all at once.

The garbage collector would do it by itself, one generation after another: the DPGroups first, and their pods when it
has noticed that each group is gone. This only saves the time; without the operator the same goes later. Objects that
were orphaned on purpose have lost their owner references before their owner goes, and are left alone.
"""

from functools import partial

from xdeepserve_operator.api import names
from xdeepserve_operator.controllers.objects import label, leaving, together
from xdeepserve_operator.controllers.ports import Cluster, Object, Store


async def sweep(store: Store, cluster: Cluster, namespace: str, executor: str) -> None:
    """For a TaskExecutor that the store no longer shows; each pod is deleted by its uid."""
    pods = store.list("Pod", namespace, {names.LABEL_EXECUTOR: executor})
    doomed = [pod for pod in pods if not leaving(pod) and _belongs(store, pod)]
    await together(partial(cluster.delete, "Pod"), doomed)


def _belongs(store: Store, pod: Object) -> bool:
    """Whether the pod's owners lead to a TaskExecutor, or to a DPGroup that is gone with it."""
    kinds = _owner_kinds(pod)
    group = store.get("DPGroup", pod["metadata"]["namespace"], label(pod, names.LABEL_GROUP))
    return "TaskExecutor" in kinds or ("DPGroup" in kinds and (group is None or "TaskExecutor" in _owner_kinds(group)))


def _owner_kinds(obj: Object) -> set[str]:
    return {one["kind"] for one in obj["metadata"].get("ownerReferences") or ()}
