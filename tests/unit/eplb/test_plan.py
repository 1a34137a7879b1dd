"""Plans: what is guaranteed whatever the input, and inputs on which other planners go wrong."""

import itertools

import numpy as np
import pytest

from eplb import EMPTY, Cluster, LoadWindow, Placement, Unplannable, balance
from eplb.plan import plan
from eplb.policies import Options
from eplb.search import BUDGETS
from eplb.traces.generate import generate

SMALL = Cluster(4, 5)
EVERY_POLICY = ("search", "greedy", "activated")


def loads(*layers: list[float]) -> LoadWindow:
    return LoadWindow.of(np.array([layers], dtype=float), top_k=1)


def busiest(window: LoadWindow, placement: Placement, cluster: Cluster) -> float:
    """Tokens of the most loaded NPU of the first layer."""
    return balance(window, placement, cluster).mean * window.counts[0, 0].sum() / cluster.npus


@pytest.mark.parametrize("name", EVERY_POLICY)
@pytest.mark.parametrize(
    ("load", "npus", "slots"),
    [
        ([1, 1], 2, 2),
        ([4, 4, 1, 1], 4, 2),
        ([0, 0, 0, 0], 2, 4),
        ([5], 3, 2),
        ([1, 2, 3], 1, 5),
        ([2**62, 1, 2**61], 4, 2),
        ([7, 7, 7, 7, 7, 7], 3, 3),
    ],
)
def test_no_npu_holds_an_expert_twice_and_none_is_missing(name: str, load: list[float], npus: int, slots: int) -> None:
    cluster = Cluster(npus, slots)
    found = plan(loads(load), cluster, name=name).placement
    found.check(cluster)
    filled = (found.slots != EMPTY).sum()
    assert filled == npus * min(slots, len(load))


def test_every_expert_gets_its_turn_when_all_are_equally_hot() -> None:
    found = plan(loads([200_000.0] * 16), SMALL).placement
    assert sorted(found.copies()[0].tolist()) == [1] * 12 + [2] * 4


@pytest.mark.parametrize("name", ["search", "greedy"])
def test_a_copy_halves_the_load(name: str) -> None:
    window, cluster = loads([30, 19, 1]), Cluster(5, 1)
    assert busiest(window, plan(window, cluster, name=name).placement, cluster) == pytest.approx(15)


@pytest.mark.parametrize("seed", range(4))
def test_small_problems_are_solved_as_well_as_by_trying_everything(seed: int) -> None:
    load = np.random.default_rng(seed).integers(1, 40, 4)
    window, cluster = loads(load.tolist()), Cluster(3, 2)
    sets = list(itertools.combinations(range(4), 2))
    every = [one for one in itertools.product(sets, repeat=3) if len(set(itertools.chain(*one))) == 4]
    best = balance(
        LoadWindow.of(np.repeat(window.counts, len(every), 1)), Placement.of(np.array(every), 4), cluster
    ).layers.min()
    assert balance(window, plan(window, cluster).placement, cluster).mean == pytest.approx(best, rel=1e-3)


def test_equal_input_and_seed_give_an_equal_plan() -> None:
    window = generate("small").fit
    one, other = (plan(window, SMALL, options=Options(seed=5)).placement for _ in range(2))
    assert np.array_equal(one.slots, other.slots)


@pytest.mark.parametrize("name", ["search", "incremental", "greedy", "activated"])
def test_a_layer_that_cannot_be_bettered_stays_as_it_is(name: str) -> None:
    window = loads([1, 1, 1, 1], [9, 1, 1, 1])
    current = Placement.of([[[0, 1], [2, 3]], [[0, 1], [2, 3]]], 4)
    found = plan(window, Cluster(2, 2), current, name=name)
    assert np.array_equal(found.placement.slots[0], current.slots[0])
    assert 0 not in found.changed
    assert found.before is not None
    assert (found.predicted.layers <= found.before.layers).all()


def test_an_idle_layer_is_left_alone_unless_it_is_broken() -> None:
    cluster = Cluster(3, 2, excluded=frozenset({2}))
    current = Placement.of([[[2, 3], [0, 1], [EMPTY, EMPTY]], [[0, 1], [2, EMPTY], [3, EMPTY]]], 4)
    found = plan(loads([0, 0, 0, 0], [0, 0, 0, 0]), cluster, current)
    assert np.array_equal(found.placement.slots[0], current.slots[0])
    found.placement.check(cluster)
    assert found.changed == (1,)


@pytest.mark.parametrize("name", ["search", "incremental", "greedy", "activated"])
def test_an_excluded_npu_is_evacuated(name: str) -> None:
    window = generate("small").fit
    cluster = Cluster(5, 5, excluded=frozenset({1}))
    plain = Placement.plain(4, 16, Cluster(5, 5))
    found = plan(window, cluster, plain, name=name).placement
    assert (found.slots[:, 1] == EMPTY).all()
    found.check(cluster)


def test_a_move_limit_of_nothing_still_gives_every_expert_a_copy() -> None:
    cluster = Cluster(3, 2, excluded=frozenset({0}))
    current = Placement.of([[[0, 1], [2, 3], [2, 3]]], 4)
    found = plan(loads([4, 3, 2, 1]), cluster, current, options=Options(moves=0))
    found.placement.check(cluster)
    assert found.placement.moves_from(current).sum() == 2


def test_pinned_experts_stay_and_the_rest_moves() -> None:
    window = generate("small").fit
    current = Placement.plain(4, 16, SMALL)
    pinned = np.zeros((4, 5), np.bool_)
    pinned[:, :2] = True
    found = plan(window, SMALL, current, pinned=pinned)
    assert np.array_equal(found.placement.slots[:, pinned], current.slots[:, pinned])
    assert found.gain > 0.3


def test_a_fast_npu_gets_more() -> None:
    window = loads([6.0] * 12)
    cluster = Cluster(3, 6, speeds=[2, 1, 1])
    found = plan(window, cluster)
    assert found.predicted.mean < 1.1


def test_npus_with_the_shared_expert_get_less() -> None:
    window = LoadWindow.of(np.full((1, 1, 8), 10.0), top_k=2)
    cluster = Cluster(4, 4, shared_on=[0, 1])
    found = plan(window, cluster)
    ignorant = plan(window, Cluster(4, 4)).placement
    assert found.predicted.mean < balance(window, ignorant, cluster).mean


def test_groups_stay_on_one_server() -> None:
    window = generate("small").fit
    cluster = Cluster(4, 5, servers=2, expert_groups=4)
    first = plan(window, cluster)
    for result in (first, plan(window, cluster, first.placement, options=Options(moves=4))):
        servers = result.placement.slots.reshape(4, 2, 10)
        for layer in servers:
            groups = [set((server[server != EMPTY] // 4).tolist()) for server in layer]
            assert len(groups[0]) == len(groups[1]) == 2
            assert not groups[0] & groups[1]


def test_a_placement_in_force_that_scatters_groups_is_no_reason_to_go_on_so() -> None:
    window, cluster = generate("small").fit, Cluster(4, 5, servers=2, expert_groups=4)
    scattered = plan(window, SMALL).placement
    found = plan(window, cluster, scattered)
    assert found.before is not None
    assert found.predicted.mean > found.before.mean, "groups cost balance, and it shows"
    for layer in found.placement.slots.reshape(4, 2, 10):
        groups = [set((server[server != EMPTY] // 4).tolist()) for server in layer]
        assert len(groups[0]) == len(groups[1]) == 2
        assert not groups[0] & groups[1]


def test_only_equal_npus_change_numbers_to_save_moves() -> None:
    window = generate("small").fit
    first = plan(window, SMALL).placement
    shuffled = Placement(np.ascontiguousarray(first.slots[:, ::-1]), 16)
    again = plan(window, SMALL, shuffled)
    assert again.placement.moves_from(shuffled).sum() < 20  # 80 without renumbering


def test_what_a_plan_costs() -> None:
    current = Placement.of([[[0, 1], [2, 3]], [[0, 1], [2, 3]]], 4)
    found = plan(loads([8, 8, 1, 1], [1, 1, 1, 1]), Cluster(2, 2), current, expert_bytes=10**9)
    assert found.cost is not None
    assert (found.cost.moves, found.cost.bytes) == (2, 2 * 10**9)
    assert found.cost.seconds == pytest.approx(1e9 / 164e9, rel=0.01)
    assert found.gain == pytest.approx(1 - (1 + 1) / (16 / 9 + 1))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"cluster": Cluster(2, 1)}, "4 experts do not fit into 2 open slots"),
        ({"name": "best"}, "no policy 'best'; there are search"),
        ({"name": "incremental"}, "need the placement in force"),
        ({"options": Options(moves=3)}, "need the placement in force"),
        ({"options": Options(moves=-1)}, "negative"),
        ({"name": "greedy", "options": Options(moves=3)}, "knows no limit"),
        ({"current": Placement.of([[[0, 1, 2, 3]]], 4)}, "the placement in force is"),
        ({"current": Placement.of([[[0, 1], [2, 3]]], 4), "pinned": np.ones((1, 2), np.bool_)}, "pinned must be"),
        (
            {
                "current": Placement.of([[[0, 0], [1, 2]]], 4),
                "pinned": np.ones((2, 2), np.bool_),
            },
            "twice on one NPU",
        ),
        (
            {
                "current": Placement.of([[[0, 1], [1, 2]]], 4),
                "pinned": np.ones((2, 2), np.bool_),
            },
            "1 experts need a slot, and 0 are not pinned",
        ),
        (
            {
                "cluster": Cluster(3, 2, excluded=frozenset({0})),
                "current": Placement.of([[[0, 1], [1, 2], [3, EMPTY]]], 4),
                "pinned": np.ones((3, 2), np.bool_),
            },
            "NPU 0 has a pinned expert",
        ),
        ({"cluster": Cluster(4, 2, servers=2, expert_groups=8)}, "4 experts cannot be divided into 8 groups"),
        ({"cluster": Cluster(2, [1, 4], servers=2, expert_groups=2)}, "server 0 has 1 open slots"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_the_reason(arguments: dict[str, object], reason: str) -> None:
    given: dict[str, object] = {"cluster": Cluster(2, 2), "window": loads([1, 2, 3, 4]), **arguments}
    with pytest.raises(Unplannable, match=reason):
        plan(**given)  # type: ignore[arg-type]


def test_a_fast_plan_of_a_large_model_beats_balancing_the_window_sum() -> None:
    trace, cluster = generate("correlated"), Cluster(72, 4)
    fast = plan(trace.fit, cluster, options=Options(BUDGETS["fast"])).placement
    summed = plan(LoadWindow.of(trace.fit.counts.sum(0, keepdims=True)), cluster, name="greedy").placement
    assert balance(trace.next, fast, cluster).mean < 0.97 * balance(trace.next, summed, cluster).mean
