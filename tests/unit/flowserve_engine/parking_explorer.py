"""Every interleaving of the lockstep loops of a few ranks, with work that arrives at any moment.

The real ``Lockstep.run`` coroutines are stepped by hand. A state is what all ranks, rings on their way and work yet to
arrive amount to; from each, every action that is possible is tried: work arrives, a ring is delivered or lost, a rank
goes on from where it waits. The states form a finite graph, since only the votes of unfinished rounds matter.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from flowserve.engine.lockstep import Lockstep
from xccl import Steps

Action = tuple[str, int]


class Pause:
    """Where a coroutine stands still until the explorer lets it go on."""

    def __init__(self, label: str) -> None:
        self._label = label

    def __await__(self) -> Generator[str, None, None]:
        yield self._label


@dataclass
class Rank:
    """One rank's side of the world: its votes, its work, its wake-up."""

    world: World
    number: int
    votes: list[int] = field(default_factory=list)
    work: int = 0
    iterations: int = 0
    tidings: int = 0
    said: bool = False
    woken: bool = False
    ring_on_its_way: bool = False
    at: str | None = "start"

    # xccl.Group, as the loop sees it
    def vote(self, word: int) -> Steps[tuple[int, ...]]:
        self.votes.append(word)
        turn = len(self.votes)
        while any(len(rank.votes) < turn for rank in self.world.ranks):
            yield True
        return tuple(rank.votes[turn - 1] for rank in self.world.ranks)

    def pending(self) -> bool:
        return self.world.sighted and any(len(rank.votes) > len(self.votes) for rank in self.world.ranks)

    # asyncio.Event, as the loop sees it
    def clear(self) -> None:
        self.woken = False

    async def wait(self) -> None:
        while not self.woken:
            await Pause("parked")

    # the engine's work
    @property
    def has_work(self) -> bool:
        return self.work > 0

    async def iterate(self) -> None:
        await Pause("iteration")
        self.iterations += 1
        self.work = max(self.work - 1, 0)

    # what ranks agree on beside: here the news that some have is all they say
    @property
    def news(self) -> bool:
        return self.tidings > 0 and not self.said

    def say(self) -> int:
        self.said = self.tidings > 0
        return int(self.said)

    def heard(self, words: tuple[int, ...]) -> None:
        if any(words):
            self.tidings, self.said = 0, False

    def hear_of(self) -> None:
        self.tidings = 1
        self.woken = True

    def arrive(self) -> None:
        self.work += 1
        self.woken = True


class World:
    """``ranks`` loops, ``arrivals`` requests and ``news`` in all. ``reliable``: rings arrive, and are sent once;
    otherwise they may be lost, and are repeated. Unless ``sighted``, a rank cannot see its peers' votes before it votes
    itself."""

    def __init__(self, ranks: int, arrivals: int, *, reliable: bool, sighted: bool = True, news: int = 0) -> None:
        self.ranks = [Rank(self, number) for number in range(ranks)]
        self.arrivals = arrivals
        self.news = news
        self.reliable = reliable
        self.sighted = sighted
        ticks = count()
        self._clock: Callable[[], float] = (lambda: 0.0) if reliable else (lambda: 1e6 * next(ticks))
        self._loops = [self._loop(rank) for rank in self.ranks]

    def _loop(self, rank: Rank) -> Any:
        def ring() -> None:
            for other in self.ranks:
                other.ring_on_its_way |= other is not rank

        async def drive(steps: Steps[tuple[int, ...]]) -> tuple[int, ...]:
            while True:
                try:
                    next(steps)
                except StopIteration as stop:
                    result: tuple[int, ...] = stop.value
                    return result
                await Pause("vote")

        return Lockstep(rank, rank, rank, rank, ring, drive, self._clock).run()

    def actions(self) -> Iterator[Action]:
        for rank in self.ranks:
            if self.arrivals:
                yield "arrive", rank.number
            if self.news and not rank.tidings:
                yield "hear of", rank.number
            if rank.ring_on_its_way:
                yield "deliver", rank.number
                if not self.reliable:
                    yield "lose", rank.number
            if rank.at != "parked" or rank.woken:
                yield "go on", rank.number

    def do(self, action: Action) -> None:
        what, number = action
        rank = self.ranks[number]
        if what == "arrive":
            self.arrivals -= 1
            rank.arrive()
        elif what == "hear of":
            self.news -= 1
            rank.hear_of()
        elif what == "go on":
            rank.at = self._loops[number].send(None)
        else:
            rank.ring_on_its_way = False
            rank.woken |= what == "deliver"

    def state(self) -> Hashable:
        """Everything that decides what can still happen."""
        settled = min(len(rank.votes) for rank in self.ranks)
        done = min(rank.iterations for rank in self.ranks)
        return (
            self.arrivals,
            self.news,
            tuple(
                (
                    rank.at,
                    rank.work,
                    rank.tidings,
                    rank.said,
                    rank.woken,
                    rank.ring_on_its_way,
                    tuple(rank.votes[max(settled - 1, 0) :]),
                    rank.iterations - done,
                    loop.cr_frame.f_locals.get("parked"),
                )
                for rank, loop in zip(self.ranks, self._loops, strict=True)
            ),
        )

    @property
    def at_rest(self) -> bool:
        """All work is done, the ranks did it in step, and all are parked with nothing on its way."""
        return not (self.arrivals or self.news) and all(
            rank.at == "parked"
            and not (rank.work or rank.tidings or rank.woken or rank.ring_on_its_way)
            and rank.iterations == self.ranks[0].iterations
            for rank in self.ranks
        )

    def close(self) -> None:
        for loop in self._loops:
            loop.close()


@dataclass
class Graph:
    """All states that can be reached, and from which of them rest cannot be reached."""

    states: int
    restless: list[list[Action]]


def explore(build: Callable[[], World]) -> Graph:
    """Visits every state once. ``restless`` holds a way to each state from which the world never comes to rest."""

    def at(way: list[Action]) -> World:
        world = build()
        for action in way:
            world.do(action)
        return world

    ways: dict[Hashable, list[Action]] = {}
    before: dict[Hashable, set[Hashable]] = {}
    resting: list[Hashable] = []
    todo: list[tuple[list[Action], Hashable | None]] = [([], None)]
    while todo:
        way, origin = todo.pop()
        world = at(way)
        state = world.state()
        before.setdefault(state, set())
        if origin is not None:
            before[state].add(origin)
        if state not in ways:
            ways[state] = way
            if world.at_rest:
                resting.append(state)
            todo += [([*way, action], state) for action in world.actions()]
        world.close()
    calm: set[Hashable] = set()
    while resting:
        state = resting.pop()
        if state not in calm:
            calm.add(state)
            resting += before[state]
    return Graph(len(ways), [way for state, way in ways.items() if state not in calm])
