"""Versions: what commands print, and what is near enough."""

from __future__ import annotations

import pytest

from xdeepserve_cluster.binaries.modules import modules_directory, needed_go, pinned_version
from xdeepserve_cluster.binaries.versions import Version, parse_version


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("Kubernetes v1.34.4\n", Version(1, 34, 4)),
        ("etcd Version: 3.6.16\nGit SHA: Not provided\nGo Version: go1.26.8\n", Version(3, 6, 16)),
        ("Client Version: v1.33.0-rc.1+abc\nKustomize Version: v5.7.1\n", Version(1, 33, 0)),
        ("v3.22.0+g1a2b3c4\n", Version(3, 22, 0)),
        ("go version go1.26 linux/amd64\n", Version(1, 26, 0)),
        ("go1.27.3\n", Version(1, 27, 3)),
        ("kwok version v0.8.0 go1.26.8 (linux/amd64)\n", Version(0, 8, 0)),
        ("error: unknown flag: --version\n", None),
        ("", None),
    ],
)
def test_a_version_is_the_first_in_what_a_command_prints(printed: str, version: Version | None) -> None:
    assert parse_version(printed) == version


def test_versions_are_numbers_not_text() -> None:
    assert Version(1, 9, 0) < Version(1, 34, 0)


@pytest.mark.parametrize(("minor", "skew", "fits"), [(34, 0, True), (33, 0, False), (35, 1, True), (32, 1, False)])
def test_skew_counts_minors(minor: int, skew: int, fits: bool) -> None:
    assert Version(1, minor, 9).within(Version(1, 34, 4), skew) is fits


def test_another_major_never_fits() -> None:
    assert not Version(2, 34, 4).within(Version(1, 34, 4), 1)


def test_pins_are_read_from_the_module_files() -> None:
    assert pinned_version("kubernetes") == Version(1, 34, 4)
    assert pinned_version("etcd") == Version(3, 6, 16)
    assert pinned_version("helm") == Version(3, 22, 0)
    assert pinned_version("kwok") == Version(0, 8, 0)
    assert needed_go("helm") >= Version(1, 24, 0)
    assert (modules_directory() / "kubernetes" / "go.sum").is_file()
