"""The house rules that a program can check: layers, types, style, size of files, place of tests."""

import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

PRODUCT = ("operator", "dataplane", "fabric", "cluster", "e2e", "bench")
TOOLS = {
    "layers": ["lint-imports"],
    "types": ["mypy"],
    "lint": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
}
LONGEST_FILE, MEDIAN_FILE = 400, 120  # lines


def python_files(root: Path, *directories: str) -> list[Path]:
    return sorted(
        path for name in directories for path in (root / name).rglob("*.py") if "__pycache__" not in path.parts
    )


@pytest.mark.parametrize("name", TOOLS)
def test_the_tool_has_nothing_to_say(root: Path, name: str) -> None:
    command, *arguments = TOOLS[name]
    done = subprocess.run(
        [Path(sys.executable).parent / command, *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_file_is_too_long_to_fit_in_the_head(root: Path) -> None:
    lengths = {
        path: len(path.read_text(encoding="utf-8").splitlines()) for path in python_files(root, *PRODUCT, "tests")
    }
    assert {str(path): length for path, length in lengths.items() if length > LONGEST_FILE} == {}


def test_most_files_are_short(root: Path) -> None:
    lengths = [len(path.read_text(encoding="utf-8").splitlines()) for path in python_files(root, *PRODUCT)]
    assert median(length for length in lengths if length > 1) < MEDIAN_FILE


def test_every_test_belongs_to_a_ring(root: Path) -> None:
    rings = [root / "tests" / ring for ring in ("unit", "contract", "integration")] + [root / "e2e"]
    tests = [path for path in python_files(root, *PRODUCT, "tests") if path.name.startswith("test_")]
    assert [str(path) for path in tests if not any(path.is_relative_to(ring) for ring in rings)] == []


def test_every_module_says_what_it_is(root: Path) -> None:
    silent = [
        path for path in python_files(root, *PRODUCT) if not path.read_text(encoding="utf-8").lstrip().startswith('"""')
    ]
    assert [str(path) for path in silent] == []


def test_the_operators_folder_is_no_package(root: Path) -> None:
    assert not (root / "operator" / "__init__.py").exists(), "it would hide the standard library's module"
