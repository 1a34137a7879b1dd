"""Fixtures: a running frontend, an HTTP client, the official OpenAI client."""

from collections.abc import AsyncIterator

import aiohttp
import openai
import pytest

from tests.unit.flowserve_frontend.fakes import World, running_world


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running_world() as running:
        yield running


@pytest.fixture
async def http(world: World) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(world.url) as session:
        yield session


@pytest.fixture
async def client(world: World) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{world.url}/v1", api_key="any", max_retries=0) as ready:
        yield ready
