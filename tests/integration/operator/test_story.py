"""What kubectl tells: events that read as a story, columns that make sense, explanations of every field."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from operator_site import Site

from xdeepserve_operator.runtime.resources import EVENTS

pytestmark = pytest.mark.asyncio(loop_scope="module")
OURS = ("ModelDeployment", "TaskExecutor", "DPGroup")
KINDS = ("superpod", "modeldeployment", "taskexecutor", "dpgroup", "faultinjection")
QUIET_SECONDS = 4.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chat(shared: Site) -> AsyncIterator[Site]:
    """A deployment just after its first start."""
    await shared.deploy()
    await shared.ready()
    yield shared


async def test_a_first_start_is_told_in_few_words(chat: Site) -> None:
    async with asyncio.timeout(10):
        while len(told := await reasons(chat)) < 6:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    assert told == {
        ("ModelDeployment", "chat", "Normal", "Starting"),
        ("ModelDeployment", "chat", "Normal", "Ready"),
        ("TaskExecutor", "chat-prefill", "Normal", "Starting"),
        ("TaskExecutor", "chat-prefill", "Normal", "Ready"),
        ("TaskExecutor", "chat-decode", "Normal", "Starting"),
        ("TaskExecutor", "chat-decode", "Normal", "Ready"),
    }


async def test_an_idle_operator_writes_nothing(chat: Site) -> None:
    await asyncio.sleep(1)  # what the start still has to say
    before = await chat.operator_writes()
    await asyncio.sleep(QUIET_SECONDS)
    assert await chat.operator_writes() == before


async def test_the_columns_answer_what_one_asks_first(chat: Site) -> None:
    deployment = await table(chat, "modeldeployments")
    assert deployment["NAME"] == "chat"
    assert (deployment["READY"], deployment["REASON"], deployment["ROLES"]) == ("True", "Ready", "P 1/1 D 1/1")
    assert re.fullmatch(r"http://127\.[\d.]+:8000", deployment["ENDPOINT"])
    executor = await table(chat, "taskexecutors/chat-decode")
    assert [executor[column] for column in ("ROLE", "READY", "DESIRED", "SERVING")] == ["Decode", "True", "1", "1"]
    group = await table(chat, "dpgroups/chat-decode-0-dp1")
    assert (group["EXECUTOR"], group["READY"]) == ("chat-decode", "True")
    assert re.fullmatch(r"pod-a-910c-\d \d+", f"{group['NODE']} {group['DIE']}")
    superpod = await table(chat, "superpods/pod-a")
    assert (superpod["READY"], superpod["910B"], superpod["910C"]) == ("True", "16", "64")


@pytest.mark.parametrize("kind", KINDS)
async def test_every_field_is_explained(chat: Site, kind: str) -> None:
    for part in ("spec", "status"):
        text = await chat.kubectl("explain", f"{kind}.{part}")
        assert "<no description>" not in text
        fields = text.partition("FIELDS:")[2]
        assert re.search(r"^  \w+\t<", fields, re.MULTILINE), text


async def test_roles_read_well(chat: Site) -> None:
    text = await chat.kubectl("explain", "modeldeployment.spec.roles")
    for word in ("Decode runs on 910C only", "enum: Prefill, Decode", "a later change here scales once"):
        assert word in text


async def reasons(site: Site) -> set[tuple[str, str, str, str]]:
    """Kind, name, type and reason of every event about our kinds."""
    events, _ = await site.api.list(EVENTS, site.namespace)
    return {
        (about["kind"], about["name"], event["type"], event["reason"])
        for event in events
        if (about := event["involvedObject"])["kind"] in OURS
    }


async def table(site: Site, what: str) -> dict[str, str]:
    """The first row of ``kubectl get -o wide`` by column."""
    header, row, *_ = (await site.kubectl("get", what, "-o", "wide")).splitlines()
    starts = [match.start() for match in re.finditer(r"\S+", header)]
    cells = itertools.pairwise([*starts, max(len(header), len(row))])
    return {header[start:end].strip(): row[start:end].strip() for start, end in cells}
