"""Experts of a deployment that serves are balanced, and every answer is what it would have been without."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from operator_site import MODEL, Object, Site

from xdeepserve_demo.client import run_load
from xdeepserve_demo.observe import condition
from xdeepserve_operator.runtime.resources import CONFIGMAPS, EXPERTPLACEMENTS, MODELDEPLOYMENTS

pytestmark = pytest.mark.asyncio(loop_scope="module")
BALANCING = {"intervalSeconds": 1, "limits": {"minImbalancePercent": 100, "minGainPercent": 1}}
PLACEMENT, FIELD = "chat-decode", "/spec/roles/1/expertPlacement"
PROMPTS = ["hello", "what is a die?", "tell me more", "hello"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chat(shared: Site) -> AsyncIterator[Site]:
    """A deployment that serves."""
    await shared.deploy()
    await shared.ready()
    yield shared


async def answers(site: Site) -> list[list[int]]:
    deployment = await site.api.get(MODELDEPLOYMENTS, "chat", site.namespace)
    results = await run_load(
        deployment["status"]["endpoint"], MODEL, PROMPTS, len(PROMPTS), max_tokens=200, ignore_eos=True
    )
    assert [result.error for result in results] == [None] * len(PROMPTS)
    return [list(result.token_ids) for result in results]


def applied(placement: Object) -> bool:
    return any(event["outcome"] == "Applied" for event in placement.get("status", {}).get("history", []))


async def test_experts_move_under_load_and_answers_stay(chat: Site) -> None:
    before = await answers(chat)
    wish = [{"op": "add", "path": FIELD, "value": BALANCING}]
    await chat.api.patch(MODELDEPLOYMENTS, "chat", wish, chat.namespace)
    async with chat.following(EXPERTPLACEMENTS, PLACEMENT) as observer:
        balancing = asyncio.create_task(observer.until(applied, "balanced", 60))
        while not balancing.done():
            assert await answers(chat) == before
        placement = await balancing
    instance = placement["status"]["instances"][0]
    assert instance["mapVersion"] >= 1
    assert instance["missingExperts"] == 0
    assert condition(placement, "Ready")["status"] == "True"
    assert condition(placement, "ReplicaComplete")["status"] == "True"
    stored = await chat.api.get(CONFIGMAPS, instance["mapRef"], chat.namespace)
    assert set(json.loads(stored["data"]["map.json"])["layers"]) == {"1", "2", "3"}
    assert await answers(chat) == before


def emptied(stored: Object) -> bool:
    layers = json.loads(stored["data"]["map.json"])["layers"]
    return all(set(slots[1]) == {-1} for slots in layers.values())


def done(placement: Object) -> bool:
    instance = placement["status"]["instances"][0]
    return bool(instance["swapPhase"] == "Idle" and instance["layersDone"] == instance["layersTotal"])


async def test_a_rank_is_emptied_by_hand_and_the_deployment_lets_it_be(chat: Site) -> None:
    before = await answers(chat)
    await chat.api.patch(EXPERTPLACEMENTS, PLACEMENT, {"spec": {"evacuate": [1]}}, chat.namespace)
    await chat.until(CONFIGMAPS, f"{PLACEMENT}-0-map", emptied, "a map without rank 1")
    placement = await chat.until(EXPERTPLACEMENTS, PLACEMENT, done, "in force")
    assert placement["spec"]["evacuate"] == [1]
    assert placement["status"]["instances"][0]["missingExperts"] == 0
    assert await answers(chat) == before


async def test_kubectl_shows_it_and_its_maps_go_with_it(chat: Site) -> None:
    line = (await chat.kubectl("get", "xep", PLACEMENT)).splitlines()[1]
    assert "Dynamic" in line
    await chat.api.patch(MODELDEPLOYMENTS, "chat", [{"op": "remove", "path": FIELD}], chat.namespace)
    await chat.gone(EXPERTPLACEMENTS, PLACEMENT)
    await chat.gone(CONFIGMAPS, f"{PLACEMENT}-0-map")
