"""Where experts are, and which slot a token takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from eplb import EMPTY, Unplannable
from flowserve.engine import loading
from flowserve.engine.expert_load import ExpertCounts
from flowserve.engine.expert_map import ExpertMap, plain_slots
from flowserve.engine.experts import DistributedExperts
from flowserve.engine.loading import Runtime
from flowserve.model import LocalExperts
from flowserve.wire import Limits
from flowserve.wire_experts import LayerSlots
from xccl import Group, run

AUSTEN = Path(__file__).parents[3] / "examples/models/austen-deepseek-v3"
DRAFTING = Limits(max_batch=1, kv_blocks=4, speculative_tokens=1)


@dataclass(frozen=True)
class Placed:
    map: ExpertMap


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


def test_small_draft_experts_are_held_by_every_rank_and_large_ones_are_shared_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def held() -> tuple[tuple[int, ...], list[int]]:
        runtime = Runtime(AUSTEN, DRAFTING)
        return runtime.spread, [len(layer.held) for layer in runtime.experts.layers.values()]

    assert held() == ((1, 2, 3), [0, 0, 0, 32])
    monkeypatch.setattr(loading, "DRAFT_EXPERTS_BYTES", loading.expert_bytes(Runtime(AUSTEN, DRAFTING).config) - 1)
    assert held() == ((1, 2, 3, 4), [0, 0, 0, 0])


@pytest.mark.parametrize("tokens", [0, 3])
def test_a_layer_that_every_rank_holds_needs_no_peer(tokens: int) -> None:
    runtime, draw = Runtime(AUSTEN, DRAFTING), np.random.default_rng(tokens)
    config, layer = runtime.config, runtime.config.num_hidden_layers
    placed = Placed(ExpertMap.plain(runtime.spread, config.n_routed_experts, 2))
    nobody = cast(Group, None)
    spread = DistributedExperts(nobody, runtime.experts, placed, ExpertCounts(runtime.spread, 32), timeout=0.0)
    x = draw.standard_normal((tokens, config.hidden_size), np.float32)
    ids, gates = draw.integers(0, 32, (tokens, 4), np.int32), draw.random((tokens, 4), np.float32)
    here = run(LocalExperts(runtime.experts)(layer, x, ids, gates), timeout=1)
    np.testing.assert_array_equal(run(spread(layer, x, ids, gates), timeout=1), here)
    assert here.shape == x.shape
