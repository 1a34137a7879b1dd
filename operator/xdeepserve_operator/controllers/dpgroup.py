"""DPGroup: keeps exactly one pod, that of the current attempt.

Where an engine of the executor waits on the group's server, that one becomes the pod instead of a new one.
A pod is only ever built from what the group's revision remembers: where nobody does, the group keeps the pod it has,
and gets none. Pods of older attempts are deleted: without grace when their die or node is dead, for nothing there
will ever end by itself; else with the shortest, for whatever was wrong with them, their clients wait for the end.
What is wrong with the current attempt is for the TaskExecutor's reconciler to judge, since a remedy needs a place.
"""

from dataclasses import replace

from pydantic import ValidationError

from xdeepserve_operator.api import names
from xdeepserve_operator.controllers.objects import leaving
from xdeepserve_operator.controllers.ports import Cluster, Store
from xdeepserve_operator.controllers.snapshot import Executor
from xdeepserve_operator.controllers.warm import WarmEngines
from xdeepserve_operator.planner.pods import view_pod
from xdeepserve_operator.planner.recovery import hardware_fault
from xdeepserve_operator.planner.servers import node_health
from xdeepserve_operator.resources import children
from xdeepserve_operator.resources.engine import engine_pod
from xdeepserve_operator.resources.settings import EngineImage

OLD_ATTEMPT_GRACE_SECONDS = 1


class DPGroupReconciler:
    """Reconciles DPGroups."""

    kind = "DPGroup"

    def __init__(self, store: Store, cluster: Cluster, image: EngineImage, warm: WarmEngines) -> None:
        self._store, self._cluster, self._image, self._warm = store, cluster, image, warm

    async def reconcile(self, namespace: str | None, name: str) -> float | None:
        """One pass; see the module."""
        group = self._store.get(self.kind, namespace, name)
        if group is None or leaving(group):
            return None  # the garbage collector takes the pods
        owner = self._store.get("TaskExecutor", namespace, group["spec"]["executorRef"]["name"])
        if owner is None or leaving(owner):
            return None
        attempt = group["spec"].get("attempt", 0)
        present = False
        for pod in self._store.list("Pod", namespace, {names.LABEL_GROUP: name}):
            view = view_pod(pod)
            if view.attempt == attempt:
                present = True
                continue
            health = node_health(self._store.get("Node", None, view.node)) if view.node else None
            dead = health is not None and hardware_fault(view, health) is not None
            if not view.terminating or (dead and not view.forced):
                await self._cluster.delete("Pod", pod, grace_seconds=0 if dead else OLD_ATTEMPT_GRACE_SECONDS)
        pod_name = children.engine_pod_name(name, attempt)
        if present or "leaving" in group["spec"] or self._store.get("Pod", namespace, pod_name) is not None:
            return None
        try:
            executor = Executor.read(self._store, owner, self._image.name)
        except ValidationError:
            return None  # the TaskExecutor's status says so
        template = executor.template(group["spec"]["revision"])
        if template is not None and not await self._warm.adopt(executor, group):
            image = replace(self._image, name=template.image)
            donor = self._warm.donor(executor, group)
            body = engine_pod(owner, template.spec, group, executor.token_secret, image, donor)
            await self._cluster.create("Pod", body)
        return None
