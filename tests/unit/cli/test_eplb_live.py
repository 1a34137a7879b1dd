"""``eplb show|history|apply|pause|resume``: as a person types them, against an API server in this process."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from xdeepserve_cli.main import app
from xdeepserve_operator.api.names import ANNOTATION_APPLY_EXPERTS
from xdeepserve_operator.runtime.resources import EXPERTPLACEMENTS

from ..runtime.api_server import ApiServer, serve, write_kubeconfig

Object = dict[str, Any]
IMBALANCE = {"before": 306, "predicted": 104, "after": 107, "worstLayer": 112}
STATUS = {
    "instances": [
        {
            "index": 0,
            "mapVersion": 7,
            "imbalance": IMBALANCE,
            "layersDone": 3,
            "layersTotal": 3,
            "movedMebibytes": 12,
            "evacuated": [3],
            "message": "rank 3 is to hold no expert",
        }
    ],
    "history": [
        {
            "time": "2025-01-01T00:00:00.000Z",
            "index": 0,
            "version": 7,
            "outcome": "Applied",
            "layers": 3,
            "before": 306,
            "predicted": 104,
            "after": 107,
        }
    ],
    "conditions": [
        {
            "type": "Balanced",
            "status": "True",
            "reason": "Even",
            "message": "busiest rank 1.07 times the mean",
            "lastTransitionTime": "2025-01-01T00:00:00.000Z",
        }
    ],
}


class Place:
    """An ExpertPlacement, and a person with a terminal."""

    def __init__(self, server: ApiServer, kubeconfig: Path) -> None:
        self.server, self._kubeconfig = server, kubeconfig

    @property
    def chat(self) -> Object:
        return self.server.objects["expertplacements", "default", "chat"]

    async def type(self, *words: str) -> Result:
        line = ["eplb", *words, "--kubeconfig", str(self._kubeconfig)]
        return await asyncio.to_thread(CliRunner().invoke, app, line)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    server = ApiServer()
    runner = await serve(server)
    chat = {"metadata": {"name": "chat", "namespace": "default"}, "spec": {"targetRef": {"name": "d"}}}
    server.put(EXPERTPLACEMENTS, {**chat, "status": STATUS})
    yield Place(server, write_kubeconfig(tmp_path / "kubeconfig", server.url))
    await runner.cleanup()


async def test_show_tells_how_even_the_load_is(place: Place) -> None:
    shown = await place.type("show", "chat")
    assert shown.exit_code == 0, shown.output
    assert "3.06" in shown.output
    assert "1.07" in shown.output
    assert "Balanced" in shown.output
    assert "instance 0: rank 3 is to hold no expert" in shown.output
    assert yaml.safe_load((await place.type("show", "chat", "-o", "yaml")).output)["status"] == STATUS


async def test_history_lists_what_changed(place: Place) -> None:
    assert "Applied" in (await place.type("history", "chat")).output
    (event,) = json.loads((await place.type("history", "chat", "-o", "json")).output)
    assert (event["version"], event["after"]) == (7, 107)


async def test_apply_pause_and_resume_edit_the_object(place: Place) -> None:
    assert (await place.type("apply", "chat")).exit_code == 0
    assert place.chat["metadata"]["annotations"][ANNOTATION_APPLY_EXPERTS]
    assert "paused" in (await place.type("pause", "chat")).output
    assert place.chat["spec"]["paused"] is True
    await place.type("resume", "chat")
    assert place.chat["spec"]["paused"] is False
