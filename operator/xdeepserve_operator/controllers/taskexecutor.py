"""TaskExecutor: brings up its instances, keeps them whole, scales and updates them, says how they are.

One pass, over what the store shows and the TE-shells answer:
  observe → take down what is too much → move what is faulted → place what is missing → take down what is outdated →
  TE-shell pods → rosters and memberships → statuses.
Outdated replicas come after placing, so that one that was just taken down counts as on its way back.
Every step is a function of the present state, so a pass that is cut off anywhere is completed by the next one. DPGroups
and pods carry all the memory there is; their pods are the business of the DPGroup reconciler.
"""

from collections.abc import Mapping, Sequence

from xdeepserve_operator.controllers.admission import Admission
from xdeepserve_operator.controllers.fleet import Fleet
from xdeepserve_operator.controllers.objects import announce, leaving, refuse, together
from xdeepserve_operator.controllers.ports import Clock, Cluster, Store
from xdeepserve_operator.controllers.shells import Shells
from xdeepserve_operator.controllers.snapshot import Executor, groups_of, instances
from xdeepserve_operator.planner.conditions import READY, find_condition
from xdeepserve_operator.planner.executorstatus import executor_status
from xdeepserve_operator.planner.gang import Waiting
from xdeepserve_operator.planner.groups import GroupView
from xdeepserve_operator.planner.groupstatus import group_status
from xdeepserve_operator.planner.instance import InstanceView
from xdeepserve_operator.planner.readiness import executor_verdict
from xdeepserve_operator.planner.recovery import Patience
from xdeepserve_operator.planner.rollout import half_placed, outdated, surplus
from xdeepserve_operator.resources.shell import shell_selector

STEADY_SECONDS = 1.0  # the fleet's heartbeat while all is well, or while waiting is all that can be done
UNSETTLED_SECONDS = 0.2
WAITING_SECONDS = 5.0  # room that appears is an event; this is for the one that got lost
_SLOW_REASONS = frozenset({"InsufficientDies", "ModelLoadFailed"})


class TaskExecutorReconciler:
    """Reconciles TaskExecutors; also writes the statuses of their DPGroups, for it hears the TE-shells."""

    kind = "TaskExecutor"

    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        clock: Clock,
        fleet: Fleet,
        admission: Admission,
        shells: Shells,
        *,
        image: str,
        patience: Patience,
    ) -> None:
        self._store, self._cluster, self._clock = store, cluster, clock
        self._fleet, self._admission, self._shells = fleet, admission, shells
        self._image, self._patience = image, patience

    async def reconcile(self, namespace: str | None, name: str) -> float | None:
        """One pass; see the module."""
        obj = self._store.get(self.kind, namespace, name)
        if obj is None or leaving(obj):
            return None  # the garbage collector takes the children
        try:
            executor = Executor.read(obj, self._image)
            token = await self._cluster.token(executor.namespace, executor.token_secret, obj)
        except ValueError as error:
            await refuse(self._cluster, self.kind, obj, error, self._clock.now())
            return None
        reports = await self._fleet.poll(token, self._shells.present(executor))

        def observe() -> tuple[InstanceView, ...]:
            return instances(self._store, executor, reports, self._patience, self._clock.now())

        views = observe()
        extra = surplus(views, executor.spec.replicas)
        await self._take_down(executor, extra)
        waiting = await self._admission.move(executor, [view for view in views if view not in extra])
        waiting |= await self._admission.place(executor)
        if extra or any(view.faults or not view.placed for view in views):
            views = observe()
        stuck = [view for view in half_placed(views) if view.replica in waiting]
        await self._take_down(executor, [*outdated(views, executor.revision), *stuck])
        await self._shells.ensure(executor, views)
        await self._fleet.steer(executor.namespace, token, views)
        return await self._report(executor, views, waiting)

    async def _take_down(self, executor: Executor, views: Sequence[InstanceView]) -> None:
        """Deletes the DPGroups of replicas; their pods go with them."""
        replicas = {view.replica for view in views}
        for view in views:
            self._fleet.forget(executor.namespace, view.name)
        await together(
            self._give_up,
            [one for one in groups_of(self._store, executor) if one.replica in replicas and not one.leaving],
        )

    async def _give_up(self, group: GroupView) -> None:
        obj = self._store.get("DPGroup", group.namespace, group.name)
        if obj is not None:
            await self._cluster.delete("DPGroup", obj)

    async def _report(
        self, executor: Executor, views: Sequence[InstanceView], waiting: Mapping[int, Waiting]
    ) -> float | None:
        """Writes the statuses; answers when to come back."""
        now = self._clock.now()
        for view in views:
            for rank in view.ranks:
                group = rank.group and self._store.get("DPGroup", rank.group.namespace, rank.group.name)
                status = group_status(group, rank, now) if group else None
                if group and status is not None:
                    await self._cluster.update_status("DPGroup", group, status)
        before = find_condition(executor.obj, READY) or {}
        verdict = executor_verdict(
            views, executor.spec.replicas, executor.revision, waiting, str(before.get("reason", ""))
        )
        announce(self._cluster, executor.obj, verdict)
        status = executor_status(
            executor.obj,
            executor.spec.replicas,
            executor.revision,
            views,
            waiting,
            verdict,
            now,
            shell_selector(executor.name),
        )
        await self._cluster.update_status(self.kind, executor.obj, status)
        if not any(view.holds_dies for view in views):
            return WAITING_SECONDS if views else None
        return STEADY_SECONDS if verdict.holds or waiting or verdict.reason in _SLOW_REASONS else UNSETTLED_SECONDS
