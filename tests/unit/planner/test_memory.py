"""What was read from an object is kept while it is the same, and not after it is gone."""

from typing import Any

from xdeepserve_operator.planner.memory import forget, remembered


def test_an_object_is_read_once_a_version_and_anew_after_it_was_forgotten() -> None:
    read: list[str] = []

    @remembered
    def view(obj: Any) -> str:
        read.append(obj["metadata"]["resourceVersion"])
        return read[-1]

    def pod(version: str) -> dict[str, Any]:
        return {"metadata": {"uid": "a", "resourceVersion": version}}

    assert [view(pod("1")), view(pod("1")), view(pod("2")), view(pod("2"))] == ["1", "1", "2", "2"]
    assert read == ["1", "2"]
    forget("a")
    forget("nobody")
    view(pod("2"))
    assert read == ["1", "2", "2"]
