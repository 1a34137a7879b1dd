"""The example in the README does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import xccl


def test_the_readme_example_runs(tmp_path: Path) -> None:
    assert xccl.__file__
    package = Path(xccl.__file__).parent
    (example,) = re.findall(r"```python\n(.*?)```", (package / "README.md").read_text(), re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(example)
    ran = subprocess.run(
        [sys.executable, "-W", "error", script],
        env={"PYTHONPATH": str(package.parent), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "rank 0: votes (100, 101)" in ran.stdout
    assert "rank 1: computed 3 rows for others, got 0 tokens back" in ran.stdout
    assert "rank 1: received 800000 bytes" in ran.stdout
