"""One instance's experts: hear what was counted, plan, and go from map to map in steps.

The map that an instance is to have is written to ConfigMaps before the first order is sent, and the status says how
many layers are left. So whoever takes over, after a restart in any phase or a new epoch in which the engines began with
the plain placement, finds map and table to differ, and goes on. Only what can be counted again is kept in memory.
A step that was given up ends the plan: the map goes back to what is in force, and the next plan waits longer.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowserve.wire_experts import ExpertOrder, LayerSlots
from xdeepserve_operator.api.v1alpha1.experts import InstancePlacement, Outcome, PlacementEvent
from xdeepserve_operator.controllers.expert_advice import Advice
from xdeepserve_operator.controllers.expert_ear import Ear, ExpertRoutes, Force, Look
from xdeepserve_operator.controllers.expert_maps import ExpertMaps
from xdeepserve_operator.controllers.ports import Clock, Cluster
from xdeepserve_operator.planner.conditions import format_time
from xdeepserve_operator.planner.expert_load import Group, Measured, measured
from xdeepserve_operator.planner.expert_map import BadMap, Map
from xdeepserve_operator.planner.expert_status import SAME_PERCENT, percent, with_load
from xdeepserve_operator.resources.expert_map import map_name

if TYPE_CHECKING:
    from xdeepserve_operator.planner.expert_plan import Proposal

MOST_PATIENCE = 16  # intervals between two attempts


@dataclass
class Memory:
    """What was sent and what became of it; all of it can be lost."""

    epoch: int = 0
    sent: int = 0  # version of the last order in this epoch
    sent_at: float = 0.0
    called_off: bool = False  # by this operator
    failures: int = 0
    not_before: float = 0.0
    error: str = ""


class ExpertInstance:
    """Acts for one instance; ``events`` of a pass are history that the caller writes."""

    def __init__(self, maps: ExpertMaps, cluster: Cluster, routes: ExpertRoutes, clock: Clock) -> None:
        self._maps, self._cluster, self._routes, self._clock = maps, cluster, routes, clock
        self._ear = Ear(routes)
        self._advice = Advice(cluster, self._ear)
        self._memory = Memory()
        self.events: list[PlacementEvent] = []
        self.measured: Measured | None = None
        self.applied_at_once = False

    @property
    def refusal(self) -> str:
        """Why nothing can be planned, though a plan is due; empty where it can."""
        return self._advice.refusal

    async def look(self, look: Look, before: InstancePlacement) -> InstancePlacement:
        """One pass; returns the instance's new status. Raises BadMap."""
        self.events, self.applied_at_once = [], False
        now = await self._pass(look, before)
        said = (look.evacuation.why, look.frozen or self._memory.error or self.refusal or self._advice.remark)
        return now.model_copy(update={"message": "; ".join(filter(None, said))[:1024]})

    async def _pass(self, look: Look, before: InstancePlacement) -> InstancePlacement:
        group = Group.of(look.report)
        if group is None:
            return before.model_copy(update={"swap_phase": "Idle"})
        memory = self._memory
        if memory.epoch != group.epoch:  # what was on its way ended with the epoch
            memory.epoch, memory.sent, memory.called_off = group.epoch, 0, False
        await self._ear.listen(look, group)
        force = await self._ear.force(look, group)
        now = before.model_copy(
            update={
                "epoch": group.epoch,
                "map_version": group.version if group.version is not None else before.map_version,
                "swaps": group.swaps,
                "moved_mebibytes": group.moved_bytes >> 20,
            }
        )
        if group.target:
            if not look.may_become(self._maps.written(look.placement, look.index)):
                memory.called_off = await self._routes.call_off(look.host, look.token, group.target)
            return now.model_copy(update={"swap_phase": group.phase})
        if force is None:
            return now
        self.measured = measured(self._ear.slices, group.epoch, force.table.version, look.ranks.weights)
        now = with_load(now.model_copy(update={"missing_experts": force.missing}), self.measured)
        if memory.sent > group.highest:
            late = self._clock.monotonic() - memory.sent_at > look.spec.limits.progress_deadline_seconds
            if not (look.report.refused_order or late):
                return now.model_copy(update={"swap_phase": "Planned"})
            await self._routes.call_off(look.host, look.token, memory.sent)
            return await self._give_up(look, now, force.map, group)
        if memory.sent and memory.sent > force.table.version and group.given_up >= memory.sent:
            if not memory.called_off:
                return await self._give_up(look, now, force.map, group)
            memory.sent, memory.called_off = 0, False  # no failure: it goes on where it was when it may
        now, wanted = await self._wanted(look, now, force)
        now = self._evacuating(look, now)
        left = wanted.differing(force.map)
        if not left:
            now = self._completed(look, now)
            proposal = await self._proposal(look, group, force)
            if proposal is None:
                return self._with_map(now, look)
            wanted = await self._adopt(look, now, wanted, proposal)
            left = wanted.differing(force.map)
            now = now.model_copy(
                update={
                    "imbalance": now.imbalance.model_copy(
                        update={"before": percent(proposal.before), "predicted": percent(proposal.predicted)}
                    )
                }
            )
            if not left:
                return self._with_map(now, look)
        elif now.layers_done >= now.layers_total:  # a whole map that is in force no more: a new epoch began without it
            now = now.model_copy(update={"layers_total": 0})
        total = max(now.layers_total if now.layers_done < now.layers_total else 0, len(left))
        now = self._with_map(now, look).model_copy(
            update={"layers_done": total - len(left), "layers_total": total, "swap_phase": "Planned"}
        )
        if look.may_become(wanted) and self._clock.monotonic() >= memory.not_before:
            await self._send(look, group, wanted.step(left[: look.spec.limits.layers_per_step]))
        return now

    async def _wanted(self, look: Look, now: InstancePlacement, force: Force) -> tuple[InstancePlacement, Map]:
        """The map to go to, and the instance: it stays where it is if there is none, or ranks fell ill or got well."""
        if look.spec.map_ref is not None:
            given = self._maps.given(look.placement, look.spec.map_ref.name)
            if reason := given.fits(force.table):
                raise BadMap(reason)
            return now, given
        written, ill = self._maps.written(look.placement, look.index), look.evacuation.ranks
        well = set(now.evacuated) - ill
        if written is not None and not written.fits(force.table) and not (written.used & ill or well - written.used):
            return now, written
        await self._maps.write(look.placement, look.index, force.map)
        return now.model_copy(update={"layers_done": 0, "layers_total": 0}), force.map

    def _evacuating(self, look: Look, now: InstancePlacement) -> InstancePlacement:
        """Says which ranks recovery wants to be empty, when that changes."""
        asked = sorted(look.evacuation.ranks)
        if asked == now.evacuated:
            return now
        text = look.evacuation.why or "all ranks may hold experts again"
        self._cluster.event(look.placement, "Evacuation", f"instance {look.index}: {text}", warning=bool(asked))
        return now.model_copy(update={"evacuated": asked})

    async def _give_up(self, look: Look, now: InstancePlacement, force: Map, group: Group) -> InstancePlacement:
        """The step was rolled back: what is in force is what is wanted, until the next plan."""
        memory = self._memory
        memory.failures += 1
        pause = look.spec.interval_seconds * min(2 ** (memory.failures - 1), MOST_PATIENCE)
        memory.not_before = self._clock.monotonic() + pause
        memory.error = f"version {memory.sent} was given up: {group.error or 'a rank did not take it up in time'}"
        memory.sent = 0
        self._advice.rest(look)
        self._record(look, now, "GivenUp", layers=now.layers_total)
        self._cluster.event(look.placement, "GivenUp", f"instance {look.index}: {memory.error}", warning=True)
        if look.spec.mode != "Static":
            await self._maps.write(look.placement, look.index, force)
        done = {"layers_done": 0, "layers_total": 0, "swap_phase": "Idle", "stalled": True}
        return self._with_map(now, look).model_copy(update=done)

    def _completed(self, look: Look, now: InstancePlacement) -> InstancePlacement:
        """All layers are in force; says so once."""
        if now.layers_done >= now.layers_total:
            return now.model_copy(update={"swap_phase": "Idle"})
        memory = self._memory
        memory.failures, memory.error, memory.sent = 0, "", 0
        self._record(look, now, "Applied", layers=now.layers_total)
        predicted = (
            f", busiest rank {now.imbalance.predicted} % of the mean expected" if now.imbalance.predicted else ""
        )
        text = f"instance {look.index}: version {now.map_version} is in force{predicted}"
        self._cluster.event(look.placement, "Applied", text)
        return now.model_copy(update={"layers_done": now.layers_total, "swap_phase": "Idle", "stalled": False})

    async def _proposal(self, look: Look, group: Group, force: Force) -> "Proposal | None":
        """A plan to act on."""
        if self._clock.monotonic() < self._memory.not_before:
            return None
        proposal = await self._advice.proposal(look, group, force, self.measured)
        if proposal is None or proposal.layers:
            return proposal
        self.applied_at_once = look.at_once
        return None

    async def _adopt(self, look: Look, now: InstancePlacement, wanted: Map, proposal: "Proposal") -> Map:
        """Makes a plan the map to go to; in mode Advisory only says so."""
        if look.spec.mode == "Advisory" and not look.at_once:
            last = next((one for one in self._told(look) if one.index == look.index), None)
            predicted = percent(proposal.predicted)
            if last is None or last.outcome != "Advised" or abs(last.predicted - predicted) > SAME_PERCENT:
                self._record(look, now, "Advised", len(proposal.layers), proposal)
            return wanted
        self.applied_at_once = look.at_once
        text = (
            f"instance {look.index}: {proposal.moves} experts of {len(proposal.layers)} layers are to move, "
            f"{proposal.nbytes / 2**20:.1f} MiB; busiest rank from {proposal.before:.2f} to {proposal.predicted:.2f}"
        )
        self._cluster.event(look.placement, "Planned", text)
        return await self._maps.write(look.placement, look.index, wanted.changed(proposal.layers))

    async def _send(self, look: Look, group: Group, layers: tuple[LayerSlots, ...]) -> None:
        version = max(group.highest, self._memory.sent) + 1
        deadline = float(look.spec.limits.progress_deadline_seconds)
        order = ExpertOrder(
            instance=look.instance, epoch=group.epoch, version=version, layers=layers, deadline_seconds=deadline
        )
        if await self._routes.order(look.host, look.token, order):
            self._memory.sent, self._memory.sent_at = version, self._clock.monotonic()

    def _with_map(self, now: InstancePlacement, look: Look) -> InstancePlacement:
        """The instance with the name of its map."""
        if look.spec.map_ref is not None:
            return now.model_copy(update={"map_ref": look.spec.map_ref.name, "map_shards": 1})
        name = map_name(look.placement["metadata"]["name"], look.index)
        shards = self._maps.shards(look.placement, look.index)
        return now.model_copy(update={"map_ref": name, "map_shards": shards})

    def _told(self, look: Look) -> list[PlacementEvent]:
        return [PlacementEvent.model_validate(one) for one in look.placement.get("status", {}).get("history") or ()]

    def _record(
        self, look: Look, now: InstancePlacement, outcome: Outcome, layers: int, proposal: "Proposal | None" = None
    ) -> None:
        self.events.append(
            PlacementEvent(
                time=format_time(self._clock.now()),
                index=look.index,
                version=now.map_version,
                outcome=outcome,
                layers=layers,
                moves=proposal.moves if proposal else 0,
                mebibytes=proposal.nbytes >> 20 if proposal else 0,
                before=percent(proposal.before) if proposal else now.imbalance.before,
                predicted=percent(proposal.predicted) if proposal else now.imbalance.predicted,
            )
        )
