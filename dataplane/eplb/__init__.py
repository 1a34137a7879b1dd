"""Expert load balancing: pure functions from load to placement.

``load`` what experts had to do · ``cluster`` what they must fit into · ``placement`` where they are · ``balance`` what
that means for the barrier · ``plan`` a better placement, its gain and its cost · ``replica_map`` which copy a token
takes · ``traces`` recordings of SGLang and Megatron, and made-up ones.
"""

from eplb.balance import Balance, balance
from eplb.cluster import Cluster
from eplb.cost import Cost, Link
from eplb.errors import Unplannable
from eplb.load import LoadCounter, LoadWindow
from eplb.placement import EMPTY, Placement
from eplb.plan import Plan, plan
from eplb.policies import Options
from eplb.replica_map import ReplicaMap
from eplb.search import BUDGETS, Budget

__all__ = [
    "BUDGETS",
    "EMPTY",
    "Balance",
    "Budget",
    "Cluster",
    "Cost",
    "Link",
    "LoadCounter",
    "LoadWindow",
    "Options",
    "Placement",
    "Plan",
    "ReplicaMap",
    "Unplannable",
    "balance",
    "plan",
]
