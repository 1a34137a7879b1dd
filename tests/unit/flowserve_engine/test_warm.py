"""A warm engine takes one assignment, for what it was started with, from who has the token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from flowserve.engine.warm import Waiting, application, read_ahead
from flowserve.epoch import Refused
from flowserve.wire import EngineConfig

STARTED = EngineConfig(
    name="te-warm-0",
    instance="te",
    role="Decode",
    dp_rank=0,
    model_name="m",
    model_uri="file:///models/m",
    host="127.0.0.5",
    warm=True,
)
GROUP = STARTED.model_copy(update={"name": "te-1-dp3", "instance": "te-1", "dp_rank": 3, "warm": False})


async def test_it_becomes_the_group_that_it_is_assigned_to_and_no_other() -> None:
    waiting = Waiting(STARTED)
    waiting.take(GROUP)
    assert await waiting.given() == GROUP
    waiting.take(GROUP)
    with pytest.raises(Refused, match="is te-1-dp3 already"):
        waiting.take(GROUP.model_copy(update={"name": "te-1-dp4"}))


@pytest.mark.parametrize(
    "other", [{"model_uri": "file:///models/n"}, {"role": "Prefill"}, {"host": "127.0.0.6"}, {"fabric_port": 1}]
)
async def test_what_its_output_process_has_already_cannot_change(other: dict[str, Any]) -> None:
    with pytest.raises(Refused, match=f"another {next(iter(other))}"):
        Waiting(STARTED).take(GROUP.model_copy(update=other))


async def test_it_cannot_be_told_to_go_on_waiting() -> None:
    with pytest.raises(Refused, match="must not be warm"):
        Waiting(STARTED).take(STARTED)


async def test_it_is_alive_not_ready_and_listens_to_the_token_only() -> None:
    waiting = Waiting(STARTED)
    async with TestClient(TestServer(application("secret", waiting))) as client:
        assert (await client.get("/health")).status == 200
        assert (await client.get("/health/ready")).status == 503
        body, mine = GROUP.model_dump_json(), {"Authorization": "Bearer secret"}
        assert (await client.put("/v1/assignment", data=body)).status == 401
        assert (await client.put("/v1/assignment", data="{}", headers=mine)).status == 422
        assert (await client.put("/v1/assignment", data=body, headers=mine)).status == 200
        other = GROUP.model_copy(update={"dp_rank": 4}).model_dump_json()
        assert (await client.put("/v1/assignment", data=other, headers=mine)).status == 409
    assert await waiting.given() == GROUP


def test_a_checkpoint_is_read_ahead_shard_by_shard(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(bytes(5))
    (tmp_path / "b.safetensors").write_bytes(bytes(7))
    (tmp_path / "config.json").write_text("{}")
    assert read_ahead(tmp_path) == 12
