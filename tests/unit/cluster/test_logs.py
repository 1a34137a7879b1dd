"""Following a log ends with the cluster."""

from __future__ import annotations

from pathlib import Path

from xdeepserve_cluster.controlplane.logs import read_log


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_what_is_appended_is_read_until_the_file_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\n")
    pauses = iter([lambda: _append(path, "two\n"), path.unlink])

    def pause(seconds: float) -> None:
        next(pauses)()

    assert list(read_log(path, follow=True, sleep=pause)) == ["one\n", "two\n"]
