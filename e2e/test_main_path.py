"""The demo as a newcomer runs it: one command tells the whole story, keeps its promises and leaves nothing behind."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO_SECONDS = 20 * 60  # the very first run on a machine builds Kubernetes


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Path]:
    """(output, cluster name, state directory) of one demo."""
    state, name = tmp_path_factory.mktemp("state"), f"e2e-{os.getpid()}"
    done = subprocess.run(
        [sys.executable, "-m", "xdeepserve_cli.main", "demo", "--name", name],
        env={**os.environ, "XDEEPSERVE_STATE_DIR": str(state), "KEEP": "0", "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEMO_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout, name, state


def test_every_step_is_told_with_its_time(told: tuple[str, str, Path]) -> None:
    output = told[0]
    for step in (
        "operator installed with Helm",
        "kubectl apply -f examples/quickstart.yaml",
        "kubectl wait --for=condition=Ready modeldeployment/chat",
        "first chat completion streamed",
        "the deployment heals",
        "from the die's death to Ready=True",
        "everything taken down",
    ):
        assert re.search(rf"{re.escape(step)}\s+[\d.]+ s", output), f"{step!r} is missing from\n{output}"


def test_no_stream_lost_repeated_or_reordered_a_token(told: tuple[str, str, Path]) -> None:
    verdict = re.search(r"(\d+) streams: (\d+) finished right, (\d+) ended with a retryable error, (\d+) lost", told[0])
    assert verdict is not None
    total, right, retryable, wrong = map(int, verdict.groups())
    assert wrong == 0
    assert right > 0
    assert right + retryable == total


def test_the_group_moved_to_another_die(told: tuple[str, str, Path]) -> None:
    output = told[0]
    broken = re.search(r"die (\d+) of (\S+) died under default/(\S+)-(\d+)", output)
    assert broken is not None
    die, server, group, attempt = broken.groups()
    replacement = re.search(rf"{group}-(\d+)\s*│[^│]*│\s*(\S+)\s*│\s*(\d+)", output)
    assert replacement is not None, output
    assert int(replacement[1]) > int(attempt)
    assert (replacement[2], replacement[3]) != (server, die)


def test_nothing_is_left(told: tuple[str, str, Path]) -> None:
    _, name, state = told
    assert list(state.rglob("*")) == []
    assert [path for path in Path("/dev/shm").iterdir() if path.name.startswith(f"xds-{name}-")] == []
    assert _processes_that_mention(str(state)) == []


def _processes_that_mention(text: str) -> list[str]:
    """Command lines of processes whose environment or arguments name ``text``."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if text.encode() in words:
            found.append((entry / "cmdline").read_text().replace("\0", " "))
    return found
