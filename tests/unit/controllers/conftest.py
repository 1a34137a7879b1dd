"""A settled quickstart, ready to be broken."""

import pytest

from . import manifests
from .driver import World


@pytest.fixture
async def chat() -> World:
    """The quickstart's deployment, Ready."""
    world = World()
    world.api.add("SuperPod", manifests.superpod())
    world.api.add("ModelDeployment", manifests.deployment())
    await world.settle()
    return world
