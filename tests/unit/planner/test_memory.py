"""What was read from an object is kept while it is the same, and not after it is gone."""

from typing import Any

from xdeepserve_operator.planner.memory import forget, remembered, turn


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


def test_what_nobody_asks_for_between_two_turns_is_forgotten_and_nothing_else() -> None:
    read: list[str] = []

    @remembered
    def view(obj: Any) -> str:
        read.append(obj["metadata"]["uid"])
        return read[-1]

    gone, alive = ({"metadata": {"uid": uid, "resourceVersion": "1"}} for uid in ("gone", "alive"))
    view(gone)
    for _ in range(3):
        view(alive)
        turn()
    assert view(alive) == "alive"
    assert read == ["gone", "alive"]
    view(gone)
    assert read == ["gone", "alive", "gone"]
