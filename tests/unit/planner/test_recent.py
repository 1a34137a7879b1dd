"""What is remembered for a while, and no longer."""

from hypothesis import given
from hypothesis import strategies as st

from xdeepserve_operator.planner.recent import Recent

SECONDS = 10.0
PUTS = st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0, 8)), min_size=1, max_size=30)


@given(PUTS, st.floats(0, 12))
def test_it_knows_what_was_put_last_unless_that_is_too_old(puts: list[tuple[str, float]], wait: float) -> None:
    recent, last, now = Recent[str, int](SECONDS), dict[str, tuple[int, float]](), 0.0
    for number, (key, passed) in enumerate(puts):
        now += passed
        recent.put(key, number, now)
        last[key] = number, now
    young = {key for key, (_, at) in last.items() if now - at <= SECONDS}
    assert len(recent) == len(young), "what is too old went when something new came"
    now += wait
    for key in "abcd":
        number, at = last.get(key, (None, 0.0))
        assert recent.get(key, now) == (number if key in young and now - at <= SECONDS else None)
        assert (key in recent) == (key in young)
