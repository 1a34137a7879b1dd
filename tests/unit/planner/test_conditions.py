from datetime import timedelta

import pytest

from xdeepserve_operator.planner.conditions import condition_for, format_time, is_true, parse_time, seconds_since

from .builders import NOW, Object


def with_condition(status: str, generation: int = 1) -> Object:
    holder: Object = {"metadata": {"generation": generation}}
    first = condition_for(holder, "Ready", status == "True", "First", "first", NOW)
    return {"metadata": {"generation": generation}, "status": {"conditions": [first]}}


def test_the_transition_time_moves_only_with_the_status() -> None:
    obj = with_condition("False")
    later = NOW + timedelta(hours=1)
    same = condition_for(obj, "Ready", False, "Other", "other", later)
    turned = condition_for(obj, "Ready", True, "Ready", "", later)
    assert same["lastTransitionTime"] == format_time(NOW)
    assert (same["reason"], same["message"]) == ("Other", "other")
    assert turned["lastTransitionTime"] == format_time(later)


def test_a_condition_of_an_older_spec_is_not_true() -> None:
    obj = with_condition("True")
    assert is_true(obj, "Ready")
    obj["metadata"]["generation"] = 2
    assert not is_true(obj, "Ready")
    assert not is_true(obj, "Placed")


def test_messages_stay_within_the_apis_bound() -> None:
    condition = condition_for({"metadata": {}}, "Ready", False, "Long", "x" * 5000, NOW)
    assert len(condition["message"]) == 1024


@pytest.mark.parametrize("text", ["2025-01-01T12:00:00Z", "2025-01-01T12:00:00.000Z", "2025-01-01T13:00:00+01:00"])
def test_times_of_any_writer_are_read(text: str) -> None:
    assert parse_time(text) == NOW


@pytest.mark.parametrize("text", [None, "", "yesterday"])
def test_no_time_is_none(text: str | None) -> None:
    assert parse_time(text) is None


def test_times_keep_milliseconds() -> None:
    moment = NOW + timedelta(milliseconds=250)
    assert format_time(moment) == "2025-01-01T12:00:00.250Z"
    assert parse_time(format_time(moment)) == moment


def test_a_moment_ahead_counts_as_its_distance() -> None:
    assert seconds_since(NOW - timedelta(seconds=5), NOW) == 5
    assert seconds_since(NOW + timedelta(hours=1), NOW) == 3600, "the clock was set back"
