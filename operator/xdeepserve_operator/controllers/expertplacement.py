"""ExpertPlacement: balances the routed experts of a TaskExecutor's instances over their ranks.

Every instance has a load, a map and a change of its own (``expert_instance``). What engines say of themselves comes
from what TE-shells last said to the fleet. Nothing begins, and what is on its way is called off, while the TaskExecutor
rolls out or recovers, and while the placement is paused. One thing goes on: in mode Dynamic, ranks that are unwell and
cannot be replaced yet are emptied (``planner.expert_evacuation``), and get their share back when they are well.
"""

from collections.abc import Iterator

from flowserve.wire import ShellStatus
from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.experts import ExpertPlacementSpec, InstancePlacement, PlacementEvent
from xdeepserve_operator.controllers.expert_ear import ExpertRoutes, Look
from xdeepserve_operator.controllers.expert_instance import ExpertInstance
from xdeepserve_operator.controllers.expert_maps import ExpertMaps
from xdeepserve_operator.controllers.fleet import Fleet
from xdeepserve_operator.controllers.objects import announce, leaving, refuse
from xdeepserve_operator.controllers.ports import Clock, Cluster, Object, Store
from xdeepserve_operator.controllers.snapshot import Executor, instances
from xdeepserve_operator.planner.executorstatus import unsettled
from xdeepserve_operator.planner.expert_evacuation import Evacuation, evacuation
from xdeepserve_operator.planner.expert_load import Measured
from xdeepserve_operator.planner.expert_map import BadMap
from xdeepserve_operator.planner.expert_status import placement_status
from xdeepserve_operator.planner.pods import view_pod
from xdeepserve_operator.planner.readiness import Verdict
from xdeepserve_operator.planner.recovery import Patience
from xdeepserve_operator.planner.servers import node_health
from xdeepserve_operator.resources import children

LOOK_SECONDS, SWAP_SECONDS = 2.0, 0.3


class ExpertPlacementReconciler:
    """Reconciles ExpertPlacements."""

    kind = "ExpertPlacement"

    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        clock: Clock,
        fleet: Fleet,
        routes: ExpertRoutes,
        *,
        image: str,
        patience: Patience,
    ) -> None:
        self._store, self._cluster, self._clock = store, cluster, clock
        self._fleet, self._routes, self._image, self._patience = fleet, routes, image, patience
        self._maps = ExpertMaps(store, cluster)
        self._instances: dict[tuple[str, int], ExpertInstance] = {}  # by uid of the placement, and replica

    async def reconcile(self, namespace: str | None, name: str) -> float | None:
        """One look; see the module."""
        placement = self._store.get(self.kind, namespace, name)
        if placement is None or leaving(placement):
            return None
        try:
            spec = ExpertPlacementSpec.model_validate(placement["spec"])
            target = self._target(placement, spec)
            if isinstance(target, Verdict):
                return await self._say(placement, spec, target)
            token = await self._cluster.token(target.namespace, target.token_secret, target.obj)
        except ValueError as error:
            return await refuse(self._cluster, self.kind, placement, error, self._clock.now())
        frozen = "paused" if spec.paused else unsettled(target.obj, partition=bool(target.spec.update.partition))
        present = {
            one["index"] for one in target.obj.get("status", {}).get("instances") or () if not one.get("leaving")
        }
        looks = list(self._looks(placement, spec, target, token, frozen))
        self._forget(placement, present)
        if present and not looks and not frozen:
            return LOOK_SECONDS  # no TE-shell was heard yet: what is known stays
        return await self._act(placement, spec, present, looks, frozen)

    async def _act(
        self, placement: Object, spec: ExpertPlacementSpec, present: set[int], looks: list[Look], frozen: str
    ) -> float:
        before = {one["index"]: one for one in placement.get("status", {}).get("instances") or ()}
        silent = present - {look.index for look in looks}
        said = [InstancePlacement.model_validate(one) for index, one in before.items() if index in silent]
        events: list[PlacementEvent] = []
        measured: dict[int, Measured] = {}
        problem: Verdict | None = None
        followed = placement.get("status", {}).get("applyRequest", "")
        for look in looks:
            key = placement["metadata"]["uid"], look.index
            acting = self._instances.setdefault(
                key, ExpertInstance(self._maps, self._cluster, self._routes, self._clock)
            )
            old = InstancePlacement.model_validate(before.get(look.index, {"index": look.index}))
            try:
                said.append(await acting.look(look, old))
                if acting.refusal:
                    problem = Verdict(False, "Unplannable", f"instance {look.index}: {acting.refusal}")
            except BadMap as error:
                problem = Verdict(False, "BadMap", f"instance {look.index}: {error}")
                said.append(old.model_copy(update={"message": str(error)[:1024]}))
            events = [*acting.events, *events]
            if acting.measured is not None:
                measured[look.index] = acting.measured
            if acting.applied_at_once:
                followed = _request(placement)
        ready = Verdict(True, spec.mode, f"watches {len(looks)} instances")
        if frozen:
            saving = any(look.evacuation.ranks for look in looks)
            text = f"nothing {'else ' if saving else ''}moves: {frozen}"
            ready = Verdict(False, "Paused" if spec.paused else "Frozen", text)
        elif not looks:
            ready = Verdict(False, "NoInstance", "no instance serves yet")
        announce(self._cluster, placement, ready)
        now = self._clock.now()
        said.sort(key=lambda one: one.index)
        status = placement_status(placement, spec, said, events, measured, ready, problem, followed, now)
        await self._cluster.update_status(self.kind, placement, status)
        return SWAP_SECONDS if any(one.swap_phase != "Idle" for one in said) else LOOK_SECONDS

    def _target(self, placement: Object, spec: ExpertPlacementSpec) -> Executor | Verdict:
        """The TaskExecutor, or why there is nothing to do. Raises ValidationError for one that is none of ours."""
        namespace, name = placement["metadata"]["namespace"], spec.target_ref.name
        obj = self._store.get("TaskExecutor", namespace, name)
        if obj is None or leaving(obj):
            return Verdict(False, "TargetMissing", f"there is no TaskExecutor {name}")
        rivals = [
            one
            for one in self._store.list(self.kind, namespace)
            if one["spec"].get("targetRef", {}).get("name") == name and not leaving(one)
        ]
        first = min(rivals, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]))
        if first["metadata"]["uid"] != placement["metadata"]["uid"]:
            other = first["metadata"]["name"]
            return Verdict(False, "Conflict", f"ExpertPlacement {other} places {name} already; delete one of them")
        executor = Executor.read(self._store, obj, self._image)
        if executor.spec.role != spec.phase:
            return Verdict(False, "OtherPhase", f"{name} is for {executor.spec.role}, this is for {spec.phase}")
        return executor

    def _looks(
        self, placement: Object, spec: ExpertPlacementSpec, target: Executor, token: str, frozen: str
    ) -> Iterator[Look]:
        """Instances whose TE-shell can be believed."""
        request = _request(placement)
        at_once = bool(request) and request != placement.get("status", {}).get("applyRequest", "")
        reports: dict[int, ShellStatus] = {}
        for instance in target.obj.get("status", {}).get("instances") or ():
            index = instance["index"]
            shell = self._store.get("Pod", target.namespace, children.shell_name(target.name, index))
            report = self._fleet.last(view_pod(shell)) if shell is not None else None
            if report is not None and not instance.get("leaving"):
                reports[index] = report
        for view in instances(self._store, target, reports, self._patience, self._clock.now()) if reports else ():
            if view.report is not None and view.shell is not None:
                nodes = {rank.node for rank in view.ranks}
                servers = {node: node_health(self._store.get("Node", None, node)) for node in nodes if node}
                yield Look(
                    placement,
                    spec,
                    view.replica,
                    view.name,
                    view.shell.ip,
                    token,
                    view.report,
                    frozen,
                    at_once,
                    evacuation(view, servers) if _heals(spec) else Evacuation(),
                    tuple(rank.node for rank in view.ranks),
                )

    async def _say(self, placement: Object, spec: ExpertPlacementSpec, verdict: Verdict) -> float:
        announce(self._cluster, placement, verdict)
        followed = placement.get("status", {}).get("applyRequest", "")
        status = placement_status(placement, spec, [], [], {}, verdict, verdict, followed, self._clock.now())
        await self._cluster.update_status(self.kind, placement, status)
        return LOOK_SECONDS

    def _forget(self, placement: Object, present: set[int]) -> None:
        """Drops what is remembered of instances that are gone, and of placements too."""
        uid = placement["metadata"]["uid"]
        alive = {one["metadata"]["uid"] for one in self._store.list(self.kind)}
        for key in list(self._instances):
            if key[0] not in alive or (key[0] == uid and key[1] not in present):
                del self._instances[key]
                self._maps.forget(*key)


def _heals(spec: ExpertPlacementSpec) -> bool:
    """Whether experts may move for the sake of recovery."""
    return spec.mode == "Dynamic" and spec.policy.name != "none" and not spec.paused


def _request(placement: Object) -> str:
    """The last request to apply a plan at once; empty if there was none."""
    value: str = (placement["metadata"].get("annotations") or {}).get(names.ANNOTATION_APPLY_EXPERTS, "")
    return value[:64]
