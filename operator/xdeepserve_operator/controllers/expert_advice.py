"""When a plan is made for an instance, and whether it is worth acting on.

A plan is made at most once for what was heard and the ranks that may hold experts: after an interval, or at once where
recovery or the user wants a rank to be empty, or to get its share again.
"""

import asyncio
from typing import TYPE_CHECKING

from xdeepserve_operator.controllers.expert_ear import Ear, Force, Look
from xdeepserve_operator.controllers.ports import Cluster
from xdeepserve_operator.planner.expert_load import Group, Measured, remark
from xdeepserve_operator.planner.expert_map import NoPlan

if TYPE_CHECKING:
    from xdeepserve_operator.planner.expert_plan import Proposal


class Advice:
    """Of one instance. ``remark``: why balancing does not pay; ``refusal``: why there is no plan, though one is due."""

    def __init__(self, cluster: Cluster, ear: Ear) -> None:
        self.remark = self.refusal = ""
        self._cluster, self._ear = cluster, ear
        self._planned: tuple[int, frozenset[int]] = (-1, frozenset())  # slices heard, ranks closed

    def rest(self, look: Look) -> None:
        """No plan before there is more to plan with."""
        self._planned = self._ear.heard, look.ranks.closed

    async def proposal(self, look: Look, group: Group, force: Force, load: Measured | None) -> "Proposal | None":
        """A plan that is worth acting on, or changes nothing; None where there is none, or no need of one."""
        limits, ranks, used = look.spec.limits, look.ranks, force.map.used
        emptying = bool(look.emptied & used)
        idle = set(range(force.map.ranks)) - used - ranks.closed
        returning = bool(idle) and force.table.experts >= force.map.ranks and not look.frozen
        uneven = load is not None and load.mean * 100 >= limits.min_imbalance_percent and not look.frozen
        at_once = look.at_once and not look.frozen
        due = emptying or returning or (bool(self._ear.slices) and (uneven or at_once))
        if look.spec.mode == "Static" or not due:
            self.refusal = ""
            return None
        if self._planned == (self._ear.heard, ranks.closed):
            return None
        self.rest(look)
        from xdeepserve_operator.planner.expert_plan import propose  # brings NumPy, which idle operators do without

        slices, rows = list(self._ear.slices)[-look.spec.window :], self._ear.rows
        fewest = bool(look.evacuation.ranks)
        try:
            proposal = await asyncio.to_thread(propose, look.spec, force.table, slices, ranks, rows=rows, fewest=fewest)
        except NoPlan as error:
            self.refusal = str(error)
            return None
        self.refusal = ""
        self._judge(look, group, force, proposal.before)
        worth = emptying or returning or at_once or proposal.gain * 100 >= limits.min_gain_percent
        return proposal if worth else None

    def _judge(self, look: Look, group: Group, force: Force, imbalance: float) -> None:
        """Says once where chance outweighs the placement."""
        before = self.remark
        if self._ear.rows:
            self.remark = remark(self._ear.rows, group.ranks, force.table.experts, imbalance)
        if self.remark and not before:
            text = f"instance {look.index}: {self.remark}"
            self._cluster.event(look.placement, "DoesNotPay", text, warning=True)
