"""The ExpertPlacements of a ModelDeployment's roles: made, kept as the roles say, and deleted.

Pausing, evacuating and the speeds of ranks belong to whoever runs the cluster: the ModelDeployment leaves those fields
of its ExpertPlacements alone.
"""

from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.deployment import ModelDeploymentSpec
from xdeepserve_operator.controllers.objects import NameTaken, controlled_by, leaving
from xdeepserve_operator.controllers.ports import Cluster, Object, Store
from xdeepserve_operator.resources.expert_placement import expert_placement

KIND = "ExpertPlacement"


async def keep_placements(store: Store, cluster: Cluster, deployment: Object, spec: ModelDeploymentSpec) -> None:
    """Makes them be as the roles say. Raises NameTaken, once all others are."""
    namespace, taken = deployment["metadata"]["namespace"], ""
    wanted: set[str] = set()
    for role in spec.roles:
        if role.expert_placement is None:
            continue
        body = expert_placement(deployment, role, role.expert_placement)
        name = body["metadata"]["name"]
        wanted.add(name)
        stored = store.get(KIND, namespace, name)
        if stored is None or (controlled_by(stored, deployment) and not leaving(stored)):
            await cluster.apply(KIND, body)
        elif not controlled_by(stored, deployment):
            taken = name
    for stored in store.list(KIND, namespace, {names.LABEL_DEPLOYMENT: deployment["metadata"]["name"]}):
        surplus = stored["metadata"]["name"] not in wanted and controlled_by(stored, deployment)
        if surplus and not leaving(stored):
            await cluster.delete(KIND, stored)
    if taken:
        raise NameTaken(f"{KIND} {taken} exists and is not of this ModelDeployment; delete it, or expertPlacement here")
