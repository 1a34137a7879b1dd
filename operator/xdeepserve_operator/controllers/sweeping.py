"""Deletes the DPGroups and pods of a TaskExecutor that is gone, all at once.

The garbage collector would do it by itself, one generation after another: the DPGroups first, and their pods when it
has noticed that each group is gone. This only saves the time, so a deletion that takes too long is left to it, as
everything is without the operator. They go as collections, a server's in one request: the operator and the API server
spend less on it than on a request each. They are told by a label with the uid of their TaskExecutor's life: a new life
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
    pods, groups = (
        [obj for obj in store.list(kind, namespace, mine) if not leaving(obj)] for kind in ("Pod", "DPGroup")
    )
    spared = {"", *(_life(obj) for obj in (*pods, *groups) if not obj["metadata"].get("ownerReferences"))}
    parts = {("DPGroup", _life(group), "spec.node", group["spec"]["node"]) for group in groups}
    parts |= {("Pod", _life(pod), "spec.nodeName", pod["spec"].get("nodeName") or "") for pod in pods}

    async def delete(part: tuple[str, str, str, str]) -> None:
        kind, life, field, node = part
        with suppress(TimeoutError):
            await cluster.delete_all(kind, namespace, {names.LABEL_EXECUTOR_UID: life}, {field: node})

    await together(delete, sorted(part for part in parts if part[1] not in spared))


def _life(obj: Object) -> str:
    return label(obj, names.LABEL_EXECUTOR_UID)
