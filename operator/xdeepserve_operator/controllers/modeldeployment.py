"""ModelDeployment: a token, a TaskExecutor a role, the frontend and its routes, one Ready for all of it.

A role that says how its experts are balanced has an ExpertPlacement beside its TaskExecutor. One that cannot be made is
told in Ready, and keeps nothing from serving.

Replicas of a role are scaled only when the role's own number changes; whatever /scale was told otherwise stays. Scaling
comes before the annotation that remembers it: cut off in between, it is done again.
"""

from collections.abc import Mapping, Sequence

from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.deployment import ModelDeploymentSpec, ModelDeploymentStatus, RoleStatus
from xdeepserve_operator.controllers.history import History
from xdeepserve_operator.controllers.lost import let_go
from xdeepserve_operator.controllers.objects import NameTaken, announce, complaint, controlled_by, leaving, refuse
from xdeepserve_operator.controllers.ports import Clock, Cluster, Object, Store
from xdeepserve_operator.controllers.role_experts import keep_placements
from xdeepserve_operator.controllers.routes import RouteKeeper
from xdeepserve_operator.planner.conditions import READY, condition_for
from xdeepserve_operator.planner.pods import PodView, view_pod
from xdeepserve_operator.planner.progress import PROGRESSING
from xdeepserve_operator.planner.readiness import Verdict
from xdeepserve_operator.planner.revision import pair_of
from xdeepserve_operator.planner.serving import (
    RoleView,
    deployment_progress,
    deployment_verdict,
    frontend_view,
    pick_endpoint,
    ready_summary,
)
from xdeepserve_operator.planner.traffic import Entrance, targets
from xdeepserve_operator.resources import children
from xdeepserve_operator.resources.executor import executor_spec, leftovers, replicas_to_ask, task_executor
from xdeepserve_operator.resources.frontend import frontend_deployment, frontend_labels, frontend_service
from xdeepserve_operator.resources.settings import EngineImage

STEADY_SECONDS = 2.0
UNSETTLED_SECONDS = 0.2


class ModelDeploymentReconciler:
    """Reconciles ModelDeployments."""

    kind = "ModelDeployment"

    def __init__(
        self, store: Store, cluster: Cluster, clock: Clock, routes: RouteKeeper, history: History, *, image: EngineImage
    ) -> None:
        self._store, self._cluster, self._clock = store, cluster, clock
        self._routes, self._history, self._image = routes, history, image

    async def reconcile(self, namespace: str | None, name: str) -> float | None:
        """One pass; see the module."""
        deployment = self._store.get(self.kind, namespace, name)
        if deployment is None or leaving(deployment) or namespace is None:
            self._routes.forget(namespace or "", name)
            return None
        secret = children.control_secret_name(name)
        try:
            spec = ModelDeploymentSpec.model_validate(deployment["spec"])
            token = await self._cluster.token(namespace, secret, deployment)
            revision = await self._history.record(deployment, spec)
            roles = await self._executors(deployment, spec)
        except ValueError as error:
            return await refuse(self._cluster, self.kind, deployment, error, self._clock.now())
        await self._cluster.apply("Service", frontend_service(deployment))
        entrance = await self._cluster.apply("Deployment", frontend_deployment(deployment, spec, secret, self._image))
        pods = [view_pod(pod) for pod in self._store.list("Pod", namespace, frontend_labels(name))]
        await let_go(self._store, self._cluster, pods)
        running = [pod for pod in pods if pod.alive and pod.ip]
        known = int(deployment.get("status", {}).get("routesEpoch", 0))
        state = await self._routes.spread(
            (namespace, name), token, [pod.ip for pod in running], targets(self._entrances(roles)), known
        )
        view = frontend_view(entrance, spec.frontend.replicas, pods, len(running), state.routed)
        verdict = deployment_verdict(roles, view)
        try:
            await keep_placements(self._store, self._cluster, deployment, spec)
        except NameTaken as error:
            verdict = complaint(error)
        epoch = state.epoch if running and state.routed == len(running) else known
        await self._report(deployment, roles, running, verdict, epoch, revision)
        return STEADY_SECONDS if state.routed == len(running) else UNSETTLED_SECONDS

    async def _executors(self, deployment: Object, spec: ModelDeploymentSpec) -> list[RoleView]:
        """Makes the TaskExecutors be as the roles say, and deletes those of roles that are gone."""
        namespace, name = deployment["metadata"]["namespace"], deployment["metadata"]["name"]
        roles: list[RoleView] = []
        for role in spec.roles:
            child = children.executor_name(name, role.name)
            executor = self._store.get("TaskExecutor", namespace, child)
            if executor is None:
                body = task_executor(deployment, spec, role, create=True)
                executor = await self._cluster.create("TaskExecutor", body)
            if not controlled_by(executor, deployment):
                raise NameTaken(f"TaskExecutor {child} exists and is not of this ModelDeployment; delete or rename it")
            if not leaving(executor):
                replicas = replicas_to_ask(executor, role)
                if replicas is not None:
                    await self._cluster.scale(executor, replicas)
                body = task_executor(deployment, spec, role, create=False)
                executor = await self._cluster.apply("TaskExecutor", body)
                if extra := leftovers(executor, executor_spec(deployment, spec, role)):
                    executor = await self._cluster.strip("TaskExecutor", executor, extra)
            roles.append(RoleView(role.name, role.type, executor))
        wanted = {children.executor_name(name, role.name) for role in spec.roles}
        for executor in self._store.list("TaskExecutor", namespace, {names.LABEL_DEPLOYMENT: name}):
            surplus = executor["metadata"]["name"] not in wanted and controlled_by(executor, deployment)
            if surplus and not leaving(executor):
                await self._cluster.delete("TaskExecutor", executor)
        return roles

    def _entrances(self, roles: Sequence[RoleView]) -> list[Entrance]:
        """Instances that serve and stay."""
        found: list[Entrance] = []
        for role in roles:
            if role.executor is None:
                continue
            metadata = role.executor["metadata"]
            for one in role.status.get("instances") or ():
                replica = one["index"]
                shell = self._store.get("Pod", metadata["namespace"], children.shell_name(metadata["name"], replica))
                host = view_pod(shell).ip if shell is not None and not leaving(shell) else ""
                if one["ready"] and not one.get("leaving") and host:
                    instance = children.instance_name(metadata["name"], replica)
                    found.append(Entrance(instance, role.type, host, pair_of(one["revision"])))
        return found

    async def _report(
        self,
        deployment: Object,
        roles: Sequence[RoleView],
        frontends: Sequence[PodView],
        verdict: Verdict,
        routes_epoch: int,
        revision: int,
    ) -> None:
        announce(self._cluster, deployment, verdict)
        name = children.frontend_name(deployment["metadata"]["name"])
        service = f"http://{name}.{deployment['metadata']['namespace']}.svc:{names.PORT_API}"
        before: Mapping[str, str] = deployment.get("status", {})
        status = ModelDeploymentStatus(
            observed_generation=deployment["metadata"].get("generation", 0),
            endpoint=pick_endpoint(frontends, service, before.get("endpoint", "")),
            roles=[
                RoleStatus(
                    name=role.name,
                    type=role.type,
                    replicas=role.replicas,
                    ready=int(role.status.get("readyReplicas", 0)),
                    updated=int(role.status.get("updatedReplicas", 0)),
                )
                for role in roles
            ],
            ready_roles=ready_summary(roles),
            revision=revision,
            routes_epoch=routes_epoch,
        ).to_wire()
        now = self._clock.now()
        conditions = [
            condition_for(deployment, kind, one.holds, one.reason, one.message, now)
            for kind, one in ((READY, verdict), (PROGRESSING, deployment_progress(roles)))
        ]
        await self._cluster.update_status(self.kind, deployment, status | {"conditions": conditions})
