from hypothesis import given
from hypothesis import strategies as st

from xdeepserve_operator.api.v1alpha1.scaling import ScalingBehavior, ScalingStep
from xdeepserve_operator.planner.scaling_pace import Memory, paced


def pace(up: int = 0, down: int = 60, *, step: int = 10, period: int = 0) -> ScalingBehavior:
    """Windows in seconds, and one step and period for both directions."""
    return ScalingBehavior(
        up=ScalingStep(window_seconds=up, max_step=step, period_seconds=period),
        down=ScalingStep(window_seconds=down, max_step=step, period_seconds=period),
    )


def follow(behavior: ScalingBehavior, *wishes: int, start: int = 1, every: float = 10.0) -> list[int]:
    """Instances after each of these wishes."""
    memory, current, seen = Memory(), start, []
    for number, wish in enumerate(wishes):
        now = number * every
        memory = memory.wish(now, wish, current, behavior)
        after = paced(memory, current, behavior, now)
        if after != current:
            memory = memory.stepped(now, up=after > current)
        current = after
        seen.append(current)
    return seen


def test_up_at_once_without_a_window() -> None:
    assert follow(pace(), 3, 5) == [3, 5]


def test_up_after_the_window_by_its_smallest_wish() -> None:
    assert follow(pace(up=20), 5, 3, 4, 4) == [1, 1, 3, 3]


def test_down_after_the_window_by_its_largest_wish() -> None:
    assert follow(pace(down=30), 1, 1, 1, 1, start=5) == [5, 5, 5, 1]
    assert follow(pace(down=30), 1, 3, 1, 1, 1, 1, start=5) == [5, 5, 5, 3, 3, 1]


def test_what_flaps_within_the_window_stays_up() -> None:
    assert follow(pace(down=30), *[1, 4] * 10) == [1, *[4] * 19]


def test_a_step_has_a_size_and_a_period() -> None:
    assert follow(pace(step=2, period=30), *[9] * 7) == [3, 3, 3, 5, 5, 5, 7]
    assert follow(pace(down=0, step=1, period=20), *[0] * 5, start=3) == [2, 2, 1, 1, 0]


def test_only_what_a_window_reaches_is_remembered() -> None:
    memory = Memory()
    for second in range(1000):
        memory = memory.wish(float(second), second % 7, 1, pace(down=60))
    assert len(memory.wishes) <= 62


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=40), st.integers(0, 60), st.integers(0, 60), st.integers(0, 20)
)
def test_never_past_what_was_wished_or_had(wishes: list[int], up: int, down: int, start: int) -> None:
    for count in follow(pace(up, down), *wishes, start=start):
        assert min(*wishes, start) <= count <= max(*wishes, start)


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 60), st.integers(0, 60))
def test_a_wish_that_stays_is_reached(wish: int, start: int, up: int, down: int) -> None:
    assert follow(pace(up, down), *[wish] * 8, start=start)[-1] == wish
