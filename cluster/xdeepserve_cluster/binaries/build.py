"""Building commands from the pinned Go modules into the user's cache.

One builder at a time: a lock in the cache makes a second one wait, and then it finds the work done. Every
command is built under another name and moved into place when it is whole, so that a build that was interrupted goes
on where it stopped: with the next command, and inside it with what Go's own build cache holds.
"""

from __future__ import annotations

import collections
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from xdeepserve_cluster.binaries.cache import cache_directory, cached_path
from xdeepserve_cluster.binaries.catalog import Tool
from xdeepserve_cluster.binaries.golang import find_go
from xdeepserve_cluster.binaries.modules import modules_directory, needed_go
from xdeepserve_cluster.errors import ClusterError
from xdeepserve_cluster.locks import exclusive
from xdeepserve_cluster.progress import Progress, Step

# The same for everybody, whatever the user's own settings are: they are part of the build cache's keys.
BUILD_ENVIRONMENT = {
    "CGO_ENABLED": "0",
    "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}
ERROR_LINES = 20


def build(tools: Sequence[Tool], environ: Mapping[str, str], progress: Progress) -> None:
    """Put every tool of `tools` that is not yet there into the cache. Raises ClusterError with Go's own words."""

    def on_wait(holder: str) -> None:
        progress.note(f"waiting for process {holder}, which is building the cluster's binaries")

    with exclusive(cache_directory(environ) / "bin" / ".lock", on_wait):
        missing = [tool for tool in tools if not cached_path(tool, environ).is_file()]
        if not missing:
            return
        progress.note("Missing binaries are built now, once: all of them take about ten minutes on two cores.")
        go = find_go(max(needed_go(tool.module) for tool in missing), environ, progress)
        for number, tool in enumerate(missing, 1):
            with progress.step(f"building {tool.name} {tool.version} ({number} of {len(missing)})") as step:
                _build_one(tool, go, environ, step)


def _build_one(tool: Tool, go: Path, environ: Mapping[str, str], step: Step) -> None:
    target = cached_path(tool, environ)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{tool.name}.partial")
    command = [str(go), "build", "-v", "-ldflags", tool.linker_flags(), "-o", str(partial), tool.package]
    with subprocess.Popen(
        command,
        cwd=modules_directory() / tool.module,
        env={**environ, **BUILD_ENVIRONMENT},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        last_lines = _follow(process, step)
    if process.returncode:
        raise ClusterError(
            f"building {tool.name} failed (go build exited with {process.returncode}):\n{last_lines}\n"
            "If modules could not be downloaded, check the network or set GOPROXY; run the command again to go on. "
            "Ready-made binaries are taken from the directory named by KUBEBUILDER_ASSETS."
        )
    os.replace(partial, target)


def _follow(process: subprocess.Popen[str], step: Step) -> str:
    """Turn Go's one line a download or package into the step's detail; returns the last lines."""
    assert process.stderr is not None
    last: collections.deque[str] = collections.deque(maxlen=ERROR_LINES)
    downloads = packages = 0
    for line in process.stderr:
        last.append(line.rstrip())
        if line.startswith("go: downloading"):
            downloads += 1
            step.detail = f"{downloads} modules downloaded"
        else:
            packages += 1
            step.detail = f"{packages} packages compiled"
    return "\n".join(last)
