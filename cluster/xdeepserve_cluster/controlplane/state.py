"""What is known about a running cluster: one JSON file, replaced as a whole at every change.

It is written before anything else of a cluster exists and is the last thing to go, so a directory that has it is
ours, and one that lacks it is not. Every command works from it alone.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from xdeepserve_cluster.controlplane.layout import Layout
from xdeepserve_cluster.controlplane.spec import ClusterSpec
from xdeepserve_cluster.errors import ClusterError
from xdeepserve_cluster.files import write_atomically
from xdeepserve_cluster.processes import ProcessId, boot_id


class ClusterState(BaseModel):
    """Ports and processes by component; a component that was never started has no process."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    spec: ClusterSpec
    boot: str = Field(default_factory=boot_id, description="The machine's boot in which the processes started")
    ports: dict[str, int]
    processes: dict[str, ProcessId] = {}

    def running(self) -> dict[str, ProcessId]:
        """The recorded processes that still live; none after a reboot."""
        if self.boot != boot_id():
            return {}
        return {name: process for name, process in self.processes.items() if process.alive()}


def load_state(layout: Layout) -> ClusterState | None:
    """The state of a cluster; None if there is no such cluster.

    Raises ClusterError if the file is not one of ours, or was written by another version.
    """
    try:
        text = layout.state_file.read_text()
    except FileNotFoundError:
        return None
    try:
        return ClusterState.model_validate_json(text)
    except ValidationError as error:
        raise ClusterError(
            f"{layout.state_file} is damaged or of another version ({error.error_count()} errors): "
            f"run 'xdeepserve cluster down --name {layout.name}', then 'up' again"
        ) from error


def save_state(layout: Layout, state: ClusterState) -> None:
    write_atomically(layout.state_file, state.model_dump_json(indent=2) + "\n")
