"""A machine that has nothing but fake commands."""

from __future__ import annotations

import io
from pathlib import Path

from xdeepserve_cluster.progress import Progress


class Machine:
    """Directories for fake commands, and the environment that leads to them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.printed = io.StringIO()
        self.progress = Progress(self.printed, interval_s=0.01)
        self.environ = {
            "HOME": str(root / "home"),
            "PATH": f"{root / 'path'}:/usr/bin:/bin",
            "KUBEBUILDER_ASSETS": str(root / "assets"),
        }

    def script(self, path: str, body: str) -> Path:
        """An executable shell script at `path` below the machine's root."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(0o755)
        return file
