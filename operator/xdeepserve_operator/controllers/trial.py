"""Looks after gangs that are on trial: see planner.deadline."""

from collections.abc import Sequence

from pydantic import ValidationError

from xdeepserve_operator.controllers.objects import leaving
from xdeepserve_operator.controllers.ports import Clock, Object, Store
from xdeepserve_operator.controllers.snapshot import Executor, instances
from xdeepserve_operator.planner.conditions import READY, is_true
from xdeepserve_operator.planner.deadline import Overdue, Part, on_trial, overdue, resting
from xdeepserve_operator.planner.gang import Waiting
from xdeepserve_operator.planner.instance import InstanceView
from xdeepserve_operator.planner.recovery import Patience


class Trial:
    """Answers for one TaskExecutor at a time, over what the store shows."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def rest(self, executor: Executor) -> Waiting | None:
        """Why the TaskExecutor is not to be placed now, after it gave its dies back; None otherwise."""
        return resting(executor.obj, executor.gang_timeout, self._clock.now())

    def overdue(self, executor: Executor, views: Sequence[InstanceView], patience: Patience) -> Overdue | None:
        """Which of the TaskExecutor's instances must give their dies back now."""
        mates = self._mates(executor)
        if all(is_true(obj, READY) for obj in (executor.obj, *mates)):
            return None
        now = self._clock.now()
        gang = [mate for obj in mates if (mate := self._read(executor, obj)) is not None]
        others = [Part(mate.spec.role, instances(self._store, mate, {}, patience, now)) for mate in gang]
        mine = Part(executor.spec.role, views)
        if not any(on_trial(view) for part in (mine, *others) for view in part.views):
            return None
        given_back = any(self.rest(mate) is not None for mate in gang)
        return overdue(mine, others, executor.gang_timeout, now, mates_rest=given_back)

    def _mates(self, executor: Executor) -> list[Object]:
        """The other TaskExecutors of its gang."""
        gang = executor.spec.gang
        if gang is None:
            return []
        found = self._store.list("TaskExecutor", executor.namespace)
        mates = (one for one in found if (one["spec"].get("gang") or {}).get("name") == gang.name)
        return [one for one in mates if not leaving(one) and one["metadata"]["name"] != executor.name]

    def _read(self, executor: Executor, obj: Object) -> Executor | None:
        try:
            return Executor.read(self._store, obj, executor.image)
        except ValidationError:
            return None  # its own reconciler says so
