"""The tiny checkpoint, loaded once, and the reference's numbers for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from flowserve.cache import BlockPool
from flowserve.model import ExpertWeights, LocalExperts, Model, Weights
from flowserve.model.checkpoint import Checkpoint
from flowserve.model.weights import model_shapes

from .checkpoints import ROOT, TINY, Damage, write_tensors

BATCH = 8


@pytest.fixture(scope="session")
def weights() -> Weights:
    return Weights.open(TINY)


@pytest.fixture(scope="session")
def model(weights: Weights) -> Model:
    return Model(weights, BATCH)


@pytest.fixture(scope="session")
def all_experts(weights: Weights) -> ExpertWeights:
    return ExpertWeights(weights)


@pytest.fixture(scope="session")
def local(all_experts: ExpertWeights) -> LocalExperts:
    return LocalExperts(all_experts)


@pytest.fixture
def pool(model: Model) -> BlockPool:
    return model.new_pool(num_blocks=64, block_size=16)


@pytest.fixture(scope="session")
def golden() -> Mapping[str, np.ndarray]:
    with np.load(ROOT / "tests/data/tiny-deepseek-v3/golden.npz") as arrays:
        return dict(arrays)


@pytest.fixture
def copy_of_tiny(tmp_path: Path, weights: Weights) -> Callable[[Damage], Path]:
    """Makes a copy of the tiny checkpoint, without its MTP layer, whose tensors a function may change first."""

    def make(damage: Damage) -> Path:
        checkpoint = Checkpoint(TINY)
        tensors = {name: checkpoint.read(name).copy() for name, _ in model_shapes(weights.config)}
        damage(tensors)
        (tmp_path / "config.json").write_bytes((TINY / "config.json").read_bytes())
        write_tensors(tmp_path / "model.safetensors", tensors)
        return tmp_path

    return make
