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
from xdeepserve_operator.planner.expert_plan import propose


def table(experts: int = 8, ranks: int = 4, layers: int = 2) -> ExpertTable:
    slots = Placement.plain(1, experts, Cluster(ranks, -(-experts // ranks))).slots[0].tolist()
    each = tuple(LayerSlots(layer=3 + layer, slots=tuple(map(tuple, slots))) for layer in range(layers))
    return ExpertTable(epoch=1, version=0, top_k=2, experts=experts, expert_bytes=100, layers=each)


def slice_(*chosen: int, version: int | None = 0, served: tuple[int, ...] = (1, 1, 1, 1)) -> ExpertSlice:
    layers = tuple((each, each) for each in served)
    return ExpertSlice(sequence=1, seconds=1.0, epoch=1, version=version, chosen=(chosen, chosen), served=layers)


def spec(**fields: object) -> ExpertPlacementSpec:
    return ExpertPlacementSpec.model_validate({"targetRef": {"name": "d"}, **fields})


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
    before = measured(slices, epoch=1, version=0)
    assert before is not None
    assert (before.mean, before.worst) == (2.0, 2.0)
    assert measured(slices, epoch=1, version=2) is not None
    assert measured(slices, epoch=2, version=0) is None
    assert measured([slice_(1, served=(0, 0, 0, 0))], epoch=1, version=0) is None


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
    proposal = propose(spec(redundantSlots=1), table(), [slice_(80, 10, 10, 10, 10, 10, 10, 10)])
    assert set(proposal.layers) == {3, 4}
    assert proposal.predicted < 1.3 < 2 < proposal.before
    assert 0 < proposal.gain < 1
    assert proposal.nbytes == 100 * proposal.moves > 0
    for slots in proposal.layers.values():
        assert np.array(slots).shape == (4, 3)


def test_pinned_experts_stay() -> None:
    proposal = propose(spec(policy={"baseExperts": "Pinned"}), table(), [slice_(80, 10, 10, 10, 10, 10, 10, 10)])
    for slots in proposal.layers.values():
        assert [rank[:2] for rank in slots] == list(table().layers[0].slots)


def test_evacuated_ranks_hold_nothing_and_too_many_are_refused() -> None:
    proposal = propose(spec(evacuate=[1]), table(), [slice_(*[10] * 8)])
    assert all(set(slots[1]) == {-1} for slots in proposal.layers.values())
    with pytest.raises(NoPlan, match="do not fit"):
        propose(spec(evacuate=[0, 1, 2, 3]), table(), [slice_(*[10] * 8)])


def test_a_map_is_small_enough_for_one_config_map_at_full_size() -> None:
    large = table(experts=256, ranks=320, layers=58)
    assert len(Map.of(large).dump()) == 1
    assert len(json.dumps(Map.of(large).dump())) < 1 << 20
