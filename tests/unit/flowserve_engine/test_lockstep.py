"""The lockstep loop: no wake-up is lost in any interleaving, and ranks never part."""

from __future__ import annotations

import pytest

from .parking_explorer import World, explore


@pytest.mark.parametrize(("ranks", "arrivals"), [(1, 2), (2, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize("reliable", [True, False], ids=["rings-arrive", "rings-may-be-lost"])
def test_no_interleaving_loses_a_wake_up(ranks: int, arrivals: int, reliable: bool) -> None:
    graph = explore(lambda: World(ranks, arrivals, reliable=reliable))
    assert graph.states > 10
    assert not graph.restless


@pytest.mark.parametrize("arrivals", [0, 1])
def test_news_reach_all_ranks_though_they_are_parked_and_have_no_work(arrivals: int) -> None:
    graph = explore(lambda: World(2, arrivals, reliable=True, news=2))
    assert graph.states > 10
    assert not graph.restless


def test_the_explorer_finds_the_lost_wake_up_of_a_loop_that_does_not_look_at_pending_votes() -> None:
    graph = explore(lambda: World(2, 1, reliable=True, sighted=False))
    assert graph.restless
