from typing import Any

from xdeepserve_operator.planner.scaling import Decision
from xdeepserve_operator.planner.scaling_status import HISTORY, foreign, scaling_status

from .builders import NOW


def policy(status: dict[str, Any] | None = None, generation: int = 1) -> dict[str, Any]:
    return {"metadata": {"generation": generation}, "status": status or {}}


def decision(before: int, after: int, *, score: int = 100, reason: Any = "Load", message: str = "busy") -> Decision:
    return Decision("decode", before, after, score, reason, message)


def written(*decisions: Decision, onto: dict[str, Any] | None = None, active: bool = True) -> dict[str, Any]:
    return scaling_status(policy(onto), decisions, active=active, now=NOW)


def test_a_change_is_announced_before_it_is_made_and_settled_when_seen() -> None:
    announced = written(decision(2, 3))
    role = announced["roles"][0]
    assert (role["replicas"], role["desired"], role["scaledFrom"], role["scaledTo"]) == (2, 3, 2, 3)
    assert announced["summary"] == "decode 2->3"
    settled = written(decision(3, 3, reason="Steady"), onto=announced)["roles"][0]
    assert (settled["scaledFrom"], settled["scaledTo"]) == (3, 3)


def test_only_a_number_that_is_not_its_own_is_foreign() -> None:
    announced = written(decision(2, 3))
    assert foreign(policy(announced), {"decode": 2}) == frozenset(), "a crash cut the change off"
    assert foreign(policy(announced), {"decode": 3}) == frozenset()
    assert foreign(policy(announced), {"decode": 5}) == {"decode"}
    settled = written(decision(3, 3), onto=announced)
    assert foreign(policy(settled), {"decode": 2}) == {"decode"}, "taken back by hand"
    assert foreign(policy(), {"decode": 7}) == frozenset(), "the first look takes what there is"


def test_foreign_stays_until_the_policy_is_edited() -> None:
    left = written(decision(5, 5, reason="ScaledByUser"))
    assert foreign(policy(left), {"decode": 5}) == {"decode"}
    assert foreign(policy(left), {"decode": 3}) == {"decode"}
    assert foreign(policy(left, generation=2), {"decode": 3}) == frozenset()


def test_history_tells_changes_the_newest_first_and_not_too_many() -> None:
    status: dict[str, Any] = {}
    for count in range(1, 15):
        status = written(decision(count, count + 1), onto=status)
    assert len(status["history"]) == HISTORY
    assert (status["history"][0]["before"], status["history"][0]["after"]) == (14, 15)


def test_an_advice_is_told_once() -> None:
    first = written(decision(1, 3), active=False)
    again = written(decision(1, 3), onto=first, active=False)
    assert len(again["history"]) == 1
    assert again["roles"][0]["scaledTo"] == 1, "nothing was changed"


def test_small_changes_of_the_figures_write_nothing() -> None:
    first = written(decision(2, 2, score=100, reason="Steady", message="8 run"))
    assert written(decision(2, 2, score=110, reason="Steady", message="9 run"), onto=first) == first
    assert written(decision(2, 2, score=120, reason="Steady", message="9 run"), onto=first) != first
