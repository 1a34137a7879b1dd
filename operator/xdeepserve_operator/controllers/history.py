"""Keeps ControllerRevisions: of a TaskExecutor those in use, of a ModelDeployment the last few to go back to.

A revision that comes back (after a revert, or by going back) is the same object with a new, highest number.
"""

from collections.abc import Mapping

from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.deployment import ModelDeploymentSpec
from xdeepserve_operator.controllers.objects import controlled_by, label, leaving
from xdeepserve_operator.controllers.ports import Cluster, Object, Store
from xdeepserve_operator.controllers.snapshot import Executor
from xdeepserve_operator.planner.history import expired, number_for
from xdeepserve_operator.planner.revision import digest
from xdeepserve_operator.resources.revision import (
    Template,
    change_cause,
    deployment_data,
    deployment_revision,
    executor_revision,
)

KIND = "ControllerRevision"


class History:
    """ControllerRevisions of all owners."""

    def __init__(self, store: Store, cluster: Cluster) -> None:
        self._store, self._cluster = store, cluster

    async def keep(self, executor: Executor, used: set[str]) -> None:
        """Remembers what the target is made from, and forgets revisions that no instance may get any more."""
        mine = self._of(executor.obj, {names.LABEL_EXECUTOR: executor.name})
        if executor.revision not in mine:
            template = Template(executor.spec, executor.image)
            await self._cluster.create(KIND, executor_revision(executor.obj, template, executor.revision))
        for revision in sorted(mine.keys() - used - {executor.goal.target, executor.goal.stable}):
            await self._cluster.delete(KIND, mine[revision])

    async def record(self, deployment: Object, spec: ModelDeploymentSpec) -> int:
        """Gives the ModelDeployment's present spec its number in its history."""
        data = deployment_data(spec)
        revision = digest(data)
        mine = self._of(deployment, {names.LABEL_DEPLOYMENT: deployment["metadata"]["name"]})
        numbers = {name: int(one["revision"]) for name, one in mine.items()}
        number = number_for(revision, numbers)
        if numbers.get(revision) != number or change_cause(mine[revision]) != change_cause(deployment):
            await self._cluster.apply(KIND, deployment_revision(deployment, data, revision, number))
        for old in expired(numbers | {revision: number}, spec.rollout.history_limit):
            await self._cluster.delete(KIND, mine[old])
        return number

    def _of(self, owner: Object, labels: Mapping[str, str]) -> dict[str, Object]:
        found = self._store.list(KIND, owner["metadata"]["namespace"], labels)
        mine = (one for one in found if controlled_by(one, owner) and not leaving(one))
        return {label(one, names.LABEL_REVISION): one for one in mine}
