"""Packs blocks of dies into servers of one kind.

Best fit, largest block first: a block goes where the fewest dies stay free, to a server in use before an untouched
one, so that whole servers stay free for big gangs. When sizes divide one another (1, 2, 4, 8, 16) this finds a
packing whenever there is one, and opens the fewest whole servers. For other sizes, or when blocks would rather
avoid some server, a branch-and-bound search improves on it as long as the answer is not provably best; the search
is bounded by a number of steps, never by time, so that the same input gives the same plan.

Invariants: a block lies on one server; no server gets more than it has free; all blocks or none.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

SEARCH_STEPS = 4000
SEARCH_BLOCKS = 64  # deeper trees are hopeless within the steps


@dataclass(frozen=True, slots=True)
class Block:
    """Dies that must lie together on one server; ``avoid`` names servers to take only when no other fits."""

    key: str
    dies: int
    avoid: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Bin:
    """A server with ``free`` dies; ``whole`` when nothing of it is in use."""

    name: str
    free: int
    whole: bool


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """What a packing costs, the worse part first: blocks on avoided servers, whole servers opened."""

    avoided: int = 0
    opened: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.avoided + other.avoided, self.opened + other.opened)


@dataclass(frozen=True, slots=True)
class Packing:
    """Server of each block."""

    servers: dict[str, str]
    cost: Cost


def pack(bins: Sequence[Bin], blocks: Sequence[Block]) -> Packing | None:
    """The cheapest packing found, or None when the blocks do not fit."""
    ordered = sorted(blocks, key=lambda block: (-block.dies, block.key))
    if not _can_fit(bins, ordered):
        return None
    search = _Search(sorted(bins, key=lambda bin_: (bin_.whole, bin_.free, bin_.name)), ordered)
    greedy = search.descend()
    bound = Cost(0, fewest_opened(bins, ordered))
    if (greedy is not None and greedy.cost <= bound) or len(ordered) > SEARCH_BLOCKS:
        return greedy
    return search.improve(greedy, bound)


def fewest_opened(bins: Sequence[Bin], blocks: Sequence[Block]) -> int:
    """A lower bound of the whole servers that any packing opens, exact when block sizes divide one another.

    For the blocks of at least each size: servers hold multiples of their greatest common divisor only.
    """
    most = 0
    for size in {block.dies for block in blocks}:
        large = [block.dies for block in blocks if block.dies >= size]
        step = math.gcd(*large)
        usable = [(bin_.whole, bin_.free // step * step) for bin_ in bins if bin_.free >= size]
        missing = sum(large) - sum(free for whole, free in usable if not whole)
        opened = 0
        for free in sorted((free for whole, free in usable if whole), reverse=True):
            if missing <= 0:
                break
            missing -= free
            opened += 1
        most = max(most, opened)
    return most


def _can_fit(bins: Sequence[Bin], blocks: Sequence[Block]) -> bool:
    """Necessary, and cheap: the same counting as above, with all servers open."""
    for size in {block.dies for block in blocks}:
        large = [block.dies for block in blocks if block.dies >= size]
        step = math.gcd(*large)
        if sum(large) > sum(bin_.free // step * step for bin_ in bins if bin_.free >= size):
            return False
    return True


@dataclass
class _Search:
    """Depth-first over blocks; ``left`` holds the free dies of each bin at the current node of the tree."""

    bins: Sequence[Bin]
    blocks: Sequence[Block]
    left: list[int] = field(init=False)
    steps: int = 0
    best: Packing | None = None
    bound: Cost = Cost()

    def __post_init__(self) -> None:
        self.left = [bin_.free for bin_ in self.bins]
        self.named = frozenset().union(*(block.avoid for block in self.blocks)) if self.blocks else frozenset()

    def descend(self) -> Packing | None:
        """The greedy packing: always the first choice, no way back."""
        left, cost, servers = self.left, Cost(), dict[str, str]()
        for block in self.blocks:
            choice = min(self._choices(block), default=None)
            if choice is None:
                self.left = [bin_.free for bin_ in self.bins]
                return None
            cost += self._cost(block, choice[-1])
            left[choice[-1]] -= block.dies
            servers[block.key] = self.bins[choice[-1]].name
        self.left = [bin_.free for bin_ in self.bins]
        return Packing(servers, cost)

    def improve(self, best: Packing | None, bound: Cost) -> Packing | None:
        """The best packing found within the steps."""
        self.best, self.bound, self.steps = best, bound, SEARCH_STEPS
        self._branch(0, Cost(), {})
        return self.best

    def _branch(self, depth: int, cost: Cost, servers: dict[str, str]) -> None:
        if self.best is not None and (cost >= self.best.cost or self.best.cost <= self.bound):
            return
        if depth == len(self.blocks):
            self.best = Packing(dict(servers), cost)
            return
        block = self.blocks[depth]
        seen: set[tuple[object, ...]] = set()
        for choice in sorted(self._choices(block)):
            index = choice[-1]
            bin_ = self.bins[index]
            # Bins that look the same from here on lead to the same packings: one of them is enough.
            kind = (self.left[index], self._untouched(index), bin_.name if bin_.name in self.named else "")
            if kind in seen or self.steps <= 0:
                continue
            seen.add(kind)
            self.steps -= 1
            step = self._cost(block, index)
            self.left[index] -= block.dies
            servers[block.key] = bin_.name
            self._branch(depth + 1, cost + step, servers)
            del servers[block.key]
            self.left[index] += block.dies

    def _choices(self, block: Block) -> list[tuple[bool, bool, int, int]]:
        """Bins with room, as sort keys that end with the bin's index: best first."""
        return [
            (self.bins[index].name in block.avoid, self._untouched(index), left, index)
            for index, left in enumerate(self.left)
            if left >= block.dies
        ]

    def _untouched(self, index: int) -> bool:
        return self.bins[index].whole and self.left[index] == self.bins[index].free

    def _cost(self, block: Block, index: int) -> Cost:
        return Cost(int(self.bins[index].name in block.avoid), int(self._untouched(index)))
