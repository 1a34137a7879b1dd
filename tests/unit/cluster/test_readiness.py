"""Waiting for readiness ends with the process, the time, or success."""

from __future__ import annotations

from pathlib import Path

from xdeepserve_cluster.controlplane.readiness import FileCheck, HttpsCheck, wait_ready


class Clock:
    """Time passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class After:
    """Ready at the given question."""

    def __init__(self, questions: int) -> None:
        self.left = questions

    def problem(self) -> str | None:
        self.left -= 1
        return f"{self.left} left" if self.left > 0 else None


def test_success() -> None:
    clock = Clock()
    assert wait_ready([After(1), After(3)], lambda: False, 60, clock=clock.time, sleep=clock.sleep) is None
    assert 0 < clock.now < 1


def test_a_process_that_ended_is_not_waited_for() -> None:
    clock = Clock()
    assert wait_ready([After(99)], lambda: True, 60, clock=clock.time, sleep=clock.sleep) == "98 left"
    assert clock.now == 0


def test_time_is_up() -> None:
    clock = Clock()
    assert wait_ready([After(10**6)], lambda: False, 5, clock=clock.time, sleep=clock.sleep)
    assert 5 <= clock.now < 5.2


def test_a_file_is_ready_when_it_exists(tmp_path: Path) -> None:
    check = FileCheck(tmp_path / "ready")
    assert "was not written yet" in str(check.problem())
    (tmp_path / "ready").touch()
    assert check.problem() is None


def test_a_question_to_nobody_is_a_problem_not_an_exception(tmp_path: Path) -> None:
    nowhere = tmp_path / "missing"
    problem = HttpsCheck("https://127.0.0.1:1/readyz", nowhere, nowhere, nowhere).problem()
    assert "https://127.0.0.1:1/readyz" in str(problem)
