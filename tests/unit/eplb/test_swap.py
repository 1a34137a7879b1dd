"""A change of placement: whatever fails, is late, is refused or dies, ranks step together and no expert is lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from eplb import ReplicaMap
from eplb.swap import NotTaken, Phase, Step, Swap
from eplb.transfers import switched_off

VERSION = 3
OLD = np.array([[0, 1, 2], [3, 4, 0]])  # expert 0 twice; 1 and 3 change places, which no second copy covers
NEW = np.array([[0, 3, 2], [1, 4, 2]])
EXPERTS = 5


@dataclass(frozen=True)
class Rank:
    """``said``: its word in the vote under way; ``told``: whether the offer has reached it; ``map``: what it serves."""

    swap: Swap = field(default_factory=Swap)
    told: bool = False
    said: int | None = None
    votes: int = 0
    map: str = "old"


World = tuple[Rank, ...]
Graph = tuple[set[World], dict[World, set[World]]]  # every state, and those from which it is one move away
MAPS = {Step.DISABLE: "disabled", Step.ENABLE: "new", Step.ROLLBACK: "old"}


def moves(world: World) -> Iterator[World]:
    """Everything that can happen next: news reach a rank, its transfer ends well or not, it is late, it votes."""
    for number, rank in enumerate(world):

        def changed(new: Rank, number: int = number) -> World:
            return (*world[:number], new, *world[number + 1 :])

        if not rank.told:
            try:
                yield changed(replace(rank, told=True, swap=rank.swap.offer(VERSION)))
            except NotTaken:
                yield changed(replace(rank, told=True))
        if rank.swap.target and not rank.swap.failed:
            yield changed(replace(rank, swap=rank.swap.fail()))
            if not rank.swap.ready:
                yield changed(replace(rank, swap=rank.swap.done()))
        if rank.said is None:
            yield changed(replace(rank, said=rank.swap.word))
    words = [rank.said for rank in world if rank.said is not None]
    if len(words) == len(world):
        yield tuple(hears(rank, words) for rank in world)


def hears(rank: Rank, words: list[int]) -> Rank:
    swap, step = rank.swap.hear(words)
    return replace(rank, swap=swap, said=None, map=MAPS.get(step, rank.map))


def explored(ranks: int) -> Graph:
    start = (Rank(),) * ranks
    seen, todo, before = {start}, [start], {start: set[World]()}
    while todo:
        world = todo.pop()
        for following in moves(world):
            before.setdefault(following, set()).add(world)
            if following not in seen:
                seen.add(following)
                todo.append(following)
    return seen, before


@pytest.fixture(scope="module", params=[1, 2, 3])
def graph(request: pytest.FixtureRequest) -> Graph:
    return explored(request.param)


def test_all_ranks_use_the_same_map_in_every_iteration(graph: Graph) -> None:
    """An iteration runs only between two votes; until the next one is heard nobody's map changes."""
    seen, _ = graph
    assert {rank.map for world in seen for rank in world} == {"old", "disabled", "new"}
    for world in seen:
        assert len({rank.map for rank in world}) == 1, world
        assert len({rank.swap.version for rank in world}) == 1, world
        for rank in world:
            assert (rank.map == "disabled") == (rank.swap.phase is Phase.LOAD)
            assert (rank.map == "new") == (rank.swap.version == VERSION)


def test_from_everywhere_it_ends_in_the_old_or_the_new_placement(
    graph: Graph,
) -> None:
    """Nothing can get stuck: every state has a way on to a rest, and a rest is whole."""
    seen, before = graph
    rests = [world for world in seen if all(rank.told and not rank.swap.target for rank in world)]
    assert {rank.map for world in rests for rank in world} == {"old", "new"}
    calm: set[World] = set()
    while rests:
        world = rests.pop()
        if world not in calm:
            calm.add(world)
            rests += before[world]
    assert calm == seen


def test_what_one_gave_up_nobody_takes_up_again(graph: Graph) -> None:
    seen, _ = graph
    for world in seen:
        if any(rank.swap.given_up for rank in world):
            assert {rank.swap.given_up for rank in world} == {VERSION}
            assert all(rank.map == "old" and not rank.swap.target for rank in world)


@pytest.mark.parametrize("name", ["old", "disabled", "new"])
def test_every_expert_can_be_reached_in_every_phase(name: str) -> None:
    off = switched_off(OLD, NEW, EXPERTS)
    slots, without = {"old": (OLD, frozenset()), "disabled": (OLD, off), "new": (NEW, frozenset())}[name]
    assert ReplicaMap.of(slots, EXPERTS, without).copies.all()


def test_a_new_epoch_begins_where_the_map_is() -> None:
    """A rank died in the middle: the survivors forget the change, and take the same version anew."""
    loading = Swap(1).offer(VERSION).done()
    loading, step = loading.hear([loading.word])
    assert (step, loading.phase) == (Step.DISABLE, Phase.LOAD)
    anew = Swap(loading.version)
    assert anew.offer(VERSION).target == VERSION


def test_offers_that_cannot_be_taken_say_why() -> None:
    with pytest.raises(NotTaken, match="not above version 5"):
        Swap(5).offer(4)
    with pytest.raises(NotTaken, match="under way"):
        Swap(5).offer(6).offer(7)
    with pytest.raises(NotTaken, match="given up"):
        Swap(5, given_up=7).offer(7)
    assert Swap(5).offer(5) == Swap(5)
    assert Swap(5).offer(6).offer(6) == Swap(5).offer(6)


def test_a_copy_is_switched_off_only_while_another_stays() -> None:
    assert switched_off(OLD, NEW, EXPERTS) == {5}  # the second copy of expert 0; 1 and 3 are the only ones
