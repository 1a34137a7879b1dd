"""``xdeepserve demo`` as a newcomer runs it, in a home of its own: it keeps its promises and leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from xdeepserve_cluster import processes
from xdeepserve_cluster.binaries.cache import cache_directory
from xdeepserve_cluster.controlplane import down
from xdeepserve_cluster.controlplane.layout import MARKER, Layout

SECONDS = 20 * 60  # the very first run on a machine builds Kubernetes; afterwards it takes 25 s
NAME = f"demo-{os.getpid()}"


@dataclass(frozen=True)
class Run:
    """What the demo printed, and where it was allowed to write."""

    code: int
    output: str
    home: Path
    layout: Layout


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One demo from beginning to end; everything it may want to write to lies below one new directory."""
    home = tmp_path_factory.mktemp("home")
    layout = Layout(home / "state", NAME)
    for name in ("tmp", "work"):
        (home / name).mkdir()
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "XDEEPSERVE_STATE_DIR": str(layout.root),
        "XDG_CACHE_HOME": str(cache_directory(os.environ).parent),  # the binaries are there already
        "LANG": "C.UTF-8",
    }
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        environ["KUBEBUILDER_ASSETS"] = assets
    try:
        finished = subprocess.run(
            [sys.executable, "-m", "xdeepserve_cli.main", "demo", "--name", NAME],
            env=environ,
            cwd=home / "work",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        yield Run(finished.returncode, finished.stdout, home, layout)
    finally:
        down(NAME, root=layout.root)


def test_the_demo_keeps_its_promises(run: Run) -> None:
    assert run.code == 0, run.output
    for step in (
        "operator installed with Helm",
        "kubectl apply -f examples/quickstart.yaml",
        "kubectl wait --for=condition=Ready modeldeployment/chat",
        "first chat completion streamed",
        "the deployment heals",
        "everything taken down",
    ):
        assert step in run.output, run.output
    assert "Traceback" not in run.output


def test_every_stream_was_right_or_told_to_try_again(run: Run) -> None:
    told = re.search(r"(\d+) streams: (\d+) right, (\d+) told to try again, (\d+) lost, repeated", run.output)
    assert told is not None, run.output
    total, right, again, wrong = map(int, told.groups())
    assert wrong == 0
    assert right > 0
    assert right + again == total


def test_the_group_moved_to_another_die(run: Run) -> None:
    broken = re.search(r"die (\d+) of (\S+) died under default/(\S+)-(\d+)", run.output)
    assert broken is not None, run.output
    die, server, group, attempt = broken.groups()
    moved = re.search(rf"{group}-(\d+)\s*│[^│]*│\s*(\S+)\s*│\s*(\d+)", run.output)
    assert moved is not None, run.output
    assert int(moved[1]) > int(attempt)
    assert (moved[2], moved[3]) != (server, die)


def test_it_tells_times_and_places(run: Run) -> None:
    for measured in ("time to first token", "from the die's death to Ready=True", "to the next completion"):
        assert measured in run.output
    for place in ("chat-prefill-0-dp0-0", "chat-decode-0-dp1-0", "pod-a-910b-", "pod-a-910c-"):
        assert place in run.output, run.output


def test_no_process_is_left(run: Run) -> None:
    left = processes.marked(MARKER, str(run.layout.directory))
    assert [processes.command_line(process) for process in left] == []


def test_no_shared_memory_is_left(run: Run) -> None:
    assert not run.layout.shared_memory.exists()


def test_no_file_is_left_in_or_outside_its_state_directory(run: Run) -> None:
    assert [path for path in run.home.rglob("*") if not path.is_dir()] == []
    assert not run.layout.directory.exists()
