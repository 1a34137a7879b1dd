"""The metrics, checked against placements whose worth is known."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eplb import Cluster, LoadWindow, Placement, Unplannable, balance
from eplb.traces.generate import Trace, generate

PLANS = json.loads((Path(__file__).parents[2] / "data" / "eplb" / "small_plans.json").read_text())
CLUSTER = Cluster(4, 5)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return generate("small")


@pytest.mark.parametrize("name", PLANS)
def test_known_placements_are_worth_what_they_are_known_for(trace: Trace, name: str) -> None:
    known: dict[str, Any] = PLANS[name]
    placement = Placement.of(known["slots"], 16)
    for window, figures in ((trace.fit, known["fit"]), (trace.next, known["next"])):
        found = balance(window, placement, CLUSTER)
        assert (round(found.mean, 4), round(found.worst, 4)) == (figures["mean"], figures["worst"])
    assert placement.missing() == known["missing_experts"]
    assert placement.duplicates() == known["duplicate_npus"]
    if not placement.duplicates():
        assert placement.moves_from(Placement.plain(4, 16, CLUSTER)).sum() == known["moves_from_plain"]


def test_load_counts_for_more_on_a_slow_npu() -> None:
    window, placement = LoadWindow.of([[[3, 1]]]), Placement.of([[[0], [1]]], 2)
    assert balance(window, placement, Cluster(2, 1)).mean == 1.5
    assert balance(window, placement, Cluster(2, 1, speeds=[3, 1])).mean == 1.0


def test_the_shared_expert_is_load_of_the_npus_that_hold_it() -> None:
    window, placement = LoadWindow.of([[[4, 4]]], top_k=2), Placement.of([[[0], [1]]], 2)
    # Four tokens, each also to the shared expert: NPU 0 has 4 + 4, NPU 1 has 4, evenly it would be 6.
    assert balance(window, placement, Cluster(2, 1, shared_on=[0])).mean == pytest.approx(8 / 6)
    with pytest.raises(Unplannable, match="top_k"):
        balance(LoadWindow.of([[[4, 4]]]), placement, Cluster(2, 1, shared_on=[0]))


def test_an_excluded_npu_is_no_part_of_the_mean() -> None:
    window, placement = LoadWindow.of([[[1, 1]]]), Placement.of([[[0], [1], [-1]]], 2)
    assert balance(window, placement, Cluster(3, 1, excluded=frozenset({2}))).mean == 1.0


def test_nobody_waits_in_a_slice_without_tokens() -> None:
    window = LoadWindow.of([[[3, 1]], [[0, 0]]])
    assert balance(window, Placement.of([[[0], [1]]], 2), Cluster(2, 1)).slices[:, 0].tolist() == [1.5, 1.0]


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(Unplannable, match="does not fit"):
        balance(LoadWindow.of(np.ones((1, 2, 2))), Placement.of([[[0], [1]]], 2), Cluster(2, 1))
