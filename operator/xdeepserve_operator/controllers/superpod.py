"""SuperPod: counts dies and lists servers, as nodes and pods show them.

Pods come and go in hundreds, so servers are counted, and the status written, at most once a second.
"""

from pydantic import ValidationError

from xdeepserve_operator.controllers.objects import announce, complaint, leaving
from xdeepserve_operator.controllers.ports import Clock, Cluster, Store
from xdeepserve_operator.controllers.snapshot import servers_of
from xdeepserve_operator.planner.conditions import READY, condition_for
from xdeepserve_operator.planner.inventory import inventory, superpod_verdict

WRITE_SECONDS = 1.0


class SuperPodReconciler:
    """Reconciles SuperPods."""

    kind = "SuperPod"

    def __init__(self, store: Store, cluster: Cluster, clock: Clock) -> None:
        self._store, self._cluster, self._clock = store, cluster, clock
        self._counted: dict[str, float] = {}

    async def reconcile(self, namespace: str | None, name: str) -> float | None:
        """One pass; see the module."""
        superpod = self._store.get(self.kind, namespace, name)
        if superpod is None or leaving(superpod):
            self._counted.pop(name, None)
            return None
        wait = self._counted.get(name, -WRITE_SECONDS) + WRITE_SECONDS - self._clock.monotonic()
        if wait > 0:
            return wait
        self._counted[name] = self._clock.monotonic()
        try:
            servers = servers_of(self._store, name) or ()
            verdict = superpod_verdict(superpod["spec"], servers)
            status = inventory(superpod["metadata"].get("generation", 0), servers)
        except ValidationError as error:
            verdict, status = complaint(error), {}
        condition = condition_for(superpod, READY, verdict.holds, verdict.reason, verdict.message, self._clock.now())
        status |= {"conditions": [condition]}
        if superpod.get("status") == status:
            return None
        announce(self._cluster, superpod, verdict)
        await self._cluster.update_status(self.kind, superpod, status)
        return None
