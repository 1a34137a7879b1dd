"""Takes dies from instances of a lower priority: their DPGroups are marked to leave, and their own TaskExecutor's
reconciler sees them off as in a rollout. Until they are gone, planner.gang keeps their room for who asked.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from xdeepserve_operator.api.v1alpha1.update import Leaving
from xdeepserve_operator.controllers.objects import together
from xdeepserve_operator.controllers.ports import Clock, Cluster, Object, Store
from xdeepserve_operator.controllers.snapshot import Executor, groups_of
from xdeepserve_operator.planner.conditions import format_time
from xdeepserve_operator.planner.groups import GroupView
from xdeepserve_operator.planner.placement import Request
from xdeepserve_operator.planner.preemption import Holder, victims
from xdeepserve_operator.planner.servers import Server
from xdeepserve_operator.resources.group import marked


class Preemption:
    """Makes room for the more important."""

    def __init__(self, store: Store, cluster: Cluster, clock: Clock) -> None:
        self._store, self._cluster, self._clock = store, cluster, clock

    async def make_room(
        self, executor: Executor, servers: Sequence[Server], requests: Sequence[Request], rivals: Sequence[Executor]
    ) -> bool:
        """Lets instances of ``rivals`` leave so that ``requests`` of ``executor`` fit; False when none can help."""
        instances: dict[tuple[str, int], list[GroupView]] = defaultdict(list)
        holders: list[Holder] = []
        owners = {rival.key: rival for rival in rivals}
        for rival in rivals:
            for group in groups_of(self._store, rival):
                instances[rival.key, group.replica].append(group)
        for (key, replica), groups in instances.items():
            if not any(group.deleted or group.leaving for group in groups):
                holders.append(_holder(owners[key], replica, groups))
        chosen = victims(servers, requests, executor.spec.priority, holders)
        for one in chosen:
            await self._preempt(owners[one.executor], instances[one.executor, one.replica], executor)
        return bool(chosen)

    async def _preempt(self, victim: Executor, groups: Sequence[GroupView], winner: Executor) -> None:
        mark = Leaving(reason="Preempted", since=format_time(self._clock.now()))
        objects = [self._store.get("DPGroup", group.namespace, group.name) for group in groups]

        async def leave(obj: Object) -> None:
            await self._cluster.apply("DPGroup", marked(victim.obj, obj, mark))

        await together(leave, [obj for obj in objects if obj is not None])
        message = (
            f"replica {groups[0].replica} of priority {victim.spec.priority} gives its dies "
            f"to {winner.key} of priority {winner.spec.priority}"
        )
        self._cluster.event(victim.obj, "Preempted", message, warning=True)


def _holder(owner: Executor, replica: int, groups: Sequence[GroupView]) -> Holder:
    dies: Counter[str] = Counter()
    for group in groups:
        dies[group.node] += group.dies
    since = format_time(min(group.created for group in groups))
    return Holder(owner.key, replica, owner.spec.role, owner.gang, owner.spec.priority, since, dies)
