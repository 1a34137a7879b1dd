"""The repository's root, and helm with its output as objects."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from xdeepserve_cluster.binaries import find_or_build
from xdeepserve_cluster.progress import Progress

ROOT = Path(__file__).parents[2]
Helm = Callable[..., subprocess.CompletedProcess[str]]
Render = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def helm() -> Helm:
    """Runs helm in ``helm/``, whatever it exits with."""
    binary = find_or_build(("helm",), progress=Progress())["helm"]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [binary, *arguments], cwd=ROOT / "helm", capture_output=True, text=True, timeout=60, check=False
        )

    return run


@pytest.fixture(scope="session")
def render(helm: Helm) -> Render:
    """The objects a chart renders to with ``--set`` settings, as release ``xdeepserve`` in ``serving``."""

    def run(chart: str, *settings: str, release: str = "xdeepserve") -> list[dict[str, Any]]:
        options = [word for setting in settings for word in ("--set", setting)]
        done = helm("template", release, chart, "--namespace", "serving", *options)
        assert done.returncode == 0, done.stderr
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    return run
