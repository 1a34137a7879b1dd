"""Bringing a cluster up, or back up.

Level-based: whatever is there already is kept, whatever is missing is made, in an order in which an interruption at
any point leaves something that the next `up` can go on from and that `down` can remove:
the state file comes first, a process is written down before anybody waits for it, and one that could not be is
known by its mark.
An `up` that fails stops the processes that it started itself, and keeps their logs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from xdeepserve_cluster import processes
from xdeepserve_cluster.binaries import find_or_build
from xdeepserve_cluster.controlplane.cluster import Cluster, get, layout_of
from xdeepserve_cluster.controlplane.components import (
    PORT_NAMES,
    Component,
    api_server_url,
    components,
)
from xdeepserve_cluster.controlplane.kubeconfig import write_kubeconfigs
from xdeepserve_cluster.controlplane.layout import MARKER, Layout
from xdeepserve_cluster.controlplane.pki import ensure_pki
from xdeepserve_cluster.controlplane.ports import choose_ports
from xdeepserve_cluster.controlplane.readiness import wait_ready
from xdeepserve_cluster.controlplane.spec import ClusterSpec
from xdeepserve_cluster.controlplane.state import ClusterState, load_state, save_state
from xdeepserve_cluster.errors import ClusterError
from xdeepserve_cluster.locks import exclusive
from xdeepserve_cluster.processes import ProcessId
from xdeepserve_cluster.progress import Progress

READY_TIMEOUT_S = 120.0  # a cold disk under a busy CI machine
KEPT_TIMEOUT_S = 10.0
LOG_TAIL_LINES = 15


def up(spec: ClusterSpec | None = None, *, root: Path | None = None, progress: Progress | None = None) -> Cluster:
    """Return when the cluster of `spec` is ready; at once if it is already.

    Raises ClusterError if binaries cannot be had, a component does not become ready, or a cluster of that name runs
    with another specification.
    """
    if sys.platform != "linux":
        raise ClusterError("a local cluster needs Linux; elsewhere use kind or any other Kubernetes cluster")
    spec = spec or ClusterSpec()
    progress = progress or Progress(quiet=True)
    layout = layout_of(spec.name, root)
    tools = find_or_build(progress=progress)
    with exclusive(layout.lock, lambda pid: progress.note(f"waiting for process {pid}, which works on {spec.name}")):
        state = _prepare(spec, layout, tools)
        wanted = components(spec, layout, state.ports, tools)
        _adopt(layout, state, wanted)
        start = _Start(layout, state, progress)
        try:
            start.all(wanted)
        except BaseException:
            start.undo()
            raise
    return get(spec.name, root)


def _prepare(spec: ClusterSpec, layout: Layout, tools: Mapping[str, Path]) -> ClusterState:
    """Everything but the processes: state, certificates, kubeconfigs, links to the tools."""
    state = load_state(layout)
    if state is None:
        _refuse_foreign(layout)
        state = ClusterState(spec=spec, ports=choose_ports(PORT_NAMES))
        save_state(layout, state)
    elif state.spec != spec:
        raise ClusterError(
            f"the cluster {spec.name!r} exists with other settings ({_differences(state.spec, spec)}): "
            f"take it down first, or choose another name"
        )
    state.processes = dict(state.running())
    state.boot = processes.boot_id()
    layout.log("any").parent.mkdir(exist_ok=True, mode=0o700)
    ensure_pki(layout.pki)
    write_kubeconfigs(layout, api_server_url(state.ports))
    _link_tools(layout.tools, tools)
    return state


def _adopt(layout: Layout, state: ClusterState, wanted: Sequence[Component]) -> None:
    """Write down what an `up` started and was killed before writing down: its mark and its arguments tell."""
    missing = [component for component in wanted if component.name not in state.processes]
    if not missing:
        return
    marked = {tuple(processes.command_line(found)): found for found in processes.marked(MARKER, str(layout.directory))}
    for component in missing:
        if found := marked.get(component.argv):
            state.processes[component.name] = found
    save_state(layout, state)


def _refuse_foreign(layout: Layout) -> None:
    """`down` removes the whole directory, so it must be ours from the start."""
    foreign = sorted(path.name for path in layout.directory.iterdir() if path != layout.lock)
    if foreign:
        raise ClusterError(
            f"{layout.directory} holds files that are no cluster's ({foreign[0]}, …): choose another name, "
            "or another place with XDEEPSERVE_STATE_DIR"
        )


def _differences(old: ClusterSpec, new: ClusterSpec) -> str:
    before, after = old.model_dump(), new.model_dump()
    return ", ".join(f"{key} {before[key]}, not {after[key]}" for key in before if before[key] != after[key])


def _link_tools(directory: Path, tools: Mapping[str, Path]) -> None:
    directory.mkdir(exist_ok=True)
    for name in ("kubectl", "helm"):
        target = tools[name].resolve()  # on the user's PATH it may be this very link, or another cluster's
        link = directory / name
        link.unlink(missing_ok=True)
        link.symlink_to(target)


class _Start:
    """One run through the components; remembers what it started.

    In a stage everything that is missing is started before anything is waited for. What runs already is then asked
    in order, behind what it depends on: an API server is not hung because its store was away until just now.
    """

    def __init__(self, layout: Layout, state: ClusterState, progress: Progress) -> None:
        self._layout = layout
        self._state = state
        self._progress = progress
        self._started: list[tuple[Component, ProcessId]] = []

    def all(self, wanted: Sequence[Component]) -> None:
        for stage in sorted({component.stage for component in wanted}):
            members = [component for component in wanted if component.stage == stage]
            missing = [component for component in members if component.name not in self._state.processes]
            if missing:
                with self._progress.step(f"starting {', '.join(component.name for component in missing)}"):
                    self._run(members, missing)
            else:
                self._run(members, missing)
        if not self._started:
            self._progress.note(f"the cluster {self._state.spec.name} is up already")

    def undo(self) -> None:
        """Stop what this run started, the last first."""
        for component, process in reversed(self._started):
            processes.stop([process], component.grace_s)

    def _run(self, members: Sequence[Component], missing: Sequence[Component]) -> None:
        for component in missing:
            self._spawn(component)
        for component in members:
            if component in missing or self._hangs(component):
                self._await(component)

    def _hangs(self, component: Component) -> bool:
        """Whether a component that was kept does not answer; it is then started again."""
        process = self._state.processes[component.name]
        problem = wait_ready(component.checks, lambda: not process.alive(), KEPT_TIMEOUT_S)
        if problem is None:
            return False
        self._progress.note(f"{component.name} does not answer and is restarted: {problem}")
        processes.stop([process], component.grace_s)
        self._spawn(component)
        return True

    def _spawn(self, component: Component) -> None:
        if component.name == "agent":
            self._layout.agent_ready.unlink(missing_ok=True)
        environ = {**os.environ, MARKER: str(self._layout.directory)}
        process = processes.spawn(component.argv, self._layout.log(component.name), environ)
        self._started.append((component, process))
        self._state.processes[component.name] = process
        save_state(self._layout, self._state)

    def _await(self, component: Component) -> None:
        process = self._state.processes[component.name]
        problem = wait_ready(component.checks, lambda: not process.alive(), READY_TIMEOUT_S)
        if problem is None:
            return
        code = processes.reap(process)
        what = f"is not ready after {READY_TIMEOUT_S:.0f} s" if code is None else f"exited with status {code}"
        log = self._layout.log(component.name)
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
        raise ClusterError(f"{component.name} {what} ({problem}); the end of {log}:\n{tail}")
