"""Taking a cluster down, whatever state it is in.

The agent goes first and stops its pods. Then everything that carries the cluster's mark without being written down:
pods whose agent was killed, and what an `up` started that was killed before noting it. The control plane goes last.
The state file shows that the directory is a cluster's: without it nothing is removed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from xdeepserve_cluster import processes
from xdeepserve_cluster.controlplane.cluster import layout_of
from xdeepserve_cluster.controlplane.layout import MARKER, Layout
from xdeepserve_cluster.controlplane.state import load_state
from xdeepserve_cluster.errors import ClusterError
from xdeepserve_cluster.locks import exclusive
from xdeepserve_cluster.processes import ProcessId
from xdeepserve_cluster.progress import Progress

AGENT_GRACE_S = 10.0
OTHERS_GRACE_S = 2.0
CONTROL_PLANE_GRACE_S = 3.0
KILL_ROUNDS = 5


def down(name: str = "demo", *, root: Path | None = None, progress: Progress | None = None) -> bool:
    """Stop every process of the cluster and remove its files; False if there was no such cluster.

    Raises ClusterError if a process survives even SIGKILL; the files then stay, and `down` may be repeated.
    """
    progress = progress or Progress(quiet=True)
    layout = layout_of(name, root)
    if not layout.state_file.exists():
        _remove_empty(layout)
        return False
    with (
        exclusive(layout.lock, lambda pid: progress.note(f"waiting for process {pid}, which works on {name}")),
        progress.step(f"taking {name} down"),
    ):
        if not layout.state_file.exists():  # someone else's `down` was faster
            _remove_empty(layout)
            return False
        _stop_everything(layout)
        shutil.rmtree(layout.shared_memory, ignore_errors=True)
        _remove(layout)
    return True


def _stop_everything(layout: Layout) -> None:
    recorded = _recorded(layout)
    survivors = processes.stop([recorded.pop("agent")], AGENT_GRACE_S) if "agent" in recorded else []
    survivors += _stop_marked(layout, {*recorded.values(), *survivors})
    # The clients of the API server before it, and it before its store: no log full of refused connections.
    for name in ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"):
        if name in recorded:
            survivors += processes.stop([recorded[name]], CONTROL_PLANE_GRACE_S)
    if survivors := [process for process in survivors if process.alive()]:
        pids = ", ".join(str(process.pid) for process in survivors)
        raise ClusterError(f"processes {pids} do not end, even when killed; {layout.directory} was left in place")


def _stop_marked(layout: Layout, spared: set[ProcessId]) -> list[ProcessId]:
    """Looks again after each round: what a process started while it was being stopped was on no list yet."""
    survivors: list[ProcessId] = []
    for grace_s in (OTHERS_GRACE_S, *[0.0] * KILL_ROUNDS):
        found = _marked(layout) - spared - set(survivors)
        if not found:
            break
        survivors += processes.stop(found, grace_s)
    return survivors


def _marked(layout: Layout) -> set[ProcessId]:
    return set(processes.marked(MARKER, str(layout.directory)))


def _recorded(layout: Layout) -> dict[str, ProcessId]:
    try:
        state = load_state(layout)
    except ClusterError:  # damaged: the marks on the processes are enough
        return {}
    return state.running() if state else {}


def _remove(layout: Layout) -> None:
    """The state file last, so that an interrupted removal can be taken up again."""
    for path in layout.directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path not in (layout.state_file, layout.lock):
            path.unlink()
    layout.state_file.unlink()
    layout.lock.unlink()
    layout.directory.rmdir()


def _remove_empty(layout: Layout) -> None:
    """A lock that an `up` left behind when it was killed right at its start."""
    if layout.directory.is_dir() and {path.name for path in layout.directory.iterdir()} <= {layout.lock.name}:
        layout.lock.unlink(missing_ok=True)
        layout.directory.rmdir()
