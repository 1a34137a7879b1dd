"""TaskExecutor: brings up its instances, keeps them whole, scales and updates them, says how they are.

One pass, over what the store shows and the TE-shells answer:
  observe → take down what has left → move what is faulted → place what is missing → let leave what is too much or
  outdated → TE-shell pods → rosters and memberships → statuses.
Who leaves is decided after placing, so that a replica that was just taken down counts as on its way back.
Every step is a function of the present state, so a pass that is cut off anywhere is completed by the next one. DPGroups
and pods carry all the memory there is; their pods are the business of the DPGroup reconciler.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from flowserve.wire import ShellStatus
from xdeepserve_operator.api.v1alpha1.update import Leaving
from xdeepserve_operator.controllers.admission import Admission
from xdeepserve_operator.controllers.fleet import Fleet
from xdeepserve_operator.controllers.history import History
from xdeepserve_operator.controllers.objects import announce, leaving, refuse, together
from xdeepserve_operator.controllers.ports import Clock, Cluster, Store
from xdeepserve_operator.controllers.shells import Shells
from xdeepserve_operator.controllers.siblings import objections
from xdeepserve_operator.controllers.snapshot import Executor, groups_of, instances, pods_of
from xdeepserve_operator.controllers.sweeping import sweep
from xdeepserve_operator.controllers.trial import Trial
from xdeepserve_operator.controllers.warm import WarmEngines
from xdeepserve_operator.planner import warm
from xdeepserve_operator.planner.conditions import READY, find_condition, format_time, is_true
from xdeepserve_operator.planner.executorstatus import executor_status
from xdeepserve_operator.planner.gang import Waiting
from xdeepserve_operator.planner.groups import GroupView
from xdeepserve_operator.planner.groupstatus import group_status
from xdeepserve_operator.planner.instance import InstanceView, RankView
from xdeepserve_operator.planner.pods import PodView
from xdeepserve_operator.planner.progress import progress_of
from xdeepserve_operator.planner.readiness import executor_verdict
from xdeepserve_operator.planner.recovery import Patience
from xdeepserve_operator.planner.rollout import Exit, exits, half_placed, is_gone, may_stay, staying
from xdeepserve_operator.resources.group import marked
from xdeepserve_operator.resources.shell import shell_selector

STEADY_SECONDS = 1.0  # the fleet's heartbeat while all is well, or while waiting is all that can be done
UNSETTLED_SECONDS = 0.2
CALM_SECONDS = 300.0  # a whole pass at least this often, as the audit, for the event that got lost
WAITING_SECONDS = 5.0  # room that appears is an event; this is for the one that got lost
_SLOW_REASONS = frozenset({"InsufficientDies", "ModelLoadFailed", "Unschedulable"})


@dataclass(frozen=True, slots=True)
class _Calm:
    """A pass after which all was well: whom it asked, what they said, when it was."""

    executor: Executor
    shells: tuple[PodView, ...]
    reports: Mapping[int, ShellStatus]
    since: float


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
        history: History,
        trial: Trial,
        warm: WarmEngines,
        *,
        image: str,
        patience: Patience,
    ) -> None:
        self._store, self._cluster, self._clock = store, cluster, clock
        self._fleet, self._admission, self._shells = fleet, admission, shells
        self._history, self._trial, self._warm = history, trial, warm
        self._image, self._patience = image, patience
        self._calm: dict[tuple[str | None, str], _Calm] = {}

    async def reconcile(self, namespace: str | None, name: str) -> float | None:
        """One pass; see the module."""
        obj = self._store.get(self.kind, namespace, name)
        if obj is None or leaving(obj):
            self._calm.pop((namespace, name), None)
            if obj is None and namespace is not None:
                self._fleet.forget_all(namespace, name)
                await sweep(self._store, self._cluster, namespace, name)
            return None  # the garbage collector takes the children
        try:
            executor = Executor.read(self._store, obj, self._image)
            token = await self._cluster.token(executor.namespace, executor.token_secret, obj)
        except ValueError as error:
            return await refuse(self._cluster, self.kind, obj, error, self._clock.now())
        reports = await self._fleet.poll(token, self._shells.present(executor))

        def observe() -> tuple[InstanceView, ...]:
            return instances(self._store, executor, reports, self._patience, self._clock.now())

        views = observe()
        await self._history.keep(executor, {view.revision for view in views if view.holds_dies})
        gone = await self._see_off(executor, views)
        given_back = self._trial.overdue(executor, views, self._patience)
        if given_back is not None:
            await self._take_down(executor, given_back.views)
            waiting = {view.replica: Waiting(given_back.message, "GaveBack") for view in given_back.views}
            return await self._report(executor, views, waiting, given_back.message)
        wanted = executor.goal.made_at(staying(views))
        keep = [view for view in views if view.leaving is None and wanted.get(view.replica) == view.revision]
        waiting = await self._admission.move(executor, keep)
        waiting |= self._rest(executor, views) or await self._admission.place(executor)
        if gone or any(view.faults or not view.placed for view in views):
            views = observe()
        leaves, hindrance = await self._let_leave(executor, views)
        await self._take_down(executor, [view for view in half_placed(views) if view.replica in waiting])
        if leaves:
            views = observe()
        await self._shells.ensure(executor, views)
        ended = {one.view.replica for one in leaves if not one.view.ready}
        steered = [view for view in views if view.leaving is None and view.replica not in ended]
        await self._fleet.steer(executor.namespace, token, steered)
        again = await self._report(executor, views, waiting, hindrance)
        await self._warm.keep(executor)
        self._remember(executor, reports, calm=not waiting and not any(view.leaving for view in views))
        return again

    async def glance(self, namespace: str | None, name: str) -> float | None:
        """While all is well and no event came, a pass can find news only in what the TE-shells say."""
        calm = self._calm.get((namespace, name))
        if calm is None or self._clock.monotonic() - calm.since > CALM_SECONDS:
            return None
        try:
            token = await self._cluster.token(calm.executor.namespace, calm.executor.token_secret, calm.executor.obj)
        except ValueError:
            return None
        reports = await self._fleet.poll(token, calm.shells)
        same = reports.keys() == calm.reports.keys() and all(reports[one] is calm.reports[one] for one in reports)
        return STEADY_SECONDS if same else None

    def _remember(self, executor: Executor, reports: Mapping[int, ShellStatus], *, calm: bool) -> None:
        """Keeps what the next glance compares with, if all is well."""
        key = (executor.namespace, executor.name)
        obj = self._store.get(self.kind, *key)
        if calm and obj is not None and is_true(obj, READY):
            shells = tuple(self._shells.present(executor))
            self._calm[key] = _Calm(executor, shells, reports, self._clock.monotonic())
        else:
            self._calm.pop(key, None)

    def _rest(self, executor: Executor, views: Sequence[InstanceView]) -> dict[int, Waiting]:
        """What replicas without dies wait for, while the gang rests."""
        rest = self._trial.rest(executor)
        return {} if rest is None else {view.replica: rest for view in views if not view.holds_dies}

    async def _see_off(self, executor: Executor, views: Sequence[InstanceView]) -> bool:
        """Ends what has left, keeps what is wanted again after all; True when anything changed."""
        others = staying(views)
        back = [view for view in views if may_stay(view, executor.goal, others)]
        await self._mark(executor, back, None)
        over = [view for view in views if is_gone(view, executor.spec.update.drain_seconds, self._clock.now())]
        over = [view for view in over if view not in back]
        await self._take_down(executor, over)
        return bool(back or over)

    async def _let_leave(self, executor: Executor, views: Sequence[InstanceView]) -> tuple[list[Exit], str]:
        """Lets replicas leave, those that serve after their requests, others at once; and what keeps the next one."""
        leaving, hindrance = exits(views, executor.goal, objections(self._store, executor, views))
        since = format_time(self._clock.now())
        for one in leaving:
            if one.view.ready:
                await self._mark(executor, [one.view], Leaving(reason=one.reason, since=since))
        await self._take_down(executor, [one.view for one in leaving if not one.view.ready])
        return leaving, hindrance

    async def _mark(self, executor: Executor, views: Sequence[InstanceView], leaving: Leaving | None) -> None:
        """Says on the DPGroups of replicas that they leave, or stay."""
        replicas = {view.replica for view in views}
        groups = [one for one in groups_of(self._store, executor) if one.replica in replicas and not one.deleted]
        objects = [self._store.get("DPGroup", one.namespace, one.name) for one in groups]
        bodies = [marked(executor.obj, obj, leaving) for obj in objects if obj is not None]
        await together(partial(self._cluster.apply, "DPGroup"), bodies)

    async def _take_down(self, executor: Executor, views: Sequence[InstanceView]) -> None:
        """Deletes the DPGroups of replicas; their pods go with them."""
        replicas = {view.replica for view in views}
        for view in views:
            self._fleet.forget(executor.namespace, view.name)
        await together(
            self._give_up,
            [one for one in groups_of(self._store, executor) if one.replica in replicas and not one.deleted],
        )

    async def _give_up(self, group: GroupView) -> None:
        obj = self._store.get("DPGroup", group.namespace, group.name)
        if obj is not None:
            await self._cluster.delete("DPGroup", obj)

    async def _report(
        self, executor: Executor, views: Sequence[InstanceView], waiting: Mapping[int, Waiting], hindrance: str
    ) -> float | None:
        """Writes the statuses; answers when to come back."""
        now = self._clock.now()
        for view in views:
            await together(partial(self._report_rank, now=now, mates=len(view.ranks)), view.ranks)
        goal, before = executor.goal, find_condition(executor.obj, READY) or {}
        verdict = executor_verdict(views, goal, waiting, str(before.get("reason", "")))
        roomless = next((one.message for replica, one in waiting.items() if goal.is_surge(replica)), "")
        pace = executor.spec.rollout
        progress = progress_of(executor.obj, goal, views, pace, roomless or hindrance, now)
        announce(self._cluster, executor.obj, verdict)
        selector = shell_selector(executor.name)
        status = executor_status(executor.obj, goal, views, waiting, verdict, progress, now, selector)
        status["warm"] = len(warm.waiting(pods_of(self._store, executor)))
        await self._cluster.update_status(self.kind, executor.obj, status)
        if not any(view.holds_dies for view in views):
            return WAITING_SECONDS if views else None
        return STEADY_SECONDS if verdict.holds or waiting or verdict.reason in _SLOW_REASONS else UNSETTLED_SECONDS

    async def _report_rank(self, rank: RankView, now: datetime, mates: int) -> None:
        group = rank.group and self._store.get("DPGroup", rank.group.namespace, rank.group.name)
        status = group_status(group, rank, now, mates=mates) if group else None
        if group and status is not None:
            await self._cluster.update_status("DPGroup", group, status)
