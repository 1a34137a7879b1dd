from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from xdeepserve_operator.planner.packing import Block
from xdeepserve_operator.planner.placement import Placement, Request, holding, place
from xdeepserve_operator.planner.preemption import Holder, victims
from xdeepserve_operator.planner.servers import Server

from .builders import server


def ask(*dies: int) -> list[Request]:
    blocks = tuple(Block(f"b{number}", size) for number, size in enumerate(dies))
    return [Request("Decode", "pod-a", ("910C",), blocks)]


def holder(name: str, dies: int, *, priority: int = 0, node: str = "c0", since: str = "1", replica: int = 0) -> Holder:
    gang, _, role = name.partition("-")
    return Holder(name, replica, "Prefill" if role == "prefill" else "Decode", gang, priority, since, {node: dies})


def names(found: tuple[Holder, ...]) -> list[str]:
    return [one.executor for one in found]


def test_the_lowest_priority_goes_first_and_no_more_than_needed() -> None:
    holders = [holder("mid", 4, priority=5), holder("low", 4, priority=1), holder("high", 8, priority=9)]
    assert names(victims([server("c0", 0)], ask(4), 8, holders)) == ["low"]
    assert names(victims([server("c0", 0)], ask(8), 8, holders)) == ["low", "mid"]


def test_of_equals_the_youngest_goes_first() -> None:
    holders = [holder("old", 4, since="1"), holder("young", 4, since="2")]
    assert names(victims([server("c0", 0)], ask(4), 1, holders)) == ["young"]


def test_an_equal_or_higher_priority_is_never_asked() -> None:
    assert victims([server("c0", 0)], ask(4), 1, [holder("equal", 8, priority=1), holder("high", 8, priority=2)]) == ()


def test_nobody_goes_in_vain() -> None:
    assert victims([server("c0", 0)], ask(16), 9, [holder("low", 8)]) == ()
    assert victims([server("c0", 0)], ask(1), 9, []) == ()


def test_one_whose_dies_do_not_help_is_spared() -> None:
    servers = [server("c0", 0), server("c1", 0)]
    holders = [holder("useless", 2, node="c0", since="9"), holder("useful", 8, node="c1", since="1")]
    assert names(victims(servers, ask(8), 9, holders)) == ["useful"]


def test_a_gang_that_loses_its_last_instance_of_a_type_gives_up_everything() -> None:
    holders = [
        holder("chat-decode", 8, since="2"),
        holder("chat-prefill", 1, node="c1", since="1"),
        holder("other-decode", 1, node="c1", since="1"),
    ]
    assert sorted(names(victims([server("c0", 0)], ask(8), 9, holders))) == ["chat-decode", "chat-prefill"]
    spare = [*holders, holder("chat-decode", 8, node="c1", since="1", replica=1)]
    assert names(victims([server("c0", 0)], ask(8), 9, spare)) == ["chat-decode"]
    another_role = [*holders, holder("chat-long", 8, node="c1", since="1")]
    assert names(victims([server("c0", 0)], ask(8), 9, another_role)) == ["chat-decode"]


@settings(max_examples=60)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1, 2, 4, 8]), st.integers(0, 3)), max_size=10),
    wanted=st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=1, max_size=3),
)
def test_what_is_chosen_makes_room_and_each_one_is_needed(sizes: list[tuple[int, int, int]], wanted: list[int]) -> None:
    used: Counter[str] = Counter()
    holders: list[Holder] = []
    for number, (node, dies, priority) in enumerate(sizes):
        if used[f"c{node}"] + dies <= 16:
            used[f"c{node}"] += dies
            holders.append(holder(f"g{number}", dies, priority=priority, node=f"c{node}"))
    servers: list[Server] = [server(f"c{number}", 16 - used[f"c{number}"]) for number in range(4)]
    if isinstance(place(servers, ask(*wanted)), Placement):
        return
    chosen = victims(servers, ask(*wanted), 2, holders)

    def fits(gone: tuple[Holder, ...]) -> bool:
        freed: Counter[str] = Counter()
        for one in gone:
            freed.subtract(one.dies)
        return isinstance(place(holding(servers, freed), ask(*wanted)), Placement)

    assert all(one.priority < 2 for one in chosen)
    assert fits(chosen) or not fits(tuple(one for one in holders if one.priority < 2))
    for one in chosen:
        assert not fits(tuple(other for other in chosen if other is not one))
