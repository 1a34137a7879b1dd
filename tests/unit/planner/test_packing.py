"""The packer against all packings there are."""

import itertools
import time
from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from xdeepserve_operator.planner.packing import Bin, Block, Cost, fewest_opened, pack

SIZES = st.sampled_from([1, 2, 3, 4, 5, 8])


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Bin], list[Block]]:
    """Up to four servers and five blocks, some of which would rather avoid a server."""
    bins = []
    for number in range(draw(st.integers(1, 4))):
        whole = draw(st.booleans())
        bins.append(Bin(f"s{number}", 8 if whole else draw(st.integers(0, 7)), whole))
    names = [bin_.name for bin_ in bins]
    blocks = [
        Block(f"b{number}", draw(SIZES), frozenset(draw(st.lists(st.sampled_from(names), max_size=1))))
        for number in range(draw(st.integers(1, 5)))
    ]
    return bins, blocks


def cost_of(bins: Sequence[Bin], blocks: Sequence[Block], servers: dict[str, str]) -> Cost:
    whole = {bin_.name for bin_ in bins if bin_.whole}
    avoided = sum(servers[block.key] in block.avoid for block in blocks)
    return Cost(avoided, len(whole & set(servers.values())))


def fits(bins: Sequence[Bin], blocks: Sequence[Block], servers: dict[str, str]) -> bool:
    used = Counter[str]()
    for block in blocks:
        used[servers[block.key]] += block.dies
    return all(used[bin_.name] <= bin_.free for bin_ in bins)


def cheapest(bins: Sequence[Bin], blocks: Sequence[Block]) -> Cost | None:
    """The best of all ways to put the blocks on the servers."""
    best: Cost | None = None
    for choice in itertools.product([bin_.name for bin_ in bins], repeat=len(blocks)):
        servers = {block.key: name for block, name in zip(blocks, choice, strict=True)}
        if fits(bins, blocks, servers):
            cost = cost_of(bins, blocks, servers)
            best = cost if best is None or cost < best else best
    return best


@settings(deadline=None)
@given(problems())
def test_never_worse_than_an_exhaustive_search(problem: tuple[list[Bin], list[Block]]) -> None:
    bins, blocks = problem
    best = cheapest(bins, blocks)
    packing = pack(bins, blocks)
    assert (packing is None) == (best is None)
    if packing is not None:
        assert set(packing.servers) == {block.key for block in blocks}, "all blocks, each on one server"
        assert fits(bins, blocks, packing.servers), "never over capacity"
        assert packing.cost == cost_of(bins, blocks, packing.servers) == best


@settings(deadline=None)
@given(problems())
def test_no_packing_opens_fewer_servers_than_the_bound(problem: tuple[list[Bin], list[Block]]) -> None:
    bins, blocks = problem
    best = cheapest(bins, [Block(block.key, block.dies) for block in blocks])
    if best is not None:
        assert fewest_opened(bins, blocks) <= best.opened


@settings(deadline=None)
@given(problems())
def test_the_same_problem_has_the_same_answer_in_any_order(problem: tuple[list[Bin], list[Block]]) -> None:
    bins, blocks = problem
    assert pack(bins, blocks) == pack(bins[::-1], blocks[::-1])


def test_whole_servers_stay_whole() -> None:
    bins = [Bin("whole", 16, True), Bin("used", 5, False), Bin("busy", 2, False)]
    packing = pack(bins, [Block("a", 2), Block("b", 4)])
    assert packing is not None
    assert packing.servers == {"a": "busy", "b": "used"}


def test_an_avoided_server_is_taken_only_when_no_other_fits() -> None:
    block = Block("a", 4, frozenset({"bad"}))
    assert pack([Bin("bad", 4, False), Bin("good", 16, True)], [block]).servers == {"a": "good"}  # type: ignore[union-attr]
    assert pack([Bin("bad", 4, False), Bin("small", 3, False)], [block]).servers == {"a": "bad"}  # type: ignore[union-attr]


def test_no_blocks_fit_anywhere_and_none_fit_nowhere() -> None:
    assert pack([], []) is not None
    assert pack([], [Block("a", 1)]) is None


def test_a_superpods_worth_of_blocks_is_quick() -> None:
    bins = [Bin(f"s{number:02}", 16, True) for number in range(48)]
    blocks = [Block(f"b{number:03}", 1) for number in range(768)]
    began = time.perf_counter()
    packing = pack(bins, blocks)
    assert packing is not None
    assert packing.cost == Cost(0, 48)
    assert time.perf_counter() - began < 0.5, "an order of magnitude above what it takes"


def test_a_hopeless_search_ends() -> None:
    bins = [Bin(f"s{number:02}", 7, True) for number in range(40)]
    blocks = [Block(f"b{number:03}", size) for number, size in enumerate([3, 4, 5, 6] * 15)]
    began = time.perf_counter()
    pack(bins, blocks)
    assert time.perf_counter() - began < 2.0
