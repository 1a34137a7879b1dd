"""Expert load balancing: pure functions from load to placement.

``load`` what experts had to do · ``cluster`` what they must fit into · ``placement`` where they are · ``balance`` what
that means for the barrier · ``replica_map`` which copy a token takes · ``plan`` a better placement, its gain and its
cost · ``traces`` recordings of SGLang and Megatron, and made-up ones. The last two are imported from their modules by
those who plan: an engine, which only counts and follows, does without the search and what it needs.
"""

from eplb.balance import Balance, balance
from eplb.cluster import Cluster
from eplb.cost import Cost, Link
from eplb.errors import Unplannable
from eplb.load import LoadCounter, LoadWindow
from eplb.placement import EMPTY, Placement
from eplb.replica_map import ReplicaMap

__all__ = [
    "EMPTY",
    "Balance",
    "Cluster",
    "Cost",
    "Link",
    "LoadCounter",
    "LoadWindow",
    "Placement",
    "ReplicaMap",
    "Unplannable",
    "balance",
]
