"""A TaskExecutor among the other roles of its ModelDeployment, which are as their own reconcilers last said."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache

from pydantic import ValidationError

from xdeepserve_operator.api import names
from xdeepserve_operator.controllers.objects import label, leaving
from xdeepserve_operator.controllers.ports import Object, Store
from xdeepserve_operator.controllers.snapshot import Executor
from xdeepserve_operator.planner.conditions import find_condition
from xdeepserve_operator.planner.executorstatus import PLACED
from xdeepserve_operator.planner.instance import InstanceView
from xdeepserve_operator.planner.pairs import Member, RoleState, objection
from xdeepserve_operator.planner.revision import pair_of
from xdeepserve_operator.planner.rollout import without_room


def objections(
    store: Store, executor: Executor, views: Sequence[InstanceView]
) -> Callable[[Sequence[int], int], str | None]:
    """What the roles say to a replica of ``executor`` leaving after others have; see planner.rollout."""
    staying = [view for view in views if view.holds_dies and view.leaving is None]

    @cache
    def roles() -> tuple[RoleState, ...]:
        instances = [(view.replica, view.revision, view.ready) for view in staying]
        mine = _role(executor, instances, without_room(views, executor.goal))
        others = _siblings(store, executor)
        return (mine, *(_role(one, _reported(one.obj), _reported_without_room(one)) for one in others))

    def ask(gone: Sequence[int], replica: int) -> str | None:
        mine, *others = roles()
        for one in gone:
            mine = mine.without(one)
        return objection([mine, *others], mine.name, replica)

    return ask


def _role(executor: Executor, instances: Sequence[tuple[int, str, bool]], roomless: int) -> RoleState:
    goal = executor.goal
    return RoleState(
        name=executor.name,
        type=executor.spec.role,
        replicas=goal.replicas,
        floor=goal.replicas - roomless - goal.strategy.max_unavailable,
        target=pair_of(goal.target),
        members=tuple(
            Member(replica, pair_of(revision), serves, goal.movable(replica, revision))
            for replica, revision, serves in instances
        ),
    )


def _reported(obj: Object) -> list[tuple[int, str, bool]]:
    """Instances in a TaskExecutor's status that stay: number, revision, whether it serves."""
    instances = obj.get("status", {}).get("instances") or ()
    return [(one["index"], one["revision"], one["ready"]) for one in instances if not one.get("leaving")]


def _reported_without_room(executor: Executor) -> int:
    """Replicas that hold no dies because there are none, not because they are being replaced."""
    short = (find_condition(executor.obj, PLACED) or {}).get("reason") == "InsufficientDies"
    held = sum(one["index"] < executor.goal.replicas for one in executor.obj.get("status", {}).get("instances") or ())
    return executor.goal.replicas - held if short else 0


def _siblings(store: Store, executor: Executor) -> Iterable[Executor]:
    deployment = label(executor.obj, names.LABEL_DEPLOYMENT)
    if not deployment:
        return
    for obj in store.list("TaskExecutor", executor.namespace, {names.LABEL_DEPLOYMENT: deployment}):
        if leaving(obj) or obj["metadata"]["name"] == executor.name:
            continue
        try:
            yield Executor.read(store, obj, executor.image)
        except ValidationError:
            continue  # its own reconciler says so
