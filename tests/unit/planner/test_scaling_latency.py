import pytest

from flowserve.wire import FrontendStatus, Histogram
from xdeepserve_operator.planner.scaling_latency import Latency, Window, percentile_of

BOUNDS = (0.1, 0.5, 1.0)


def histogram(*counts: int) -> Histogram:
    return Histogram(bounds=BOUNDS, counts=counts)


def status(life: str, *first: int, each: tuple[int, ...] = (0, 0, 0, 0), refused: int = 0) -> FrontendStatus:
    return FrontendStatus(incarnation=life, first_token=histogram(*first), per_token=histogram(*each), refused=refused)


@pytest.mark.parametrize(("percentile", "milliseconds"), [(50, 100), (60, 500), (90, 1000), (99, 1000)])
def test_a_percentile_is_the_bound_of_its_bucket(percentile: int, milliseconds: float) -> None:
    assert percentile_of([histogram(5, 3, 1, 1)], percentile) == milliseconds


def test_without_samples_there_is_none() -> None:
    assert percentile_of([], 95) is None
    assert percentile_of([histogram(0, 0, 0, 0)], 95) is None


def test_frontends_are_added_up_and_only_news_count() -> None:
    window = Window(30)
    window.add(0, {"a": status("a1", 100, 0, 0, 0), "b": status("b1", 100, 0, 0, 0)})
    assert window.latency(95) == Latency(), "one sample is no difference"
    window.add(10, {"a": status("a1", 100, 0, 9, 0), "b": status("b1", 101, 0, 0, 0, refused=2)})
    assert window.latency(50) == Latency(ttft=1000, tpot=None, answers=10, refused=2, news=12)


def test_old_samples_leave_the_window() -> None:
    window = Window(30)
    for second in range(0, 100, 10):
        window.add(second, {"a": status("a1", second, 0, 0, 0)})
    assert (window.latency(95).answers, window.latency(95).news) == (30, 10)


def test_a_frontend_that_started_anew_counts_from_nothing() -> None:
    window = Window(30)
    window.add(0, {"a": status("a1", 500, 0, 0, 0, refused=7)})
    window.add(10, {"a": status("a2", 3, 0, 0, 0)})
    assert window.latency(95) == Latency(ttft=100, tpot=None, answers=3, refused=0, news=3)
    window.add(20, {})
    assert window.latency(95) == Latency()
