"""Where instances go: chips by preference, servers by best fit, everything or nothing.

An instance (a TaskExecutor's replica, or the part of it that has no place) lies on one chip of one SuperPod, and each
of its DP groups on one server. Decode is placed on 910C only, whatever the request says. Instances with one possible
chip are fixed; for the others, as many as possible get their first choice. Among plans of equal preference the one
with the cheapest packing wins (see packing).

Among servers of a chip the plane that KV must cross counts first: what is placed together goes as slow as its slowest
plane, so a slower one is used only when the faster ones have no room for all of it. Instances that stand in for each
other do not all lie on one server if another has room; two servers are enough, the others may stay whole.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from xdeepserve_operator.api.v1alpha1.base import Chip, RoleType
from xdeepserve_operator.api.v1alpha1.superpod import Plane
from xdeepserve_operator.planner.packing import Bin, Block, Cost, Packing, pack
from xdeepserve_operator.planner.servers import Server

DECODE_CHIP: Chip = "910C"
MIXES = 256  # ways to share out the chips that are tried at most
FASTEST_FIRST: tuple[Plane, ...] = ("UB", "RoCE", "VPC")


@dataclass(frozen=True, slots=True)
class Request:
    """One instance, or what is missing of it. ``chips``: allowed ones, preferred first.

    Instances of equal ``mates`` stand in for each other; ``beside`` names servers where others of them are.
    """

    role: RoleType
    superpod: str
    chips: tuple[Chip, ...]
    blocks: tuple[Block, ...]
    mates: str = ""
    beside: frozenset[str] = frozenset()

    @property
    def allowed(self) -> tuple[Chip, ...]:
        """Chips it may really run on."""
        return tuple(chip for chip in self.chips if self.role != "Decode" or chip == DECODE_CHIP)


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a block goes."""

    node: str
    chip: Chip


@dataclass(frozen=True, slots=True)
class Placement:
    """A spot for every block of every request, by the block's key."""

    spots: Mapping[str, Spot]


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why the requests do not fit, for people."""

    message: str


_Pool = tuple[str, Chip]  # SuperPod, chip
_Bins = Mapping[_Pool, Mapping[Plane, Sequence[Bin]]]


def place(servers: Sequence[Server], requests: Sequence[Request]) -> Placement | Shortfall:
    """A place for all requests, or what is missing."""
    bins: dict[_Pool, dict[Plane, list[Bin]]] = defaultdict(lambda: defaultdict(list))
    for server in servers:
        if server.free:
            whole = server.used == 0
            bins[server.superpod, server.chip][server.plane].append(Bin(server.name, server.free, whole))
    requests = [request for request in requests if request.blocks]
    for request in requests:
        if not request.allowed:
            return Shortfall(f"{request.role} runs on {DECODE_CHIP} only, its chips are {', '.join(request.chips)}")
    spots = _cheapest(bins, requests)
    if spots is None:
        return Shortfall(_shortfall(bins, requests))
    return _apart(servers, requests, Placement(spots))


def _cheapest(bins: _Bins, requests: Sequence[Request]) -> dict[str, Spot] | None:
    """The plan with the fewest second choices, of those the one with the cheapest packing."""
    best: tuple[int, Cost, dict[str, Spot]] | None = None
    for second_choices, chips in itertools.islice(_mixes(requests), MIXES):
        if best is not None and second_choices > best[0]:
            break
        plan = _pack_pools(bins, requests, chips)
        if plan is not None and (best is None or plan[0] < best[1]):
            best = (second_choices, *plan)
    return None if best is None else best[2]


def _apart(servers: Sequence[Server], requests: Sequence[Request], plan: Placement) -> Placement:
    """The plan, but of mates that would all lie on one server the last one elsewhere, if there is room."""
    mates: dict[str, list[Request]] = defaultdict(list)
    for request in requests:
        if request.mates:
            mates[request.mates].append(request)
    for alike in mates.values():
        beside = frozenset[str]().union(*(request.beside for request in alike))
        used = beside | {plan.spots[block.key].node for request in alike for block in request.blocks}
        if len(used) > 1 or not (beside or len(alike) > 1):
            continue
        last = replace(alike[-1], mates="", blocks=tuple(replace(one, avoid=used) for one in alike[-1].blocks))
        moved = {block.key for block in last.blocks}
        others = Placement({key: spot for key, spot in plan.spots.items() if key not in moved})
        elsewhere = place(take(servers, others, requests), [last])
        if isinstance(elsewhere, Placement):
            plan = Placement({**others.spots, **elsewhere.spots})
    return plan


def take(servers: Iterable[Server], placement: Placement, requests: Iterable[Request]) -> tuple[Server, ...]:
    """The servers as they are once ``placement`` of ``requests`` holds its dies."""
    dies = {block.key: block.dies for request in requests for block in request.blocks}
    taken: Counter[str] = Counter()
    for key, spot in placement.spots.items():
        taken[spot.node] += dies[key]
    return holding(servers, taken)


def holding(servers: Iterable[Server], dies: Mapping[str, int]) -> tuple[Server, ...]:
    """The servers with so many more dies held, by name; fewer, if negative."""
    return tuple(server.holding(dies[server.name]) if server.name in dies else server for server in servers)


def _mixes(requests: Sequence[Request]) -> Iterator[tuple[int, list[Chip]]]:
    """Assignments of a chip to every request, those with the fewest second choices first.

    Requests that look alike are interchangeable: only how many of them get their second choice matters.
    """
    kinds: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, request in enumerate(requests):
        if len(request.allowed) > 1:
            shape = tuple(sorted((block.dies, tuple(sorted(block.avoid))) for block in request.blocks))
            kinds[request.role, request.superpod, request.allowed, shape].append(index)
    alike = list(kinds.values())
    for total in range(sum(map(len, alike)) + 1):
        for counts in _split(total, [len(indexes) for indexes in alike]):
            second = {
                index for count, indexes in zip(counts, alike, strict=True) for index in indexes[len(indexes) - count :]
            }
            yield total, [request.allowed[int(index in second)] for index, request in enumerate(requests)]


def _split(total: int, limits: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All ways to write ``total`` as a sum of one number from 0 to each limit."""
    if not limits:
        if total == 0:
            yield ()
        return
    for first in range(max(0, total - sum(limits[1:])), min(total, limits[0]) + 1):
        for rest in _split(total - first, limits[1:]):
            yield first, *rest


def _pack_pools(bins: _Bins, requests: Sequence[Request], chips: Sequence[Chip]) -> tuple[Cost, dict[str, Spot]] | None:
    pools: dict[_Pool, list[Block]] = defaultdict(list)
    for request, chip in zip(requests, chips, strict=True):
        pools[request.superpod, chip].extend(request.blocks)
    cost, spots = Cost(), dict[str, Spot]()
    for (superpod, chip), blocks in pools.items():
        packing = _pack_planes(bins.get((superpod, chip), {}), blocks)
        if packing is None:
            return None
        cost += packing.cost
        spots |= {key: Spot(node, chip) for key, node in packing.servers.items()}
    return cost, spots


def _pack_planes(planes: Mapping[Plane, Sequence[Bin]], blocks: Sequence[Block]) -> Packing | None:
    """The cheapest packing into servers of the fastest planes that hold everything."""
    usable: list[Bin] = []
    for plane in FASTEST_FIRST:
        usable += planes.get(plane, ())
        packing = pack(usable, blocks) if plane in planes else None
        if packing is not None:
            return packing
    return None


def _shortfall(bins: _Bins, requests: Sequence[Request]) -> str:
    """What is missing: the needs that cannot be met even alone, or all of them when only the sum is too much."""
    needs: dict[tuple[str, tuple[Chip, ...]], list[Request]] = defaultdict(list)
    for request in requests:
        needs[request.superpod, request.allowed].append(request)
    alone = {need: asked for need, asked in needs.items() if not _fits(bins, asked)}
    text = "; ".join(_need(bins, *need, asked) for need, asked in (alone or needs).items())
    return text if alone else f"{text}; each fits alone, not all together"


def _fits(bins: _Bins, requests: Sequence[Request]) -> bool:
    mixes = itertools.islice(_mixes(requests), MIXES)
    return any(_pack_pools(bins, requests, chips) is not None for _, chips in mixes)


def _need(bins: _Bins, superpod: str, chips: Sequence[Chip], requests: Sequence[Request]) -> str:
    sizes = Counter(block.dies for request in requests for block in request.blocks)
    wanted = " + ".join(f"{count} x {dies}" for dies, count in sorted(sizes.items(), reverse=True))
    planes = [bins_ for chip in chips for bins_ in bins.get((superpod, chip), {}).values()]
    free = [bin_.free for bins_ in planes for bin_ in bins_]
    return (
        f"needs {wanted} dies of {' or '.join(chips)} in SuperPod {superpod}, "
        f"{sum(free)} free, largest block {max(free, default=0)}"
    )
