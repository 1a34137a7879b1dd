"""Instances come, go and are replaced as their numbers and their spec say; nobody's word is overruled."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from operator_site import MODEL, Object, Site

from xdeepserve_demo.client import run_load
from xdeepserve_operator.api.names import LABEL_MANAGED_BY, MANAGED_BY
from xdeepserve_operator.runtime.engines import EngineClient
from xdeepserve_operator.runtime.resources import (
    CONTROLLERREVISIONS,
    DEPLOYMENTS,
    DPGROUPS,
    MODELDEPLOYMENTS,
    PODS,
    SECRETS,
    SERVICES,
    TASKEXECUTORS,
    Resource,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTLED_SECONDS = 3.0
SLO = {"ttftMilliseconds": 1000, "tpotMilliseconds": 50}
CHILDREN = (PODS, SECRETS, SERVICES, DEPLOYMENTS, TASKEXECUTORS, DPGROUPS, CONTROLLERREVISIONS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chat(shared: Site) -> AsyncIterator[Site]:
    """A deployment that serves; the tests change it one after another."""
    await shared.deploy()
    await shared.ready()
    yield shared


async def replicas(site: Site, executor: str) -> tuple[int, int]:
    """Asked for and serving."""
    found = await site.api.get(TASKEXECUTORS, executor, site.namespace)
    return found["spec"]["replicas"], found["status"]["readyReplicas"]


async def iterations(site: Site, executor: str) -> dict[str, int]:
    """Iterations of each instance's engines so far, by the instance's name."""
    secret = await site.api.get(SECRETS, "chat-control", site.namespace)
    token = b64decode(secret["data"]["token"]).decode()
    found = await site.api.get(TASKEXECUTORS, executor, site.namespace)
    counted: dict[str, int] = {}
    async with aiohttp.ClientSession() as http:
        for shell in (await site.api.list(PODS, site.namespace, labels=found["status"]["selector"]))[0]:
            said = await EngineClient(http).shell_status(shell["status"]["podIP"], token)
            assert said is not None
            counted[said.instance] = sum(rank.status.iterations for rank in said.ranks if rank.status)
    return counted


async def test_kubectl_scale_adds_an_instance_that_takes_its_share(chat: Site) -> None:
    await chat.kubectl("scale", "te/chat-decode", "--replicas=2")
    await chat.ready("chat-decode", TASKEXECUTORS)
    deployment = await chat.ready()
    assert deployment["status"]["readyRoles"] == "P 1/1 D 2/2"
    before = await iterations(chat, "chat-decode")
    assert set(before) == {"chat-decode-0", "chat-decode-1"}

    results = await run_load(deployment["status"]["endpoint"], MODEL, ["hello"] * 8, 4, max_tokens=12)
    assert [result.error for result in results] == [None] * 8
    async with asyncio.timeout(10):  # heartbeats bring the counts
        while not all(  # noqa: ASYNC110
            count > before[name] for name, count in (await iterations(chat, "chat-decode")).items()
        ):
            await asyncio.sleep(0.2)


async def test_what_kubectl_scaled_stays_until_the_role_itself_changes(chat: Site) -> None:
    await chat.api.patch(MODELDEPLOYMENTS, "chat", {"spec": {"slo": SLO}}, chat.namespace)
    await asyncio.sleep(SETTLED_SECONDS)
    assert await replicas(chat, "chat-decode") == (2, 2)

    await chat.kubectl("scale", "te/chat-decode", "--replicas=1")
    await chat.ready("chat-decode", TASKEXECUTORS)
    assert await replicas(chat, "chat-decode") == (1, 1)
    for group in ("chat-decode-1-dp0", "chat-decode-1-dp1"):
        await chat.gone(DPGROUPS, group)

    change = {"op": "add", "path": "/spec/roles/0/replicas", "value": 2}
    await chat.api.patch(MODELDEPLOYMENTS, "chat", [change], chat.namespace)
    assert (await chat.ready())["status"]["readyRoles"] == "P 2/2 D 1/1"
    assert await replicas(chat, "chat-prefill") == (2, 2)


async def test_a_change_of_the_spec_never_takes_both_instances(chat: Site) -> None:
    await chat.kubectl("scale", "te/chat-decode", "--replicas=2")
    await chat.ready("chat-decode", TASKEXECUTORS)
    before = {group["metadata"]["name"]: group["spec"]["revision"] for group in await decode_groups(chat)}
    seen: list[int] = []
    async with chat.following(TASKEXECUTORS, "chat-decode") as executor:

        def updated(obj: Object) -> bool:
            seen.append(obj["status"].get("readyReplicas", 0))
            return obj["status"].get("updatedReplicas") == 2 and seen[-1] == 2 and min(seen) == 1

        change = {"op": "add", "path": "/spec/roles/1/maxBatchPerGroup", "value": 4}
        await chat.api.patch(MODELDEPLOYMENTS, "chat", [change], chat.namespace)
        await executor.until(updated, "updated", 60)
    await chat.ready()
    assert min(seen) == 1
    after = {group["metadata"]["name"]: group["spec"]["revision"] for group in await decode_groups(chat)}
    assert after.keys() == before.keys()
    assert set(after.values()).isdisjoint(before.values())


async def test_deletion_leaves_nothing_and_the_name_is_free_at_once(chat: Site) -> None:
    await chat.api.delete(MODELDEPLOYMENTS, "chat", chat.namespace)
    await chat.deploy()
    again = await chat.ready()
    answers = await run_load(again["status"]["endpoint"], MODEL, ["hello"], 1, max_tokens=4)
    assert answers[0].error is None

    await chat.api.delete(MODELDEPLOYMENTS, "chat", chat.namespace)
    async with asyncio.timeout(30):
        while any([await mine(chat, kind) for kind in CHILDREN]):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    await chat.until_all_dies_are_free()


async def decode_groups(site: Site) -> list[Object]:
    found, _ = await site.api.list(DPGROUPS, site.namespace)
    return [group for group in found if group["spec"]["role"] == "Decode"]


async def mine(site: Site, kind: Resource) -> list[str]:
    return await site.names(kind, f"{LABEL_MANAGED_BY}={MANAGED_BY}")
