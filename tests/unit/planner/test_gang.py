from dataclasses import replace

from xdeepserve_operator.planner.gang import Admission, Candidate, Waiting, admit, units
from xdeepserve_operator.planner.packing import Block
from xdeepserve_operator.planner.placement import Request
from xdeepserve_operator.planner.warm import Idle

from .builders import server


def candidate(
    key: str, *missing: int, gang: str = "", members: int = 1, created: str = "1", begun: bool = False, replica: int = 0
) -> Candidate:
    """A TaskExecutor that misses one instance a number in ``missing``, of that many dies."""
    requests = {
        replica + number: Request("Decode", "pod-a", ("910C",), (Block(f"{key}-{replica + number}", dies),))
        for number, dies in enumerate(missing)
    }
    return Candidate(key, created, gang or key, members, begun, requests)


def order(*candidates: Candidate) -> list[list[tuple[str, int]]]:
    return [list(unit.requests) for unit in units(candidates)[0]]


def test_nothing_placed_yet_means_everything_at_once() -> None:
    prefill, decode = (candidate(key, 1, 1, gang="chat", members=2) for key in ("p", "d"))
    assert order(prefill, decode) == [[("d", 0), ("d", 1), ("p", 0), ("p", 1)]]


def test_a_gang_waits_for_its_members() -> None:
    alone = candidate("p", 1, gang="chat", members=2)
    assert order(alone) == []
    result = admit([server("c", 16)], [alone], "chat")
    assert result.admitted == ()
    assert result.waiting == {("p", 0): Waiting("gang has 1 of 2 TaskExecutors", "Placing")}


def test_afterwards_each_replica_goes_by_itself() -> None:
    begun = candidate("d", 1, 1, gang="chat", members=2, begun=True)
    other = candidate("p", 1, gang="chat", members=2)
    assert order(begun, other) == [[("d", 0)], [("d", 1)], [("p", 0)]]
    result = admit([server("c", 1)], [begun, other], "chat")
    assert len(result.admitted) == 1
    assert set(result.waiting) == {("d", 1), ("p", 0)}


def test_the_older_goes_first_then_the_name() -> None:
    assert order(candidate("b", 1, created="2"), candidate("c", 1), candidate("a", 1)) == [
        [("a", 0)],
        [("c", 0)],
        [("b", 0)],
    ]


def test_what_has_begun_is_finished_before_anything_new_begins() -> None:
    old, crashed = candidate("old", 8, created="1"), candidate("crashed", 8, created="2", begun=True)
    servers = [server("c", 8)]
    assert admit(servers, [old, crashed], "old").admitted == ()
    assert len(admit(servers, [old, crashed], "crashed").admitted) == 1


def test_two_gangs_that_fit_only_alone_never_split_the_room() -> None:
    servers = [server("c", 4)]
    gangs = [candidate(f"{gang}{member}", 2, gang=gang, members=2) for gang in "ab" for member in "xy"]
    results = {gang: admit(servers, gangs, gang) for gang in "ab"}
    assert [sum(len(plan.spots) for plan in results[gang].admitted) for gang in "ab"] == [2, 0]
    assert set(results["b"].waiting) == {("bx", 0), ("by", 0)}


def test_a_gang_that_does_not_fit_leaves_its_room_to_the_next() -> None:
    big, small = candidate("big", 16, created="1"), candidate("small", 2, created="2")
    servers = [server("c", 8)]
    assert len(admit(servers, [big, small], "small").admitted) == 1
    assert "needs 1 x 16 dies" in admit(servers, [big, small], "big").waiting["big", 0].message


def test_a_gang_without_replicas_asks_for_nothing() -> None:
    result = admit([server("c", 8)], [candidate("idle")], "idle")
    assert (result.admitted, result.waiting) == ((), {})


def test_a_higher_priority_goes_before_the_older_and_before_what_has_begun() -> None:
    high = replace(candidate("high", 8, created="9"), priority=5)
    assert order(candidate("old", 8), candidate("begun", 8, begun=True), high) == [
        [("high", 0)],
        [("begun", 0)],
        [("old", 0)],
    ]


def test_room_that_comes_free_is_kept_for_who_waits_for_it() -> None:
    high, low = replace(candidate("high", 8), priority=5), candidate("low", 4)
    servers = [server("c", 4)]
    assert len(admit(servers, [high, low], "low").admitted) == 1, "nothing leaves: no reason to wait"
    assert admit(servers, [high, low], "low", {"c": 4}).admitted == ()
    result = admit(servers, [high, low], "high", {"c": 4})
    assert result.short == ()
    assert "instances that leave make room" in result.waiting["high", 0].message


def test_what_will_not_fit_anyhow_is_short_and_tells_what_is_left_for_it() -> None:
    high, big = replace(candidate("high", 4), priority=5), candidate("big", 16)
    result = admit([server("c", 8)], [high, big], "big", {"c": 4})
    ((unit, left),) = result.short
    assert (unit.gang, [one.free for one in left]) == ("big", [8])


def test_a_gang_that_rests_is_not_considered() -> None:
    rest = Waiting("gave its dies back", "GaveBack")
    tired = replace(candidate("p", 1, gang="chat", members=2), resting=rest)
    mate = candidate("d", 1, gang="chat", members=2)
    assert order(tired, mate) == []
    assert admit([server("c", 8)], [tired, mate], "chat").waiting == {("p", 0): rest, ("d", 0): rest}


def test_a_gang_begins_anew_when_all_of_its_last_life_is_gone() -> None:
    prefill = candidate("p", 1, gang="chat", members=2)
    decode = replace(candidate("d", gang="chat", members=2), ending=True)
    result = admit([server("c", 16)], [prefill, decode], "chat")
    assert result.admitted == ()
    assert result.waiting == {("p", 0): Waiting("old instances of the gang are ending", "Placing")}


def engine(name: str, dies: int = 1) -> Idle:
    return Idle("default", name, 0, True, {"c": dies})


def leaving(result: Admission) -> list[str]:
    return [one.name for one in result.going]


def test_warm_engines_give_way_when_what_leaves_anyhow_is_not_enough() -> None:
    servers, gang = [server("c", 0)], candidate("te", 2)
    engines = [engine(name) for name in "abc"]
    enough = admit(servers, [gang], "te", {"c": 2}, engines)
    assert leaving(enough) == []
    assert "instances that leave make room" in enough.waiting["te", 0].message
    result = admit(servers, [gang], "te", {"c": 1}, engines)
    assert leaving(result) == ["a"]
    assert result.short == ()
    assert result.waiting["te", 0].message.endswith("; engines that wait give way")


def test_each_gang_lets_its_own_engines_go() -> None:
    gangs = [candidate("first", 1, created="1"), candidate("second", 1, created="2")]
    results = [admit([server("c", 0)], gangs, gang, None, [engine("a"), engine("b")]) for gang in ("first", "second")]
    assert [leaving(one) for one in results] == [["a"], ["b"]]


def test_no_engine_goes_for_a_gang_that_does_not_fit_even_so() -> None:
    result = admit([server("c", 2)], [candidate("big", 16)], "big", {"c": 4}, [engine("a", 8)])
    assert leaving(result) == []
    ((_, left),) = result.short
    assert [one.free for one in left] == [14], "preemption may count on them"


def test_an_engine_that_is_to_become_part_of_an_instance_is_nobody_elses() -> None:
    begun = replace(candidate("a", 1, begun=True), engines={0: frozenset({("default", "a-warm-0")})})
    other = candidate("b", 1)
    engines = [engine("a-warm-0"), engine("b-warm-0")]
    assert leaving(admit([server("c", 1)], [begun, other], "b", None, engines)) == ["b-warm-0"]
    alone = admit([server("c", 1)], [begun, other], "b", None, engines[:1])
    assert (leaving(alone), len(alone.short)) == ([], 1)
    hopeless = replace(begun, missing=candidate("a", 16).missing)
    assert leaving(admit([server("c", 0)], [hopeless, other], "b", None, engines[:1])) == ["a-warm-0"]
    ((_, left),) = admit([server("c", 0)], [hopeless, other], "a", None, engines).short
    assert [one.free for one in left] == [1], "preemption makes room beside what it has"
