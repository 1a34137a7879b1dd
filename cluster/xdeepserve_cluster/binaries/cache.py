"""The user's cache of built commands.

A command's folder is named by everything that decides its contents: the pinned versions (go.mod and go.sum), the
linker flags and the platform. A new pin therefore never meets an old binary, and what is there needs no question.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from pathlib import Path

from xdeepserve_cluster.binaries.catalog import Tool
from xdeepserve_cluster.binaries.modules import modules_directory


def cache_directory(environ: Mapping[str, str]) -> Path:
    """`$XDG_CACHE_HOME/xdeepserve`, else `~/.cache/xdeepserve`."""
    base = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home()) / ".cache"
    return Path(base) / "xdeepserve"


def cached_path(tool: Tool, environ: Mapping[str, str]) -> Path:
    """Where the built `tool` is, or will be."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((modules_directory() / tool.module / name).read_bytes())
    digest.update(f"{tool.linker_flags()} {platform.system()} {platform.machine()}".encode())
    folder = f"{tool.module}-{tool.version}-{digest.hexdigest()[:12]}"
    return cache_directory(environ) / "bin" / folder / tool.name
