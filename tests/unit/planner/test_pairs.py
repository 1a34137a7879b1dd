"""A rollout of several roles, played out step by step: prefill and decode of one pair, or nothing, serve."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdeepserve_operator.api.v1alpha1.base import RoleType
from xdeepserve_operator.planner.pairs import Member, RoleState, objection, useful


def role(name: str, *pairs: str, unavailable: int = 1, replicas: int | None = None, target: str = "new") -> RoleState:
    """A role whose replicas are of these pairs; one in upper case does not serve (yet)."""
    kind: RoleType = "Prefill" if name.startswith("p") else "Decode"
    members = tuple(
        Member(number, pair.lower(), pair.islower(), pair.lower() != target) for number, pair in enumerate(pairs)
    )
    wanted = len(pairs) if replicas is None else replicas
    return RoleState(name, kind, wanted, wanted - unavailable, target, members)


def test_a_replica_is_of_use_while_one_of_the_other_type_serves_in_its_pair() -> None:
    assert useful([role("p", "old", "new"), role("d", "old", "old", "NEW")]) == {"p": 1, "d": 2}
    assert useful([role("p", "old", "new"), role("d", "new", "new")]) == {"p": 1, "d": 2}
    assert useful([role("d", "old", "new", "NEW")]) == {"d": 2}, "alone, it needs no partner"


def test_the_last_partner_stays_until_the_others_can_do_without() -> None:
    prefill = role("p", "old", "new", unavailable=0, replicas=1)
    assert objection([prefill, role("d", "old", "NEW", unavailable=0, replicas=1)], "p", 0) is not None
    assert objection([prefill, role("d", "old", "new", unavailable=0, replicas=1)], "p", 0) is None


def test_what_is_of_no_use_may_go() -> None:
    roles = [role("p", "old", "new", unavailable=0), role("d", "new", "new", unavailable=0)]
    assert objection(roles, "p", 0) is None


def test_a_role_without_the_new_pair_may_begin() -> None:
    assert objection([role("p", "old", "old"), role("d", *["old"] * 7, "NEW")], "p", 1) is None


def test_nobody_runs_ahead() -> None:
    prefill = role("p", "old", "old", "new", replicas=2)
    assert objection([prefill, role("d", *["old"] * 8, "new", replicas=8)], "p", 1) == "d comes first"
    assert objection([prefill, role("d", *["old"] * 5, *["new"] * 3)], "p", 1) is None


def test_a_change_that_pairs_do_not_share_is_nobody_elses_business() -> None:
    same = role("d", "new", "new")
    assert objection([role("p", "new", "new"), same], "d", 0) is None


def play(roles: list[RoleState], surge: int) -> list[dict[str, int]]:
    """Runs a rollout to its end: whoever may leaves and comes back serving, one step at a time; what was of use."""
    roles = [
        replace(one, members=one.members + tuple(Member(one.replicas + s, "new", True) for s in range(surge)))
        for one in roles
    ]
    seen = [useful(roles)]
    for _ in range(100):
        moved = False
        for index, mine in enumerate(roles):
            old = next((one for one in reversed(mine.members) if one.movable), None)
            serving = sum(one.serves for one in mine.members)
            if old is None or serving - 1 < mine.floor or objection(roles, mine.name, old.replica) is not None:
                continue
            roles[index] = mine.without(old.replica)
            seen.append(useful(roles))
            back = Member(old.replica, "new", True)
            roles[index] = replace(roles[index], members=(*roles[index].members, back))
            seen.append(useful(roles))
            moved = True
        if not moved:
            break
    assert not any(one.movable for mine in roles for one in mine.members), "the rollout came to an end"
    return seen


@pytest.mark.parametrize(("prefill", "decode"), [(1, 1), (2, 8), (3, 2), (1, 5), (4, 4)])
def test_with_surge_and_nothing_unavailable_every_role_keeps_its_number_of_use(prefill: int, decode: int) -> None:
    roles = [
        role("p", *["old"] * prefill, unavailable=0),
        role("d", *["old"] * decode, unavailable=0),
    ]
    for counts in play(roles, surge=1):
        assert counts["p"] >= prefill
        assert counts["d"] >= decode


@given(
    sizes=st.lists(st.integers(1, 6), min_size=2, max_size=4),
    unavailable=st.integers(1, 3),
    surge=st.integers(0, 2),
)
def test_every_rollout_ends_and_keeps_every_budget(sizes: list[int], unavailable: int, surge: int) -> None:
    roles = [
        role(f"{'pd'[number % 2]}{number}", *["old"] * size, unavailable=unavailable)
        for number, size in enumerate(sizes)
    ]
    seen = play(roles, surge)
    if all(one.floor > 0 for one in roles):
        assert all(counts[one.name] >= one.floor for counts in seen for one in roles)
