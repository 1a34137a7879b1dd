"""The demo model, and the script that measures it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples/models"
MODEL = EXAMPLES / "austen-deepseek-v3"


@pytest.fixture(scope="session")
def measure() -> ModuleType:
    """examples/models/train/measure.py, which is a script and in no package."""
    spec = importlib.util.spec_from_file_location("measure", EXAMPLES / "train/measure.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["measure"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def reader(measure: ModuleType) -> Any:
    return measure.Reader(MODEL)
