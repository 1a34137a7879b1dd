"""Maps of experts, what was measured, and plans in the API's words."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eplb import Cluster, Placement
from flowserve.wire import EngineStatus, ExpertState, RankReport, ShellStatus
from flowserve.wire_experts import ExpertSlice, ExpertTable, LayerSlots
from xdeepserve_operator.api.v1alpha1.experts import ExpertPlacementSpec
from xdeepserve_operator.planner.expert_load import Group, measured, remark
from xdeepserve_operator.planner.expert_map import BadMap, Map, NoPlan
from xdeepserve_operator.planner.expert_plan import Proposal, propose
from xdeepserve_operator.planner.expert_ranks import Ranks


def table(experts: int = 8, ranks: int = 4, layers: int = 2) -> ExpertTable:
    slots = Placement.plain(1, experts, Cluster(ranks, -(-experts // ranks))).slots[0].tolist()
    each = tuple(LayerSlots(layer=3 + layer, slots=tuple(map(tuple, slots))) for layer in range(layers))
    return ExpertTable(epoch=1, version=0, top_k=2, experts=experts, expert_bytes=100, layers=each)


def slice_(*chosen: int, version: int | None = 0, served: tuple[int, ...] = (1, 1, 1, 1)) -> ExpertSlice:
    layers = tuple((each, each) for each in served)
    return ExpertSlice(sequence=1, seconds=1.0, epoch=1, version=version, chosen=(chosen, chosen), served=layers)


def spec(**fields: object) -> ExpertPlacementSpec:
    return ExpertPlacementSpec.model_validate({"targetRef": {"name": "d"}, **fields})


def planned(
    wish: ExpertPlacementSpec,
    here: ExpertTable,
    *slices: ExpertSlice,
    evacuated: tuple[int, ...] = (),
    fewest: bool = False,
) -> Proposal:
    """A plan for ranks of which neighbours share a server."""
    servers = tuple(f"server-{rank // 2}" for rank in range(len(here.layers[0].slots)))
    return propose(wish, here, slices, Ranks.of(wish, frozenset(evacuated), servers), fewest=fewest)


def test_a_map_comes_back_from_its_shards() -> None:
    here = Map.of(table(layers=6))
    shards = here.dump(shard_bytes=120)
    assert len(shards) > 2
    assert max(map(len, shards)) < 200
    assert Map.parse(shards) == here
    assert here.dump() == Map.parse(here.dump()).dump()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting"),
        ("[]", "list"),
        ('{"experts": 8}', "layers"),
        ('{"experts": 8, "layers": {}}', "no layers"),
        ('{"experts": 8, "layers": {"x": []}}', "invalid literal"),
        ('{"experts": 8, "layers": {"1": [[-2]]}}', "greater than or equal"),
    ],
)
def test_a_spoiled_map_says_why(text: str, reason: str) -> None:
    with pytest.raises(BadMap, match=reason):
        Map.parse([text])


def test_maps_differ_by_what_is_in_slots_not_by_how_many_there_are() -> None:
    here = Map.of(table())
    wider = here.changed({3: tuple((*rank, -1) for rank in here.layers[3])})
    assert here.differing(wider) == []
    other = here.changed({4: tuple(reversed(here.layers[4]))})
    assert other.differing(here) == [4]
    assert [each.layer for each in other.step([4])] == [4]
    assert here.missing() == 0
    assert Map(9, here.layers).missing() == 2


def test_a_map_for_another_instance_says_so() -> None:
    here = Map.of(table())
    assert here.fits(table()) == ""
    assert "ranks" in here.fits(table(ranks=2))
    assert "8 experts, the model has 7" in here.fits(table(experts=7).model_copy(update={"layers": table().layers}))


def test_load_is_measured_with_the_placement_in_force_only() -> None:
    slices = [slice_(1, served=(4, 2, 1, 1)), slice_(1, version=2, served=(1, 1, 1, 1)), slice_(1, version=None)]
    before = measured(slices, 1, 0)
    assert before is not None
    assert (before.mean, before.worst) == (2.0, 2.0)
    assert measured(slices, 1, 2) is not None
    assert measured(slices, 2, 0) is None
    assert measured([slice_(1, served=(0, 0, 0, 0))], 1, 0) is None


def test_small_batches_are_uneven_by_chance() -> None:
    assert "larger batches pay" in remark(rows=2, ranks=4, experts=16, imbalance=1.5)
    assert remark(rows=500, ranks=4, experts=16, imbalance=1.5) == ""
    assert "nobody to share with" in remark(rows=500, ranks=1, experts=16, imbalance=1.0)


def test_a_group_is_what_all_its_ranks_say() -> None:
    def report(*states: ExpertState, ready: bool = True) -> ShellStatus:
        ranks = tuple(
            RankReport(
                rank=rank,
                host="h",
                silent_seconds=0,
                ever_heard=True,
                status=EngineStatus(name="e", incarnation="i", fabric_uri="u", state="Serving", epoch=4, experts=state),
            )
            for rank, state in enumerate(states)
        )
        return ShellStatus(instance="i", incarnation="s", epoch=4, ranks=ranks, ready=ready, refused_order="refused")

    group = Group.of(report(ExpertState(version=2, target=3, phase="Load"), ExpertState(version=2)))
    assert group is not None
    assert (group.version, group.target, group.phase, group.highest, group.error) == (2, 3, "Load", 3, "refused")
    group = Group.of(report(ExpertState(version=2, given_up=5, error="late"), ExpertState(version=3)))
    assert group is not None
    assert (group.version, group.given_up, group.highest, group.error) == (None, 5, 5, "late")
    assert Group.of(report(ExpertState(), ready=False)) is None


def test_a_plan_balances_what_was_counted_within_its_slots() -> None:
    proposal = planned(spec(redundantSlots=1), table(), slice_(80, 10, 10, 10, 10, 10, 10, 10))
    assert set(proposal.layers) == {3, 4}
    assert proposal.predicted < 1.3 < 2 < proposal.before
    assert 0 < proposal.gain < 1
    assert proposal.nbytes == 100 * proposal.moves > 0
    for slots in proposal.layers.values():
        assert np.array(slots).shape == (4, 3)


def test_pinned_experts_stay() -> None:
    proposal = planned(spec(policy={"baseExperts": "Pinned"}), table(), slice_(80, 10, 10, 10, 10, 10, 10, 10))
    for slots in proposal.layers.values():
        assert [rank[:2] for rank in slots] == list(table().layers[0].slots)


def test_evacuated_ranks_hold_nothing_and_too_many_are_refused() -> None:
    proposal = planned(spec(evacuate=[1]), table(), slice_(*[10] * 8))
    assert all(set(slots[1]) == {-1} for slots in proposal.layers.values())
    with pytest.raises(NoPlan, match="do not fit"):
        planned(spec(evacuate=[0, 1, 2, 3]), table(), slice_(*[10] * 8))


def test_recovery_empties_ranks_with_few_moves_and_without_any_load() -> None:
    proposal = planned(spec(evacuate=[1]), table(experts=32), evacuated=(2,), fewest=True)
    assert all(set(slots[1]) == set(slots[2]) == {-1} for slots in proposal.layers.values())
    assert proposal.moves <= 2 * (16 + 8), "of two layers: those of the two ranks, and eight more"


@pytest.mark.parametrize("policy", ["search", "incremental", "greedy", "activated"])
@pytest.mark.parametrize("base", ["Free", "Pinned"])
def test_ranks_fall_ill_and_get_well_in_any_order_and_no_expert_is_lost(policy: str, base: str) -> None:
    rng = np.random.default_rng(len(policy) + len(base))
    wish = spec(policy={"name": policy, "baseExperts": base, "budget": "fast"})
    here, load = table(experts=21, ranks=6), slice_(*rng.integers(0, 50, 21).tolist())
    for _ in range(4):
        ill = frozenset(rng.choice(6, int(rng.integers(0, 4)), replace=False).tolist())
        ranks = Ranks.of(wish, ill, ("a",) * 6)
        proposal = propose(wish, here, [load], ranks, fewest=bool(ill) and bool(rng.integers(2)))
        became = Map.of(here).changed(proposal.layers)
        assert became.missing() == 0
        assert not became.used & ill
        here = here.model_copy(update={"layers": became.step(sorted(became.layers))})


def test_what_no_message_could_say_is_not_planned() -> None:
    wide = table(experts=256, ranks=2, layers=1)
    (slots,) = planned(spec(redundantSlots=64), wide, evacuated=(0,), fewest=True).layers.values()
    assert [len(rank) for rank in slots] == [256, 256]
    with pytest.raises(NoPlan, match="512 experts would have to fit on a rank"):
        planned(spec(), table(experts=512, ranks=2, layers=1), evacuated=(0,), fewest=True)


def test_a_slow_rank_gets_less() -> None:
    wish = spec(redundantSlots=2, rankSpeeds=[{"rank": 2, "percent": 25}])
    proposal = planned(wish, table(), slice_(*[10] * 8))
    for slots in proposal.layers.values():
        copies = np.bincount([expert for rank in slots for expert in rank if expert >= 0], minlength=8)
        loads = [sum(1 / copies[expert] for expert in rank if expert >= 0) for rank in slots]
        assert loads[2] < min(loads[0], loads[1], loads[3])
    ranks = Ranks.of(wish, frozenset({3}), ("a",) * 4)
    assert ranks.weights == (1.0, 1.0, 0.25, 0.0)
    even = measured([slice_(1, served=(4, 4, 1, 0))], 1, 0, ranks.weights)
    assert even is not None
    assert even.mean == pytest.approx(1)


def test_activated_plans_for_the_pairs_that_were_counted() -> None:
    wish = spec(policy={"name": "activated"}, redundantSlots=2)
    load = slice_(99, 90, 80, 60, 50, 40, 30, 20, 15, 12, 10, 8, 6, 4, 2, 1)
    few, many = (propose(wish, table(experts=16), [load], rows=rows) for rows in (0.5, 500.0))
    assert few.predicted < many.predicted, "where most experts run anyway, it is their number that counts"


def test_groups_of_the_gate_stay_on_a_server_wherever_its_ranks_are() -> None:
    wish = spec(policy={"expertGroups": "SameServer"})
    here = table(experts=16).model_copy(update={"groups": 2})
    ranks = Ranks.of(wish, frozenset(), ("a", "b", "a", "b"))
    load = slice_(*[9, 8, 7, 1] * 4)
    proposal = propose(wish, here, [load], ranks)
    assert set(proposal.layers) == {3, 4}, "the plain placement is no reason to scatter groups any longer"
    for slots in proposal.layers.values():
        groups = [{expert // 8 for rank in pair for expert in slots[rank] if expert >= 0} for pair in ((0, 2), (1, 3))]
        assert len(groups[0]) == len(groups[1]) == 1
        assert not groups[0] & groups[1]
    uneven = ("a", "b", "a", "a")
    with pytest.raises(NoPlan, match="as many ranks on each server; there are: a 3, b 1"):
        propose(wish, here, [load], Ranks.of(wish, frozenset(), uneven))
    assert propose(wish, here, [load], Ranks.of(wish, frozenset({3}), uneven), fewest=True).layers


def test_a_map_is_small_enough_for_one_config_map_at_full_size() -> None:
    large = table(experts=256, ranks=320, layers=58)
    assert len(Map.of(large).dump()) == 1
    assert len(json.dumps(Map.of(large).dump())) < 1 << 20
