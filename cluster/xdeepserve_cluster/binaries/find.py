"""Finding the commands, building what is missing.

Looked for in this order, the first that is of the right version wins: the directory named by KUBEBUILDER_ASSETS,
the PATH, the user's cache. A copy of another version is passed over, never used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from xdeepserve_cluster.binaries.build import build
from xdeepserve_cluster.binaries.cache import cached_path
from xdeepserve_cluster.binaries.catalog import CLUSTER_TOOLS, TOOLS, Tool
from xdeepserve_cluster.binaries.versions import parse_version
from xdeepserve_cluster.progress import Progress

NAMED = "KUBEBUILDER_ASSETS"
ASK_TIMEOUT_S = 20.0


def find_or_build(
    names: Iterable[str] = CLUSTER_TOOLS,
    *,
    environ: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Path]:
    """The path of every command in `names`; the first call on a machine may build for some ten minutes.

    Raises ClusterError if something has to be built and cannot be.
    """
    environ = os.environ if environ is None else environ
    progress = progress or Progress(quiet=True)
    tools = [TOOLS[name] for name in names]
    found = {tool.name: find(tool, environ, progress) for tool in tools}
    missing = [tool for tool in tools if found[tool.name] is None]
    if missing:
        build(missing, environ, progress)
    return {tool.name: found[tool.name] or cached_path(tool, environ) for tool in tools}


def find(tool: Tool, environ: Mapping[str, str], progress: Progress) -> Path | None:
    """The first usable copy of `tool` on this machine."""
    cached = cached_path(tool, environ)
    for place, path in _candidates(tool, environ):
        verdict = objection(tool, path)
        if verdict is None:
            return path
        # Whoever named a directory wants to know. The PATH is worth a word only when it costs a build.
        if place == NAMED or not cached.is_file():
            progress.note(f"{place}: {path} {verdict}; passed over")
    return cached if cached.is_file() else None


def objection(tool: Tool, path: Path) -> str | None:
    """Why the binary at `path` cannot serve as `tool`, or None if it can."""
    try:
        answer = subprocess.run([path, *tool.ask], capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run ({error})"
    version = parse_version(answer.stdout)
    if version is None:
        return f"does not tell its version when asked with {' '.join(tool.ask)}"
    if not version.within(tool.version, tool.skew):
        skew = f" (or {tool.skew} minor away)" if tool.skew else ""
        return f"is {version}, wanted is {tool.version.major}.{tool.version.minor}{skew}"
    return None


def _candidates(tool: Tool, environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    assets = environ.get(NAMED)
    if assets and (path := Path(assets).absolute() / tool.name).is_file():
        yield NAMED, path
    if on_path := shutil.which(tool.name, path=environ.get("PATH", "")):
        yield "PATH", Path(on_path).absolute()
