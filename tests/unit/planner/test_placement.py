import itertools
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xdeepserve_operator.api.v1alpha1.base import Chip, RoleType
from xdeepserve_operator.planner.packing import Block
from xdeepserve_operator.planner.placement import Placement, Request, Shortfall, place, take
from xdeepserve_operator.planner.servers import Server

from .builders import server


def ask(
    name: str, *dies: int, role: RoleType = "Decode", chips: tuple[Chip, ...] = ("910C",), pod: str = "pod-a"
) -> Request:
    return Request(role, pod, chips, tuple(Block(f"{name}-{number}", size) for number, size in enumerate(dies)))


def prefill(name: str, *dies: int, chips: tuple[Chip, ...] = ("910B", "910C")) -> Request:
    return ask(name, *dies, role="Prefill", chips=chips)


def placed(servers: list[Server], *requests: Request) -> dict[str, str]:
    plan = place(servers, requests)
    assert isinstance(plan, Placement), plan
    return {key: spot.node for key, spot in plan.spots.items()}


def shortfall(servers: list[Server], *requests: Request) -> str:
    plan = place(servers, requests)
    assert isinstance(plan, Shortfall), plan
    return plan.message


def test_decode_goes_to_910c_whatever_is_asked() -> None:
    servers = [server("b", 8, chip="910B"), server("c", 16)]
    assert placed(servers, ask("d", 1, chips=("910B", "910C"))) == {"d-0": "c"}
    assert "Decode runs on 910C only" in shortfall(servers, ask("d", 1, chips=("910B",)))


def test_an_instance_stays_in_its_superpod() -> None:
    servers = [server("here", 1), server("there", 16, pod="pod-b")]
    assert placed(servers, ask("d", 1)) == {"d-0": "here"}
    assert placed(servers, ask("d", 1, pod="pod-b")) == {"d-0": "there"}
    assert "in SuperPod pod-a, 1 free" in shortfall(servers, ask("d", 2))


def test_prefill_takes_its_first_choice_and_then_its_second() -> None:
    servers = [server("b", 8, chip="910B"), server("c", 16)]
    assert placed(servers, prefill("p", 4)) == {"p-0": "b"}
    assert placed(servers, prefill("p", 4, chips=("910C", "910B"))) == {"p-0": "c"}
    assert placed(servers, prefill("p", 16)) == {"p-0": "c"}


def test_an_instance_never_mixes_chips() -> None:
    servers = [server("b", 3, chip="910B"), server("c", 3)]
    assert "needs 2 x 2 dies of 910B or 910C" in shortfall(servers, prefill("p", 2, 2))


def test_prefill_gives_way_to_decode() -> None:
    servers = [server("b", 8, chip="910B"), server("c", 4)]
    plan = placed(servers, prefill("p", 4, chips=("910C", "910B")), ask("d", 4))
    assert plan == {"p-0": "b", "d-0": "c"}


def test_as_many_as_possible_get_their_first_choice() -> None:
    servers = [server("b", 2, chip="910B"), server("c", 16)]
    plan = placed(servers, *(prefill(f"p{number}", 1) for number in range(3)))
    assert sorted(plan.values()) == ["b", "b", "c"]


def test_all_or_nothing() -> None:
    servers = [server("c", 16)]
    assert isinstance(place(servers, [ask("a", 8), ask("b", 16)]), Shortfall)


def test_nothing_to_place_is_placed() -> None:
    assert place([], []) == Placement({})


def test_kv_crosses_the_fastest_plane_that_has_room_for_all() -> None:
    servers = [server("vpc", 4, plane="VPC"), server("roce", 8, plane="RoCE"), server("ub", 16, plane="UB")]
    assert placed(servers, ask("d", 2)) == {"d-0": "ub"}, "though a server in use would fit more tightly"
    assert placed(servers, ask("d", 8, 8)).keys() == {"d-0", "d-1"}
    assert set(placed(servers, ask("d", 8, 8)).values()) == {"ub"}
    assert "vpc" not in placed(servers, ask("d", 8, 8, 4, 4)).values()
    assert set(placed(servers, ask("d", 8, 8, 8, 4)).values()) == {"ub", "roce", "vpc"}


def test_the_plane_of_a_server_is_the_one_its_pool_prefers() -> None:
    servers = [server("b-vpc", 8, chip="910B", plane="VPC"), server("b-roce", 8, chip="910B", plane="RoCE")]
    assert placed(servers, prefill("p", 1)) == {"p-0": "b-roce"}
    assert placed([*servers, server("c", 16, plane="UB")], prefill("p", 1)) == {"p-0": "b-roce"}, "the chip comes first"


def mates(name: str, *dies: int, beside: set[str] | None = None) -> Request:
    return replace(ask(name, *dies), mates="te", beside=frozenset(beside or ()))


def test_instances_that_stand_in_for_each_other_are_not_all_on_one_server() -> None:
    servers = [server(name, 16) for name in ("a", "b", "c")]
    first = placed(servers, *(mates(f"d{number}", 4) for number in range(4)))
    assert len(set(first.values())) == 2, "two servers are enough, the third stays whole"
    assert placed(servers[:2], mates("d1", 4, beside={"a"})) == {"d1-0": "b"}
    assert placed([server("a", 4), server("b", 16)], mates("d2", 4, beside={"a", "b"})) == {"d2-0": "a"}
    assert placed(servers[:1], mates("d0", 4), mates("d1", 4)) == {"d0-0": "a", "d1-0": "a"}, "where there is no other"
    assert set(placed(servers, ask("x", 4), ask("y", 4)).values()) == {"a"}, "strangers may share"


@pytest.mark.parametrize(
    ("servers", "requests", "message"),
    [
        (
            [server("a", 8), server("b", 8), server("c", 4)],
            [ask("d", 16, 16)],
            "needs 2 x 16 dies of 910C in SuperPod pod-a, 20 free, largest block 8",
        ),
        ([], [ask("d", 1)], "needs 1 x 1 dies of 910C in SuperPod pod-a, 0 free, largest block 0"),
        (
            [server("a", 16)],
            [ask("d", 2, 1, 1), ask("e", 16)],
            "needs 1 x 16 + 1 x 2 + 2 x 1 dies of 910C in SuperPod pod-a, 16 free, largest block 16",
        ),
        (
            [server("b", 8, chip="910B"), server("c", 2)],
            [prefill("p", 16), ask("d", 1)],
            "needs 1 x 16 dies of 910B or 910C in SuperPod pod-a, 10 free, largest block 8",
        ),
        (
            [server("c", 4)],
            [prefill("p", 3), ask("d", 3)],
            "needs 1 x 3 dies of 910B or 910C in SuperPod pod-a, 4 free, largest block 4; "
            "needs 1 x 3 dies of 910C in SuperPod pod-a, 4 free, largest block 4; each fits alone, not all together",
        ),
    ],
)
def test_the_message_says_what_is_missing(servers: list[Server], requests: list[Request], message: str) -> None:
    assert shortfall(servers, *requests) == message


def test_a_plan_that_was_taken_leaves_the_rest() -> None:
    servers = (server("a", 16), server("b", 16))
    request = ask("d", 8, 4)
    plan = place(servers, [request])
    assert isinstance(plan, Placement)
    assert sum(one.free for one in take(servers, plan, [request])) == 20


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Server], list[Request]]:
    """A few servers of both chips, a few instances of both roles."""
    servers = [
        server(f"s{number}", draw(st.integers(0, 4)), chip=draw(st.sampled_from(["910B", "910C"])), capacity=4)
        for number in range(draw(st.integers(1, 4)))
    ]
    requests = []
    for number in range(draw(st.integers(1, 3))):
        dies = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=2))
        if draw(st.booleans()):
            requests.append(ask(f"d{number}", *dies))
        else:
            chips: list[tuple[Chip, ...]] = [("910B",), ("910C",), ("910B", "910C"), ("910C", "910B")]
            requests.append(prefill(f"p{number}", *dies, chips=draw(st.sampled_from(chips))))
    return servers, requests


def score(servers: list[Server], requests: list[Request], nodes: dict[str, str]) -> tuple[int, int] | None:
    """(second choices, whole servers opened) of a plan, None when it breaks a rule."""
    by_name = {one.name: one for one in servers}
    left = {one.name: one.free for one in servers}
    second = 0
    for request in requests:
        chips = {by_name[nodes[block.key]].chip for block in request.blocks}
        if len(chips) != 1:
            return None
        chip = chips.pop()
        if chip not in request.chips or (request.role == "Decode" and chip != "910C"):
            return None
        second += request.chips.index(chip)
        for block in request.blocks:
            left[nodes[block.key]] -= block.dies
    if min(left.values()) < 0:
        return None
    return second, len({name for name in nodes.values() if by_name[name].used == 0})


@settings(deadline=None)
@given(problems())
def test_never_worse_than_an_exhaustive_search(problem: tuple[list[Server], list[Request]]) -> None:
    servers, requests = problem
    keys = [block.key for request in requests for block in request.blocks]
    names = [one.name for one in servers]
    every = (dict(zip(keys, choice, strict=True)) for choice in itertools.product(names, repeat=len(keys)))
    best = min((found for plan in every if (found := score(servers, requests, plan)) is not None), default=None)
    plan = place(servers, requests)
    assert isinstance(plan, Placement) == (best is not None)
    if isinstance(plan, Placement):
        assert score(servers, requests, {key: spot.node for key, spot in plan.spots.items()}) == best


def test_twelve_gangs_fill_a_superpod_in_50_ms() -> None:
    servers: tuple[Server, ...] = tuple(server(f"s{number:02}", 16) for number in range(48))
    gangs = [[ask(f"g{gang}", *[1] * 48), ask(f"h{gang}", *[4] * 4)] for gang in range(12)]

    def plan_all() -> float:
        left, began = servers, time.perf_counter()
        for requests in gangs:
            plan = place(left, requests)
            assert isinstance(plan, Placement)
            left = take(left, plan, requests)
        assert sum(one.free for one in left) == 0
        return time.perf_counter() - began

    assert min(plan_all() for _ in range(5)) < 0.05
