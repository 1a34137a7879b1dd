"""Pods that end on a lost server: nobody there will ever confirm that they are gone, so they go without grace."""

from collections.abc import Iterable

from xdeepserve_operator.controllers.objects import delete_pod
from xdeepserve_operator.controllers.ports import Cluster, Store
from xdeepserve_operator.planner.pods import PodView
from xdeepserve_operator.planner.servers import node_health


def on_lost_server(store: Store, pod: PodView) -> bool:
    """Whether a pod is bound to a server that nobody hears."""
    return bool(pod.node) and node_health(store.get("Node", None, pod.node)).lost


async def let_go(store: Store, cluster: Cluster, pods: Iterable[PodView]) -> None:
    """Deletes without grace those that are being deleted and would stay so until their server comes back."""
    for pod in pods:
        if pod.terminating and not pod.forced and on_lost_server(store, pod):
            await delete_pod(store, cluster, pod, grace_seconds=0)
