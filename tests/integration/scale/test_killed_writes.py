"""``kill -9`` of the operator in the middle of everything, on a real API server: it always comes to the same end.

One operator after another lives for a few writes only. By default every thirtieth write is somebody's last; with
XDEEPSERVE_EVERY_WRITE=1 each one is.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xdeepserve_bench.control_plane.hollow import Hollow, names_of, owner_uids
from xdeepserve_bench.control_plane.manifests import NAMESPACE, deployment
from xdeepserve_bench.control_plane.watch import Watched, watched
from xdeepserve_operator.api.names import COMPONENT_ENGINE, LABEL_COMPONENT, LABEL_GROUP
from xdeepserve_operator.planner.conditions import find_condition
from xdeepserve_operator.runtime.resources import DPGROUPS, MODELDEPLOYMENTS, PODS, TASKEXECUTORS

EVERY_WRITE = bool(os.environ.get("XDEEPSERVE_EVERY_WRITE"))
WRITES_OF_A_LIFE = 1 if EVERY_WRITE else 30
SECONDS = 900.0 if EVERY_WRITE else 180.0
ENGINES = f"{LABEL_COMPONENT}={COMPONENT_ENGINE}"
MORTAL = Path(__file__).with_name("mortal_operator.py")
Object = dict[str, Any]


@dataclass
class Lives:
    """How often the operator died."""

    deaths: int = 0


@asynccontextmanager
async def mortal_operator(hollow: Hollow) -> AsyncIterator[Lives]:
    """An operator that is started again each time it dies, under its old identity as a restarted container is."""
    lives = Lives()
    environment = await hollow.operator_environment()
    argv = [sys.executable, "-P", str(MORTAL), str(WRITES_OF_A_LIFE)]

    async def live() -> None:
        while True:
            process = hollow.operators["operator"] = hollow.spawn("operator", argv, environment)
            while process.alive():  # noqa: ASYNC110 - it is no child of ours to wait for
                await asyncio.sleep(0.02)
            lives.deaths += 1

    living = asyncio.create_task(live())
    try:
        yield lives
    finally:
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)
        hollow.stop(hollow.operators["operator"])


async def test_a_life_of_few_writes_is_enough_for_everything(hollow: Hollow) -> None:
    async with mortal_operator(hollow) as lives, watched(hollow.api, MODELDEPLOYMENTS, NAMESPACE) as deployments:

        async def came_to(what: str, decode: int, batch: int, generation: int = 1) -> None:
            try:
                await deployments.until(lambda: settled(deployments, decode, generation), f"{what} is done", SECONDS)
            except RuntimeError as error:
                error.add_note(f"after {lives.deaths} deaths: {deployments.objects['small'].get('status')}")
                raise
            await whole(hollow, decode, batch)

        await hollow.api.create(MODELDEPLOYMENTS, deployment("small", "pod-0", 2))
        await came_to("create", 1, 8)
        await hollow.api.patch(TASKEXECUTORS, "small-decode", {"spec": {"replicas": 2}}, NAMESPACE, subresource="scale")
        await came_to("scale", 2, 8)
        changed = deployment("small", "pod-0", 2, batch=4)["spec"]["roles"]
        await hollow.api.patch(MODELDEPLOYMENTS, "small", {"spec": {"roles": changed}}, NAMESPACE)
        await came_to("roll out", 2, 4, generation=2)
        await hollow.api.delete(MODELDEPLOYMENTS, "small", NAMESPACE)
        async with asyncio.timeout(SECONDS):
            while [*await names_of(hollow.api, DPGROUPS), *await names_of(hollow.api, PODS)]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert lives.deaths >= (40 if EVERY_WRITE else 2), "those who die were too few"


def settled(deployments: Watched, decode: int, generation: int) -> bool:
    """Ready and rolled out at this generation of the spec, with so many decode instances."""
    obj: Object = deployments.objects.get("small", {})
    progress = find_condition(obj, "Progressing") or {}
    ready = {one["name"]: one["ready"] for one in obj.get("status", {}).get("roles") or ()}
    observed = progress.get("observedGeneration") == obj.get("metadata", {}).get("generation") == generation
    return (
        deployments.ready("small")
        and observed
        and progress["reason"] == "Complete"
        and ready == {"prefill": 1, "decode": decode}
    )


async def whole(hollow: Hollow, decode: int, batch: int) -> None:
    """Nothing is there twice, nothing belongs to nobody, and every pod is of the newest revision."""
    groups, _ = await hollow.api.list(DPGROUPS, NAMESPACE)
    expected = {"small-prefill-0-dp0", *(f"small-decode-{one}-dp{dp}" for one in range(decode) for dp in range(2))}
    assert {group["metadata"]["name"] for group in groups} == expected
    executors, _ = await hollow.api.list(TASKEXECUTORS, NAMESPACE)
    owners = {one["metadata"]["uid"] for one in (*executors, *groups)}
    async with asyncio.timeout(SECONDS):
        while True:  # what was replaced still ends
            pods, _ = await hollow.api.list(PODS, NAMESPACE, labels=ENGINES)
            alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
            if len(alive) == len(pods):
                break
            await asyncio.sleep(0.1)
    assert sorted(pod["metadata"]["labels"][LABEL_GROUP] for pod in alive) == sorted(expected)
    assert all(set(owner_uids(obj)) <= owners for obj in alive)
    sizes = [text for pod in alive if "decode" in pod["metadata"]["name"] for text in [str(pod["spec"])]]
    assert all(f'"max_batch":{batch}' in text for text in sizes)
