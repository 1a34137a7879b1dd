"""A warm engine on the emulated servers: an instance is made of it without a new process."""

from __future__ import annotations

import asyncio
import json

from operator_site import Object, Site
from typer.testing import CliRunner

from xdeepserve_cli.main import app
from xdeepserve_operator.api import names
from xdeepserve_operator.runtime.resources import TASKEXECUTORS


async def typed(command: str, name: str, here: Site) -> Object:
    """What a command of ours prints about an object, as JSON."""
    line = [command, name, "-n", here.namespace, "-o", "json", "--kubeconfig", str(here.cluster.kubeconfig)]
    done = await asyncio.to_thread(CliRunner().invoke, app, line)
    assert done.exit_code == 0, done.output
    document: Object = json.loads(done.stdout)
    return document


async def test_scaling_up_takes_the_engine_that_waits(here: Site) -> None:
    await here.until_all_dies_are_free()
    await here.deploy(decode={"warm": 1, "weightsFrom": "Peer", "parallelism": {"dp": 1, "tp": 1, "ep": 1}})
    await here.ready()

    def warm(executor: Object) -> bool:
        return int(executor.get("status", {}).get("warm", 0)) == 1

    await here.until(TASKEXECUTORS, "chat-decode", warm, "an engine waits")
    explained = await typed("explain-placement", "chat-decode", here)
    assert explained["kv"].startswith("its KV crosses UB; ")
    assert [one["groups"] for one in explained["servers"] if one["groups"]] == [1]
    assert sum(one["warm"] for one in explained["servers"]) == 1

    await here.kubectl("scale", "taskexecutor/chat-decode", "--replicas=2")

    def two(executor: Object) -> bool:
        return int(executor.get("status", {}).get("readyReplicas", 0)) == 2

    await here.until(TASKEXECUTORS, "chat-decode", two, "two instances serve")
    engines = {pod["metadata"]["name"]: pod for pod in await here.engines()}
    labels = engines["chat-decode-warm-0"]["metadata"]["labels"]
    assert labels[names.LABEL_GROUP] == "chat-decode-1-dp0"
    log = await here.kubectl("logs", "chat-decode-warm-0")
    assert '"event": "loaded"' in log
    assert "read from the disk" not in log, "its weights came from the first instance"
    assert engines["chat-decode-warm-0"]["status"]["containerStatuses"][0]["restartCount"] == 0
