"""The ranks of one library as processes that wait to be asked: `started` starts them, ``python -m …xccl_ranks`` is one.

Every library's ranks are started the same way, on the same cores; MPI's by its launcher, as it wants it. A rank opens
its connections once and then sleeps until it is asked, so that those of several libraries can live side by side and
take turns every few milliseconds: what else the machine does meets all of them alike.

    parent -> rank   {"what": …, "count": …}, a line on a Unix socket; the socket's end is the rank's
    rank -> parent   {name: [seconds, …]}; what rank 0 has measured counts
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TypeAlias

from xdeepserve_bench.xccl_cases import CASES, Rank, Times
from xdeepserve_bench.xccl_links import TIMEOUT, mpiexec, pin

Burst: TypeAlias = Callable[[str, int], Times]
"""Does what is named, so often, on all ranks of a library."""

_CONTROL = "control"
_GLANCE = 0.2


@contextmanager
def started(case: str, library: str, ranks: int) -> Iterator[Burst]:
    """The running ranks of a case. Raises RuntimeError with what they have printed when one fails."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory(dir="/dev/shm", prefix="xccl-bench-")))
        output = stack.enter_context((scratch / "output").open("w+"))
        server = stack.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(str(scratch / _CONTROL))
        server.listen(ranks)
        server.settimeout(_GLANCE)
        processes: list[subprocess.Popen[bytes]] = []
        stack.callback(_end, processes)
        command = [sys.executable, "-m", __name__, case, library, str(scratch), str(ranks)]
        if library == "mpi":
            launch = [str(mpiexec()), "-n", str(ranks), "--oversubscribe", "--bind-to", "none"]
            processes.append(_start([*launch, *command], output))
        else:
            processes += [_start([*command, str(rank)], output) for rank in range(ranks)]
        wires = [_accepted(server, processes, output) for _ in range(ranks)]
        stack.callback(_hang_up, wires)
        asking = [wire.makefile("w") for wire in wires]
        telling = [wire.makefile("r") for wire in wires]

        def burst(what: str, count: int) -> Times:
            for lines in asking:
                print(json.dumps({"what": what, "count": count}), file=lines, flush=True)
            answers = [lines.readline() for lines in telling]
            if not all(answers):
                raise RuntimeError(_failure(output))
            measured: list[Times] = [json.loads(answer) for answer in answers]
            return next((times for times in measured if times), {})

        yield burst


def _start(command: list[str], output: IO[str]) -> subprocess.Popen[bytes]:
    settings = {"OPENBLAS_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return subprocess.Popen(
        command, env=os.environ | settings, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
    )


def _accepted(server: socket.socket, processes: list[subprocess.Popen[bytes]], output: IO[str]) -> socket.socket:
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline and all(process.poll() is None for process in processes):
        try:
            wire, _ = server.accept()
        except TimeoutError:
            continue
        wire.settimeout(TIMEOUT)
        return wire
    raise RuntimeError(_failure(output))


def _failure(output: IO[str]) -> str:
    output.seek(0)
    return f"a rank has failed:\n{output.read()[-2000:]}"


def _hang_up(wires: list[socket.socket]) -> None:
    for wire in wires:
        wire.shutdown(socket.SHUT_RDWR)
        wire.close()


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        try:
            process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _main(case: str, library: str, scratch: str, ranks: str, rank: str | None = None) -> None:
    if rank is None:
        from mpi4py import MPI

        rank = str(MPI.COMM_WORLD.rank)
    pin(int(rank))
    directory = Path(scratch) / library
    directory.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as wire:
        wire.connect(str(Path(scratch) / _CONTROL))
        with CASES[case](Rank(library, directory, int(rank), int(ranks))) as measure:
            telling = wire.makefile("w")
            for line in wire.makefile("r"):
                asked = json.loads(line)
                times = measure(asked["what"], asked["count"])
                print(json.dumps(times if rank == "0" else {}), file=telling, flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
