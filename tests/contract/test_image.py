"""The Dockerfile can find what it copies, and makes an image that runs unprivileged."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest


@pytest.fixture
def instructions(root: Path) -> list[tuple[str, list[str]]]:
    """(instruction, words), comments and line breaks removed."""
    text = re.sub(r"\\\n\s*", " ", (root / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(words[0], words[1:]) for words in map(shlex.split, lines)]


def copied(instructions: list[tuple[str, list[str]]]) -> list[str]:
    return [source for name, words in instructions if name == "COPY" for source in words[:-1]]


def test_what_is_copied_exists(root: Path, instructions: list[tuple[str, list[str]]]) -> None:
    assert [source for source in copied(instructions) if not (root / source).exists()] == []


def test_what_is_copied_is_in_the_context(root: Path, instructions: list[tuple[str, list[str]]]) -> None:
    lines = (root / ".dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert "*" in lines
    assert {source.split("/")[0] for source in copied(instructions)} == allowed


def test_what_the_wheel_is_made_of_is_copied(root: Path, instructions: list[tuple[str, list[str]]]) -> None:
    wheel = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    parts = {Path(part).parts[0] for part in [*wheel["packages"], *wheel["force-include"]]}
    assert parts <= set(copied(instructions))


def test_the_image_runs_as_the_charts_user(root: Path, instructions: list[tuple[str, list[str]]]) -> None:
    (user,) = [words for name, words in instructions if name == "USER"]
    assert user == ["65532:65532"]
    assert "runAsUser: 65532" in (root / "helm/xdeepserve/templates/deployment.yaml").read_text(encoding="utf-8")


def test_the_image_has_the_models_where_engines_look(instructions: list[tuple[str, list[str]]]) -> None:
    destinations = [words[-1] for name, words in instructions if name == "COPY"]
    assert "/models/austen-deepseek-v3" in destinations
