"""Deletes the pods of a TaskExecutor that is gone, all at once.

The garbage collector would do it by itself, one generation after another: the DPGroups first, and their pods when it
has noticed that each group is gone. This only saves the time, so a deletion that takes too long is left to it, as
everything is without the operator. Pods go as collections, a server's in one request: the operator and the API server
spend less on it than on a request a pod. They are told by a label with the uid of their TaskExecutor's life: a new life
of the name loses nothing. Objects that were orphaned on purpose have lost their owner references before their owner
goes; where one has, all of that life is left to the garbage collector, which knows who is meant.
"""

from contextlib import suppress

from xdeepserve_operator.api import names
from xdeepserve_operator.controllers.objects import label, leaving, together
from xdeepserve_operator.controllers.ports import Cluster, Object, Store


async def sweep(store: Store, cluster: Cluster, namespace: str, executor: str) -> None:
    """For a TaskExecutor that the store no longer shows."""
    mine = {names.LABEL_EXECUTOR: executor}
    pods = [pod for pod in store.list("Pod", namespace, mine) if not leaving(pod)]
    others = (*pods, *store.list("DPGroup", namespace, mine))
    spared = {"", *(_life(obj) for obj in others if not obj["metadata"].get("ownerReferences"))}
    parts = {(_life(pod), pod["spec"].get("nodeName") or "") for pod in pods if _life(pod) not in spared}

    async def delete(part: tuple[str, str]) -> None:
        life, node = part
        with suppress(TimeoutError):
            await cluster.delete_all("Pod", namespace, {names.LABEL_EXECUTOR_UID: life}, {"spec.nodeName": node})

    await together(delete, sorted(parts))


def _life(obj: Object) -> str:
    return label(obj, names.LABEL_EXECUTOR_UID)
