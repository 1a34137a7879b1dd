from dataclasses import replace

from xdeepserve_operator.api import names
from xdeepserve_operator.planner.packing import Block
from xdeepserve_operator.planner.pods import PodView
from xdeepserve_operator.planner.warm import donor, engaged, fill, next_number, spare, superfluous, waiting

from .builders import group, pod_view

CHIPS = {"n0": "910C", "n1": "910C", "b0": "910B"}


def warm(number: int, node: str = "n0", revision: str = "r1", dies: int = 1) -> PodView:
    view = pod_view(name=f"te-warm-{number}")
    return replace(
        view, component=names.COMPONENT_WARM, group="", node=node, revision=revision, dies_requested=dies, started=True
    )


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
