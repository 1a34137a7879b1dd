"""ScalingPolicy: watches the load of a ModelDeployment's roles and, in mode Active, scales their TaskExecutors.

It writes through /scale only, as a person would. What is done is decided in planner.scaling; here the figures are
gathered: loads from what TE-shells last said to the fleet, latencies from what frontends last said to the route keeper.
Nothing is asked for twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from xdeepserve_operator.api.v1alpha1.deployment import ModelDeploymentSpec, Role
from xdeepserve_operator.api.v1alpha1.scaling import ScalingPolicySpec
from xdeepserve_operator.controllers.fleet import Fleet
from xdeepserve_operator.controllers.objects import announce, leaving, refuse
from xdeepserve_operator.controllers.ports import Clock, Cluster, Object, Store
from xdeepserve_operator.controllers.routes import RouteKeeper
from xdeepserve_operator.planner.conditions import READY, condition_for
from xdeepserve_operator.planner.executorstatus import unsettled
from xdeepserve_operator.planner.pods import view_pod
from xdeepserve_operator.planner.readiness import Verdict
from xdeepserve_operator.planner.scaling import Decision, Seen, State, begin, decide
from xdeepserve_operator.planner.scaling_demand import Objective, RoleLoad
from xdeepserve_operator.planner.scaling_latency import Window
from xdeepserve_operator.planner.scaling_status import foreign, scaling_status
from xdeepserve_operator.resources import children

LOOK_SECONDS = 2.0


@dataclass
class _Memory:
    state: State
    window: Window = field(default_factory=Window)


class ScalingPolicyReconciler:
    """Reconciles ScalingPolicies."""

    kind = "ScalingPolicy"

    def __init__(self, store: Store, cluster: Cluster, clock: Clock, fleet: Fleet, routes: RouteKeeper) -> None:
        self._store, self._cluster, self._clock = store, cluster, clock
        self._fleet, self._routes = fleet, routes
        self._memory: dict[tuple[str, str], _Memory] = {}

    async def reconcile(self, namespace: str | None, name: str) -> float | None:
        """One look; see the module."""
        policy = self._store.get(self.kind, namespace, name)
        key = (namespace or "", name)
        if policy is None or leaving(policy) or namespace is None:
            self._memory.pop(key, None)
            return None
        try:
            spec = ScalingPolicySpec.model_validate(policy["spec"])
            target = self._target(policy, spec)
        except ValueError as error:
            return await refuse(self._cluster, self.kind, policy, error, self._clock.now())
        if isinstance(target, Verdict):
            self._memory.pop(key, None)
            await self._say(policy, target, {})
            return LOOK_SECONDS
        deployment = ModelDeploymentSpec.model_validate(target["spec"])
        found = self._executors(target, deployment)
        if found is None:
            return LOOK_SECONDS
        now = self._clock.monotonic()
        memory = self._memory.setdefault(key, _Memory(begin(now)))
        heard = self._routes.heard(namespace, target["metadata"]["name"])
        memory.window.add(now, heard)
        active = spec.mode == "Active"
        seen = Seen(
            roles=tuple(self._load(role, executor) for role, executor in found),
            latency=memory.window.latency(spec.objective.percentile),
            active=sum(one.active for one in heard.values()),
            foreign=foreign(policy, {role.name: _replicas(one) for role, one in found}) if active else frozenset(),
            frozen=_frozen(found),
        )
        decisions, memory.state = decide(spec, _objective(spec, deployment), seen, memory.state, now)
        status = scaling_status(policy, decisions, active=active, now=self._clock.now())
        mode = "scales" if active else "only says what it would do"
        await self._say(policy, Verdict(True, spec.mode, f"{mode}: {target['metadata']['name']}"), status)
        if active:
            await self._scale(policy, {role.name: executor for role, executor in found}, decisions)
        return LOOK_SECONDS

    def _target(self, policy: Object, spec: ScalingPolicySpec) -> Object | Verdict:
        """The ModelDeployment, or why there is nothing to do."""
        namespace, name = policy["metadata"]["namespace"], spec.target_ref.name
        target = self._store.get("ModelDeployment", namespace, name)
        if target is None or leaving(target):
            return Verdict(False, "TargetMissing", f"there is no ModelDeployment {name}")
        rivals = [
            one
            for one in self._store.list(self.kind, namespace)
            if one["spec"].get("targetRef", {}).get("name") == name and not leaving(one)
        ]
        first = min(rivals, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]))
        if first["metadata"]["uid"] != policy["metadata"]["uid"]:
            other = first["metadata"]["name"]
            return Verdict(False, "Conflict", f"ScalingPolicy {other} scales {name} already; delete one of them")
        known = {role["name"] for role in target["spec"]["roles"]}
        unknown = [one.name for one in spec.roles if one.name not in known]
        if unknown:
            return Verdict(False, "UnknownRole", f"{name} has no role {unknown[0]}")
        return target

    def _executors(self, target: Object, spec: ModelDeploymentSpec) -> list[tuple[Role, Object]] | None:
        """Roles with their TaskExecutors; None while one is missing."""
        namespace, name = target["metadata"]["namespace"], target["metadata"]["name"]
        found: list[tuple[Role, Object]] = []
        for role in spec.roles:
            executor = self._store.get("TaskExecutor", namespace, children.executor_name(name, role.name))
            if executor is None or leaving(executor):
                return None
            found.append((role, executor))
        return found

    def _load(self, role: Role, executor: Object) -> RoleLoad:
        metadata, instances = executor["metadata"], executor.get("status", {}).get("instances") or ()
        serving = [one["index"] for one in instances if one["ready"] and not one.get("leaving")]
        shells = [
            self._store.get("Pod", metadata["namespace"], children.shell_name(metadata["name"], replica))
            for replica in serving
        ]
        reports = [self._fleet.last(view_pod(shell)) if shell is not None else None for shell in shells]
        ranks = [rank.status for one in reports if one is not None for rank in one.ranks if rank.status is not None]
        return RoleLoad(
            name=role.name,
            type=role.type,
            replicas=_replicas(executor),
            serving=len(serving),
            groups=role.parallelism.dp,
            batch=role.parallelism.dp * role.max_batch_per_group,
            running=sum(one.running for one in ranks),
            waiting=sum(one.waiting for one in ranks),
            kv_usage=sum(one.kv_usage for one in ranks) / max(1, len(ranks)),
            silent=sum(one is None for one in reports),
        )

    async def _say(self, policy: Object, verdict: Verdict, status: dict[str, Any]) -> None:
        announce(self._cluster, policy, verdict)
        condition = condition_for(policy, READY, verdict.holds, verdict.reason, verdict.message, self._clock.now())
        await self._cluster.update_status(self.kind, policy, status | {"conditions": [condition]})

    async def _scale(self, policy: Object, executors: dict[str, Object], decisions: Sequence[Decision]) -> None:
        for one in decisions:
            if one.after != one.before:
                message = f"role {one.role} from {one.before} to {one.after} instances: {one.message}"
                self._cluster.event(policy, one.reason, message)
                await self._cluster.scale(executors[one.role], one.after)


def _replicas(executor: Object) -> int:
    return int(executor["spec"].get("replicas", 1))


def _objective(spec: ScalingPolicySpec, deployment: ModelDeploymentSpec) -> Objective:
    own, promised = spec.objective, deployment.slo
    return Objective(
        ttft=own.ttft_milliseconds or (promised.ttft_milliseconds if promised else None),
        tpot=own.tpot_milliseconds or (promised.tpot_milliseconds if promised else None),
        load_percent=own.load_percent,
        cache_percent=own.cache_percent,
    )


def _frozen(roles: Sequence[tuple[Role, Object]]) -> str:
    """The rollout or recovery that runs; empty when none does."""
    for role, executor in roles:
        if reason := unsettled(executor, partition=bool(role.update.partition)):
            return f"role {role.name}: {reason}"
    return ""
