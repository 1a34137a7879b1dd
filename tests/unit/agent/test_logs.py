"""Log files: which are kept, where the last lines begin, last words."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xdeepserve_cluster.agent import logs
from xdeepserve_cluster.agent.logs import ContainerLogs, offset_of_last_lines, tail, termination_message


def test_the_present_and_the_previous_run_are_kept(tmp_path: Path) -> None:
    container = ContainerLogs(tmp_path, "c")
    for run in range(12):
        path = container.begin(run)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(run))
    assert sorted(path.name for path in container.path(0).parent.iterdir()) == ["10.log", "11.log"]


@settings(max_examples=60)
@given(
    lines=st.lists(st.binary(max_size=9).map(lambda line: line.replace(b"\n", b"")), max_size=12),
    ended=st.booleans(),
    count=st.integers(0, 14),
    block=st.integers(1, 40),
)
def test_last_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ended: bool, count: int, block: int
) -> None:
    path = tmp_path_factory.mktemp("logs") / "log"
    text = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    path.write_bytes(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "BLOCK", block)
        found = text[offset_of_last_lines(path, count) :]
    whole = text.split(b"\n")[: -1 if text.endswith(b"\n") or not text else None]
    assert found == text[len(b"\n".join([*whole[: max(0, len(whole) - count)], b""])) :]


def test_tail_of_nothing(tmp_path: Path) -> None:
    assert tail(tmp_path / "absent", 10) == ""
    (tmp_path / "short").write_text("abc")
    assert tail(tmp_path / "short", 10) == "abc"
    assert tail(tmp_path / "short", 2) == "bc"


@pytest.mark.parametrize(
    ("policy", "code", "message", "expected"),
    [
        ("File", 1, "from the file", "from the file"),
        ("FallbackToLogsOnError", 1, "from the file", "from the file"),
        ("File", 1, "", ""),
        ("FallbackToLogsOnError", 0, "", ""),
        ("FallbackToLogsOnError", 78, "", "line 20\n" + "".join(f"line {number}\n" for number in range(21, 100))),
    ],
)
def test_last_words(tmp_path: Path, policy: str, code: int, message: str, expected: str) -> None:
    file, log = tmp_path / "message", tmp_path / "log"
    if message:
        file.write_text(message)
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    assert termination_message(file, policy, log, code) == expected
