from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from xdeepserve_operator.api import names
from xdeepserve_operator.planner.packing import Block
from xdeepserve_operator.planner.placement import Placement, Request, place
from xdeepserve_operator.planner.pods import PodView
from xdeepserve_operator.planner.room import without
from xdeepserve_operator.planner.warm import (
    Idle,
    donor,
    engaged,
    fill,
    give_way,
    idle,
    next_number,
    spare,
    superfluous,
    waiting,
)

from .builders import group, pod_view, server

CHIPS = {"n0": "910C", "n1": "910C", "b0": "910B"}


def warm(number: int, node: str = "n0", revision: str = "r1", dies: int = 1) -> PodView:
    view = pod_view(name=f"te-warm-{number}")
    return replace(
        view, component=names.COMPONENT_WARM, group="", node=node, revision=revision, dies_requested=dies, started=True
    )


def ask(*dies: int) -> list[Request]:
    return [Request("Decode", "pod-a", ("910C",), tuple(Block(f"b{n}", size) for n, size in enumerate(dies)))]


def idling(name: str, dies: int = 1, node: str = "n0", priority: int = 0, *, started: bool = True) -> Idle:
    return Idle("default", name, priority, started, {node: dies})


def going(free: dict[str, int], wanted: list[Request], *engines: Idle) -> list[str] | None:
    found = give_way([server(name, dies) for name, dies in free.items()], wanted, engines)
    return None if found is None else [one.name for one in found]


def test_only_what_runs_and_is_to_stay_can_be_assigned() -> None:
    good = warm(0)
    others = [
        replace(warm(1), started=False),
        replace(warm(2), terminating=True),
        replace(warm(3), ip=""),
        replace(warm(4), component=names.COMPONENT_ENGINE),
    ]
    assert waiting([*others, good]) == [good]


def test_groups_without_a_pod_get_the_engines_on_their_servers_whoever_asks() -> None:
    pods = [warm(1, "n1"), warm(0), warm(2)]
    groups = [group(1), group(0), group(2, node="n1"), group(3, node="n1"), group(4, revision="r0")]
    found = {name: pod.name for name, pod in engaged(groups, pods).items()}
    assert found == {"te-0-dp0": "te-warm-0", "te-0-dp1": "te-warm-2", "te-0-dp2": "te-warm-1"}
    assert {name: pod.name for name, pod in engaged(groups[::-1], pods[::-1]).items()} == found
    assert spare(groups, pods) == []


def test_a_group_that_has_its_pod_asks_for_none() -> None:
    assert engaged([group(0)], [warm(0), pod_view(name="te-0-dp0-0")]) == {}
    assert list(engaged([group(0, attempt=1)], [warm(0), pod_view(name="te-0-dp0-0")])) == ["te-0-dp0"]


def test_an_instance_is_filled_on_one_chip_the_first_that_has_any() -> None:
    blocks = [Block("a", 1), Block("b", 1)]
    mixed = [warm(0, "b0"), warm(1, "n0")]
    assert fill(blocks, "r1", ("910B", "910C"), mixed, CHIPS) == {"a": mixed[0]}
    assert fill(blocks, "r1", ("910C",), mixed, CHIPS) == {"a": mixed[1]}
    assert fill(blocks, "r2", ("910C",), mixed, CHIPS) == {}, "another revision fits nobody"
    assert fill([Block("a", 2)], "r1", ("910C",), mixed, CHIPS) == {}
    assert fill(blocks, "r1", ("910C",), [warm(0, "lost")], CHIPS) == {}


def test_a_server_that_is_better_avoided_comes_last() -> None:
    spares = [warm(0, "n0"), warm(1, "n1")]
    assert fill([Block("a", 1, frozenset({"n0"}))], "r1", ("910C",), spares, CHIPS) == {"a": spares[1]}
    assert fill([Block("a", 1, frozenset({"n0"}))], "r1", ("910C",), spares[:1], CHIPS) == {"a": spares[0]}


def test_old_broken_and_too_many_go_the_unready_first() -> None:
    starting = replace(warm(1), started=False)
    pods = [warm(0, revision="r0"), replace(warm(3), phase="Failed"), starting, warm(2), warm(4)]
    assert [pod.name for pod in superfluous(pods, "r1", 2)] == ["te-warm-0", "te-warm-3", "te-warm-1"]
    assert superfluous([replace(warm(0), terminating=True)], "r1", 0) == []


def test_numbers_are_never_given_twice() -> None:
    became = replace(warm(7), component=names.COMPONENT_ENGINE, group="te-0-dp0")
    assert next_number([warm(3), became, pod_view(name="te-0-dp0-9")]) == 8
    assert next_number([]) == 0


def test_weights_come_from_an_engine_of_the_same_revision_that_serves() -> None:
    def engine(name: str, ip: str) -> PodView:
        view = pod_view(name=name)
        return replace(view, component=names.COMPONENT_ENGINE, revision="r1", ready=True, ip=ip)

    pods = [engine("te-0-dp0-0", "127.1.0.1"), engine("te-0-dp1-0", "127.1.0.2")]
    assert [donor(group(index, replica=1), pods) for index in range(3)] == ["127.1.0.1", "127.1.0.2", "127.1.0.1"]
    useless = [replace(pods[0], ready=False), replace(pods[1], revision="r0"), warm(0)]
    assert donor(group(0, replica=1), useless) == ""


def test_what_could_give_way_is_every_engine_without_a_group_listening_or_not() -> None:
    starting = replace(warm(1), started=False, ip="", node="", server="n1")
    pods = [warm(0), starting, warm(2), replace(warm(3), terminating=True), pod_view(name="te-0-dp9-0")]
    found = idle([group(0)], pods, priority=3)
    assert [(one.name, one.priority, one.dies) for one in found] == [
        ("te-warm-1", 3, {"n1": 1}),
        ("te-warm-2", 3, {"n0": 1}),
    ]


def test_no_more_engines_give_way_than_make_room() -> None:
    engines = [idling(name) for name in "abc"]
    assert going({"n0": 0}, ask(1), *engines) == ["a"]
    assert going({"n0": 1}, ask(1, 1, 1), *engines) == ["a", "b"]
    assert going({"n0": 1}, ask(4), *engines) == ["a", "b", "c"]


def test_none_gives_way_where_there_is_room_or_will_be_none_anyhow() -> None:
    assert going({"n0": 1}, ask(1), idling("a")) == []
    assert going({"n0": 0}, ask(3), idling("a"), idling("b")) is None
    assert going({"n0": 0}, ask(1)) is None


def test_the_lowest_priority_gives_way_first() -> None:
    assert going({"n0": 0}, ask(1), idling("a", priority=2), idling("b", priority=1)) == ["b"]
    assert going({"n0": 0}, ask(2), idling("a", priority=2), idling("b", priority=1)) == ["b", "a"]


def test_one_whose_dies_do_not_help_stays_whatever_its_priority() -> None:
    assert going({"n0": 0, "n1": 0}, ask(2), idling("low", 1, "n1"), idling("high", 2, "n0", priority=9)) == ["high"]


def test_of_equals_those_go_that_are_where_the_placement_wants_to_be() -> None:
    engines = [idling("a", 4, "n0"), idling("b", 4, "n1")]
    assert going({"n0": 4, "n1": 0}, ask(4, 4), *engines) == ["a"]
    assert going({"n0": 4, "n1": 0}, ask(8), *reversed(engines)) == ["a"]
    assert going({"n0": 0, "n1": 2}, ask(4), *engines) == ["a"], "best fit leaves the fewest dies free"


def test_of_equals_on_a_server_one_that_still_starts_goes() -> None:
    assert going({"n0": 0}, ask(1), idling("a"), idling("b", started=False)) == ["b"]


@settings(max_examples=60)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1, 2, 4, 8]), st.integers(0, 2)), max_size=8),
    free=st.lists(st.integers(0, 3), min_size=4, max_size=4),
    wanted=st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=3),
)
def test_who_gives_way_makes_room_and_each_is_needed(
    sizes: list[tuple[int, int, int]], free: list[int], wanted: list[int]
) -> None:
    used, engines = dict.fromkeys(range(4), 0), list[Idle]()
    for number, (node, dies, priority) in enumerate(sizes):
        if used[node] + free[node] + dies <= 16:
            used[node] += dies
            engines.append(idling(f"e{number}", dies, f"n{node}", priority))
    servers = [server(f"n{number}", left) for number, left in enumerate(free)]

    def fit(gone: list[Idle]) -> bool:
        return isinstance(place(without(servers, gone), ask(*wanted)), Placement)

    found = give_way(servers, ask(*wanted), engines)
    assert (found is None) is not fit(engines)
    chosen = list(found or ())
    assert fit(chosen) or found is None
    assert not any(fit([other for other in chosen if other is not one]) for one in chosen)
