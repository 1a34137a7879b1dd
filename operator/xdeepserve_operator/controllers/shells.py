"""TE-shell pods: one for every replica that holds dies, of the replica's revision, on a living node.

A shell has one name for all its lives, so a new one is made only when the old one is gone. One on a lost node would
never go by itself: unless it still answers it is deleted without grace, as is every pod of the executor that ends on
such a node.
"""

from collections.abc import Sequence
from dataclasses import replace

from xdeepserve_operator.api import names
from xdeepserve_operator.controllers.lost import let_go, on_lost_server
from xdeepserve_operator.controllers.objects import delete_pod
from xdeepserve_operator.controllers.ports import Cluster, Store
from xdeepserve_operator.controllers.snapshot import Executor, pods_of
from xdeepserve_operator.planner.instance import InstanceView
from xdeepserve_operator.planner.pods import PodView
from xdeepserve_operator.resources.settings import EngineImage
from xdeepserve_operator.resources.shell import shell_pod


class Shells:
    """TE-shells of all TaskExecutors."""

    def __init__(self, store: Store, cluster: Cluster, image: EngineImage) -> None:
        self._store, self._cluster, self._image = store, cluster, image

    def present(self, executor: Executor) -> list[PodView]:
        """Shell pods that may answer."""
        pods = pods_of(self._store, executor)
        return [pod for pod in pods if pod.component == names.COMPONENT_SHELL and pod.alive]

    async def ensure(self, executor: Executor, views: Sequence[InstanceView]) -> None:
        """Makes the shells be as they should."""
        revisions = {view.replica: view.revision for view in views if view.holds_dies}
        answering = {view.replica for view in views if view.report is not None}
        present: set[int] = set()
        pods = pods_of(self._store, executor)
        await let_go(self._store, self._cluster, (pod for pod in pods if pod.component != names.COMPONENT_SHELL))
        for pod in pods:
            if pod.component != names.COMPONENT_SHELL:
                continue
            present.add(pod.replica)
            if not pod.forced and pod.replica not in answering and on_lost_server(self._store, pod):
                await delete_pod(self._store, self._cluster, pod, grace_seconds=0)
            elif not pod.terminating and (pod.terminal or revisions.get(pod.replica) != pod.revision):
                await delete_pod(self._store, self._cluster, pod)
        for replica in sorted(revisions.keys() - present):
            revision = revisions[replica]
            template = executor.template(revision)
            if template is not None:
                image = replace(self._image, name=template.image)
                body = shell_pod(executor.obj, replica, revision, executor.token_secret, image)
                await self._cluster.create("Pod", body)
