"""The pinned Go module files, one folder a project.

They are the only place where versions are written: what is looked for is what would be built.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from xdeepserve_cluster.binaries.versions import Version, parse_version
from xdeepserve_cluster.errors import ClusterError

_REQUIRE = re.compile(r"^require (\S+) (v\S+)$", re.MULTILINE)
_GO = re.compile(r"^go (\S+)$", re.MULTILINE)


@functools.cache
def modules_directory() -> Path:
    """Where the module files are: inside the installed package, or beside the package in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "modules", package.parent / "modules"):
        if candidate.is_dir():
            return candidate
    raise ClusterError(f"the Go module files are neither in {package} nor beside it: reinstall xdeepserve")


@functools.cache
def pinned_version(module: str) -> Version:
    """The version that `module`'s one direct requirement is pinned to."""
    return _search(module, _REQUIRE, 2)


@functools.cache
def needed_go(module: str) -> Version:
    """The oldest Go that can build `module`."""
    return _search(module, _GO, 1)


def _search(module: str, pattern: re.Pattern[str], group: int) -> Version:
    path = modules_directory() / module / "go.mod"
    match = pattern.search(path.read_text())
    version = match and parse_version(match[group])
    if not version:
        raise ClusterError(f"{path} lacks a line like '{pattern.pattern}'")
    return version
