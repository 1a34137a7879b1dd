"""Where experts are, and which slot a token takes."""

from __future__ import annotations

import numpy as np
import pytest

from eplb import EMPTY, Unplannable
from flowserve.engine.expert_map import ExpertMap, plain_slots
from flowserve.wire_experts import LayerSlots


@pytest.mark.parametrize(("experts", "ranks"), [(16, 1), (16, 2), (16, 3), (256, 288), (7, 4)])
def test_without_a_plan_every_expert_has_one_slot_and_ranks_differ_by_one(experts: int, ranks: int) -> None:
    slots = plain_slots(experts, ranks)
    assert sorted(slots[slots != EMPTY].tolist()) == list(range(experts))
    shares = (slots != EMPTY).sum(1)
    assert shares.max() - shares.min() <= 1


def test_tokens_take_slots_that_hold_their_expert_and_copies_take_turns() -> None:
    slots = ((0, 1, 3), (2, 3, 0))
    layer = ExpertMap.plain([5], 4, 2).changed(1, [LayerSlots(layer=5, slots=slots)]).layers[5]
    ids = np.array([[0, 3], [0, 1], [2, 3]], np.int32)
    physical = layer.physical(ids, rank=1)
    assert layer.experts(physical).tolist() == ids.tolist()
    assert sorted(physical[ids == 0].tolist()) == [0, 5]
    assert layer.owner[physical].tolist() == [[1, 1], [0, 0], [1, 0]], "copies in turn, beginning with the rank's"
    assert layer.physical(np.empty((0, 2), np.int32), 0).shape == (0, 2)


def test_a_map_that_would_lose_an_expert_cannot_be_made() -> None:
    map_ = ExpertMap.plain([5, 6], 4, 2).changed(1, [LayerSlots(layer=5, slots=((0, 1, 3), (2, 3, 0)))])
    assert map_.without({5: frozenset({5})}).layers[5].replicas.copies.tolist() == [1, 1, 1, 2]
    with pytest.raises(Unplannable, match="expert 1 would have no copy"):
        map_.without({5: frozenset({1})})


def test_a_layer_that_is_named_twice_is_refused() -> None:
    one = LayerSlots(layer=5, slots=((0, 1), (2, 3)))
    with pytest.raises(Unplannable, match="layer 5 is named twice"):
        ExpertMap.plain([5], 4, 2).changed(1, [one, one])


def test_placements_are_equal_if_their_digests_are() -> None:
    plain = ExpertMap.plain([5, 6], 4, 2)
    swapped = LayerSlots(layer=5, slots=((1, 0), (2, 3)))
    maps = [plain, plain.changed(1, []), plain.changed(1, [swapped]), ExpertMap.plain([5], 4, 2)]
    assert len({each.digest for each in maps}) == 4
    assert plain.digest == ExpertMap.plain([5, 6], 4, 2).digest < 1 << 60
