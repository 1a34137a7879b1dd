"""Policies by name: a user's own, and what each of ours is for."""

from importlib.metadata import EntryPoint, EntryPoints

import numpy as np
import pytest

from eplb import Cluster, LoadWindow, Placement, Unplannable, balance, policies
from eplb.plan import plan
from eplb.policies import Options
from eplb.problem import Problem, Slots
from eplb.traces.generate import generate


def loses_an_expert(problem: Problem, _options: Options) -> Slots:
    slots = problem.start.copy()
    slots[0, 0, 0] = slots[0, 1, 0]
    return slots


def reverses(problem: Problem, _options: Options) -> Slots:
    return problem.start[:, ::-1]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints(
        EntryPoint(name, f"{__name__}:{function}", policies.GROUP)
        for name, function in (("mine", "reverses"), ("broken", "loses_an_expert"), ("search", "reverses"))
    )
    monkeypatch.setattr(policies, "entry_points", lambda **wanted: points.select(**wanted))


@pytest.mark.usefixtures("installed")
def test_an_installed_policy_is_found_by_name_and_checked() -> None:
    window, current = LoadWindow.of([[[3, 1, 1, 1]]]), Placement.of([[[0, 1], [2, 3]]], 4)
    assert plan(window, Cluster(2, 2), current, name="mine").gain == 0
    with pytest.raises(Unplannable, match="expert 0 has no copy"):
        plan(window, Cluster(2, 2), current, name="broken")
    assert policies.names()[-2:] == ["broken", "mine"]
    assert policies.policy("search") is policies.BUILT_IN["search"]


@pytest.mark.parametrize("moves", [4, 12])
def test_a_few_moves_make_a_better_plan_and_none_exceeds_its_limit(moves: int) -> None:
    trace, cluster = generate("small"), Cluster(4, 5)
    first = plan(trace.fit, cluster).placement
    again = plan(trace.next, cluster, first, name="incremental", options=Options(moves=moves))
    assert again.placement.moves_from(first).max() <= moves
    assert again.before is not None
    assert again.predicted.mean < again.before.mean


def test_search_within_a_move_limit_is_incremental() -> None:
    trace, cluster = generate("small"), Cluster(4, 5)
    first = plan(trace.fit, cluster).placement
    options = Options(moves=3)
    one, other = (plan(trace.next, cluster, first, name=name, options=options) for name in ("search", "incremental"))
    assert np.array_equal(one.placement.slots, other.placement.slots)


def test_none_keeps_the_placement_in_force() -> None:
    trace, cluster = generate("small"), Cluster(4, 5)
    plain = Placement.plain(4, 16, cluster)
    found = plan(trace.fit, cluster, plain, name="none")
    assert np.array_equal(found.placement.slots, plain.slots)
    assert (found.changed, found.gain) == ((), 0)


def test_activated_evens_out_experts_rather_than_tokens() -> None:
    # One expert takes half the tokens; with many tokens an iteration every other one is activated all the same.
    window = LoadWindow.of([[[700] + [100] * 7]])
    cluster = Cluster(2, [7, 1])
    by_tokens = plan(window, Cluster(2, 7), options=Options()).placement
    by_experts = plan(window, Cluster(2, 4), name="activated", options=Options(tokens=1000)).placement
    assert (by_experts.slots >= 0).sum(2).tolist() == [[4, 4]]
    assert by_tokens.copies().sum() == 14
    assert balance(window, plan(window, cluster).placement, cluster).mean == pytest.approx(1.0)
