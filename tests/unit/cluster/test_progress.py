"""What a reader of a terminal or a log sees of a long step."""

from __future__ import annotations

import io

import pytest

from xdeepserve_cluster.progress import Progress, duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_step_leaves_its_name_and_time() -> None:
    out, now = io.StringIO(), iter([10.0, 14.2])
    with Progress(out, clock=lambda: next(now)).step("starting etcd"):
        pass
    assert out.getvalue() == "starting etcd  4.2 s\n"


def test_a_failed_step_says_so() -> None:
    out, now = io.StringIO(), iter([0.0, 187.0])
    with pytest.raises(KeyError), Progress(out, clock=lambda: next(now)).step("building"):
        raise KeyError
    assert out.getvalue() == "building  failed after 3 min 07 s\n"


def test_a_terminal_has_one_line_that_is_rewritten() -> None:
    out = Terminal()
    progress = Progress(out, interval_s=60)
    with progress.step("a"):
        progress.note("b")
    assert out.getvalue().startswith("\r\033[Kb\n\r\033[Ka  ")


def test_quiet_prints_nothing() -> None:
    out = io.StringIO()
    with Progress(out, quiet=True).step("a") as step:
        step.detail = "b"
    assert out.getvalue() == ""


def test_duration() -> None:
    assert [duration(0), duration(0.0352), duration(0.0994)] == ["0.0 s", "35 ms", "99 ms"]
    assert [duration(0.0996), duration(59.94), duration(61)] == ["0.1 s", "59.9 s", "1 min 01 s"]
