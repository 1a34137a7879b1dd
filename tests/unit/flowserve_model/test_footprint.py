"""An engine's memory budget leaves the model's import and weights little room."""

from __future__ import annotations

import subprocess
import sys

from .checkpoints import TINY

MAX_RESIDENT_KIB = 60 * 1024
SCRIPT = """
import sys
from pathlib import Path
from flowserve.model import ExpertWeights, LocalExperts, Model, Weights
weights = Weights.open(Path(sys.argv[1]))
model, experts = Model(weights, 8), LocalExperts(ExpertWeights(weights))
print(next(line.split()[1] for line in Path("/proc/self/status").open() if line.startswith("VmHWM:")))
"""


def test_the_tiny_model_is_resident_in_60_mib() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(TINY)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < MAX_RESIDENT_KIB
