"""FaultInjection: notes when the effect of a fault was seen and when all that it hit was whole again.

It only looks at TaskExecutors, as a person would: nothing here breaks or heals anything. The servers write the other
fields of the status.
"""

from xdeepserve_operator.api import names
from xdeepserve_operator.controllers.objects import label, leaving
from xdeepserve_operator.controllers.ports import Clock, Cluster, Object, Store
from xdeepserve_operator.planner.conditions import condition_for, find_condition, format_time, parse_time
from xdeepserve_operator.planner.injury import assess, milliseconds

RECOVERED = "Recovered"


class FaultInjectionReconciler:
    """Reconciles FaultInjections."""

    kind = "FaultInjection"

    def __init__(self, store: Store, cluster: Cluster, clock: Clock) -> None:
        self._store, self._cluster, self._clock = store, cluster, clock

    async def reconcile(self, namespace: str | None, name: str) -> float | None:
        """One pass; see the module."""
        injection = self._store.get(self.kind, namespace, name)
        if injection is None or leaving(injection):
            return None
        status = injection.get("status", {})
        injected = parse_time(status.get("injectedAt"))
        if injected is None or (find_condition(injection, RECOVERED) or {}).get("status") == "True":
            return None
        hit = self._hit(injection)
        injury = assess(injected, parse_time(status.get("observedAt")), hit)
        mine: Object = {}
        if injury.observed is not None:
            mine["observedAt"] = format_time(injury.observed)
        if injury.recovered is not None:
            mine["recoveredAt"] = format_time(injury.recovered)
            mine["recoveryMilliseconds"] = milliseconds(injected, injury.recovered)
        if not hit:
            verdict = (True, "NothingHit", "no TaskExecutor has a pod there")
        elif injury.recovered is not None:
            verdict = (True, "Recovered", "every TaskExecutor that was hit is Ready again")
        elif injury.observed is not None:
            down = ", ".join(executor["metadata"]["name"] for executor in hit)
            verdict = (False, "Recovering", f"hit: {down}")
        elif status.get("mendedAt"):
            verdict = (True, "NoEffect", "mended before anything was seen of it")
        else:
            verdict = (False, "NotObserved", "no effect seen yet")
        condition = condition_for(injection, RECOVERED, *verdict, self._clock.now())
        before = (find_condition(injection, RECOVERED) or {}).get("reason")
        if verdict[1] not in (before, "NotObserved"):
            self._cluster.event(injection, verdict[1], verdict[2])
        await self._cluster.update_status(self.kind, injection, mine | {"conditions": [condition]})
        return None

    def _hit(self, injection: Object) -> list[Object]:
        """TaskExecutors with a pod on the hardware that broke; the one named as target while pods are not listed."""
        namespace = injection["metadata"]["namespace"]
        found: set[tuple[str, str]] = set()
        for entry in injection.get("status", {}).get("pods") or ():
            space, _, pod_name = entry.partition("/")
            pod = self._store.get("Pod", space, pod_name)
            group = self._store.get("DPGroup", space, pod_name.rpartition("-")[0])
            executor = label(pod, names.LABEL_EXECUTOR) if pod else label(group, names.LABEL_EXECUTOR) if group else ""
            if executor:
                found.add((space, executor))
        target = injection["spec"]["target"].get("taskExecutor")
        if target:
            found.add((namespace, target))
        executors = (self._store.get("TaskExecutor", *key) for key in sorted(found))
        return [executor for executor in executors if executor is not None]
