"""Which ranks recovery wants to hold no expert, while their instance goes on serving.

| what real machines show of a rank whose engine still takes part                | evacuated |
|--------------------------------------------------------------------------------|-----------|
| recovery finds a fault: an unhealthy die, a pod that is being deleted, …       | yes       |
| its server says that it is not ready                                           | yes       |
| nobody hears its server, while its engine is heard                             | no        |
| its instance leaves as a whole                                                 | no        |

A fault lasts only where there is no room for a replacement yet; until there is, nothing should depend on that rank's
memory but its own requests. What fails beyond half of the ranks at once is not evacuated: the others could not be
expected to hold so much more. A rank that is dead ends the epoch, and needs no evacuation but a replacement.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from xdeepserve_operator.planner.instance import InstanceView, RankView
from xdeepserve_operator.planner.servers import Health


@dataclass(frozen=True)
class Evacuation:
    """Ranks that are to hold no expert; ``why`` in words, also why none are although some are unwell."""

    ranks: frozenset[int] = frozenset()
    why: str = ""


def evacuation(view: InstanceView, servers: Mapping[str, Health]) -> Evacuation:
    """What recovery asks of an instance's experts; ``servers`` by the name of their node."""
    if view.leaving is not None:
        return Evacuation()
    unwell = {rank.index: reason for rank in view.ranks if (reason := _reason(rank, servers))}
    if not unwell:
        return Evacuation()
    told = "; ".join(unwell.values())
    if 2 * len(unwell) > len(view.ranks):
        return Evacuation(
            why=f"{len(unwell)} of {len(view.ranks)} ranks keep their experts, too many to do without: {told}"
        )
    numbers = ", ".join(map(str, unwell))
    return Evacuation(frozenset(unwell), f"rank {numbers} is to hold no expert: {told}")


def _reason(rank: RankView, servers: Mapping[str, Health]) -> str:
    if rank.fault is not None:
        return rank.fault.message
    health = servers.get(rank.node)
    if health is not None and not health.ready and not health.lost:
        return f"node {rank.node} is not ready"
    return ""
