"""Writes that must arrive."""

from __future__ import annotations

import aiohttp
import pytest

from xdeepserve_cluster.agent import retries
from xdeepserve_cluster.agent.retries import insist
from xdeepserve_operator.runtime.kube import AlreadyExists, ApiError, Conflict, NotFound, TooManyRequests


async def attempts(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> tuple[bool, int]:
    """What `insist` says, and how often it called, when the first calls fail."""
    monkeypatch.setattr(retries, "FIRST_WAIT_S", 0.0)
    left, calls = list(errors), 0

    async def call() -> None:
        nonlocal calls
        calls += 1
        if left:
            raise left.pop(0)

    return await insist(call, "a write", pointless=lambda: calls > 5), calls


@pytest.mark.parametrize(
    "error",
    [
        ApiError(500, "InternalError", ""),
        TooManyRequests(429, "TooManyRequests", ""),
        Conflict(409, "Conflict", "the object has been modified"),
        aiohttp.ServerDisconnectedError(),
        TimeoutError(),
    ],
)
async def test_what_may_pass_is_tried_again(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await attempts(monkeypatch, error, error) == (True, 3)


@pytest.mark.parametrize(
    "error",
    [NotFound(404, "NotFound", ""), AlreadyExists(409, "AlreadyExists", ""), ApiError(422, "Invalid", "bad field")],
)
async def test_what_will_not_pass_is_not(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await attempts(monkeypatch, error) == (False, 1)


async def test_it_ends_when_it_became_pointless(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await attempts(monkeypatch, *[TimeoutError()] * 100) == (False, 6)
