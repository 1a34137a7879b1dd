"""Runs a case in processes of its own: `measure` starts the ranks, ``python -m xdeepserve_bench.xccl_ranks`` is one.

Every library's ranks are started the same way, on the same cores; MPI's by its launcher, as it wants it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from xdeepserve_bench.xccl_cases import CASES, Rank, Times
from xdeepserve_bench.xccl_links import mpiexec, pin

_TIMEOUT = 240.0


def measure(case: str, library: str, ranks: int, counts: dict[str, int]) -> Times:
    """The times of rank 0. Raises RuntimeError with what a failed rank has printed."""
    with TemporaryDirectory(dir="/dev/shm", prefix="xccl-bench-") as scratch:
        command = [sys.executable, "-m", __name__, case, library, scratch, str(ranks), json.dumps(counts)]
        if library == "mpi":
            launch = [str(mpiexec()), "-n", str(ranks), "--oversubscribe", "--bind-to", "none"]
            _finish([_start([*launch, *command])])
        else:
            _finish([_start([*command, str(rank)]) for rank in range(ranks)])
        times: Times = json.loads((Path(scratch) / "times.json").read_text())
        return times


def _start(command: list[str]) -> subprocess.Popen[str]:
    settings = {"OPENBLAS_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return subprocess.Popen(
        command, env=os.environ | settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def _finish(processes: list[subprocess.Popen[str]]) -> None:
    try:
        for process in processes:
            output, _ = process.communicate(timeout=_TIMEOUT)
            if process.returncode:
                raise RuntimeError(f"a rank has failed ({process.returncode}):\n{output[-2000:]}")
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()


def _be_rank(case: str, library: str, scratch: str, ranks: int, counts: dict[str, int], rank: int) -> None:
    pin(rank)
    directory = Path(scratch) / library
    directory.mkdir(exist_ok=True)
    times = CASES[case](Rank(library, directory, rank, ranks), counts)
    if rank == 0:
        (Path(scratch) / "times.json").write_text(json.dumps(times))


def _main(case: str, library: str, scratch: str, ranks: str, counts: str, rank: str | None = None) -> None:
    if rank is None:
        from mpi4py import MPI

        rank = str(MPI.COMM_WORLD.rank)
    _be_rank(case, library, scratch, int(ranks), json.loads(counts), int(rank))


if __name__ == "__main__":
    _main(*sys.argv[1:])
