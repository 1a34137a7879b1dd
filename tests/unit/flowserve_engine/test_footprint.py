"""What an engine pod does not import: every megabyte counts for each of hundreds of pods."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("process", "unwanted"),
    [
        ("flowserve.engine.engine", ["eplb.plan", "eplb.search", "numpy.random", "tokenizers"]),
        ("flowserve.output.__main__", ["numpy", "tokenizers"]),
    ],
)
def test_a_process_leaves_out_what_its_role_does_not_need(process: str, unwanted: list[str]) -> None:
    script = f"import {process}, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert process in loaded
    assert not set(unwanted) & set(loaded)
