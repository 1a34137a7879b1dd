"""To nothing and back: when a role whose least is 0 is idle, and what brings it back from 0.

Each role has its own idle time. The first role of a type that has instances is in use while there is any request, for
samples miss a short prefill; any other is in use while it has sequences itself, since the first can serve without it.
At 0, the first role of a type is wanted back when requests find no instance of it, another when those that serve would
need more instances than they may have.
"""

from collections.abc import Mapping, Sequence

from xdeepserve_operator.planner.scaling_demand import Need, RoleLoad


def in_use(role: RoleLoad, roles: Sequence[RoleLoad], *, asked: bool) -> bool:
    """Whether its idle time begins anew; ``asked``: the deployment has, or just had, a request."""
    first = next((one.name for one in roles if one.type == role.type and one.replicas), "")
    return role.replicas == 0 or role.sequences > 0 or (asked and role.name == first)


def wanted_back(
    role: RoleLoad,
    roles: Sequence[RoleLoad],
    needs: Mapping[str, Need],
    most: Mapping[str, int],
    *,
    demand: bool,
) -> str:
    """Why a role at 0 should have an instance; empty when it should not.

    ``roles`` are all of the deployment; ``most`` holds the bounds of those that are scaled at all.
    """
    alike = [one for one in roles if one.type == role.type]
    serving = [one for one in alike if one.replicas]
    if not serving:
        first = next(one.name for one in alike if one.name in most)
        asked = demand or any(one.sequences for one in roles)
        return "requests find no instance" if asked and role.name == first else ""
    full = [one.name for one in serving if needs[one.name].instances > most.get(one.name, one.replicas)]
    return f"{full[0]} has as many as it may and needs more" if full else ""
