"""Helm comes and goes; a second operator takes over; what serves does not notice."""

from __future__ import annotations

import asyncio
import time

from operator_site import MODEL, Site

from xdeepserve_demo.client import run_load
from xdeepserve_demo.install import NAMESPACE, install
from xdeepserve_operator.runtime.kube import NotFound
from xdeepserve_operator.runtime.resources import LEASES, PODS, TASKEXECUTORS

TAKEOVER_SECONDS = 15.0


async def holder(site: Site) -> str:
    """The operator pod that works; empty when none does."""
    try:
        lease = await site.api.get(LEASES, "xdeepserve-operator", NAMESPACE)
    except NotFound:
        return ""
    return str(lease["spec"].get("holderIdentity") or "")


async def test_a_second_operator_takes_over_when_the_first_is_gone(here: Site) -> None:
    await install(here.tools, "replicas=2")
    async with asyncio.timeout(60):
        while not (first := await holder(here)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    try:
        began = time.monotonic()
        await here.api.delete(PODS, first, NAMESPACE, grace_seconds=0)  # killed, and its Lease not released
        async with asyncio.timeout(60):
            while await holder(here) in ("", first):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert time.monotonic() - began < TAKEOVER_SECONDS
        await here.deploy()
        await here.ready()
    finally:
        await install(here.tools, "replicas=1")


async def test_what_serves_outlives_the_release(here: Site) -> None:
    await here.deploy()
    endpoint = (await here.ready())["status"]["endpoint"]
    pods = await here.names(PODS)
    await here.tools.helm("uninstall", "xdeepserve", "--namespace", NAMESPACE, "--wait")
    try:
        assert (await run_load(endpoint, MODEL, ["hello"], 1, max_tokens=4))[0].error is None
        await here.kubectl("scale", "te/chat-decode", "--replicas=2")
        assert await here.names(PODS) == pods
    finally:
        await install(here.tools, "leaseSeconds=6")  # of the Lease that the uninstalled one could not give back
    await here.ready("chat-decode", TASKEXECUTORS)
    assert set(pods) < set(await here.names(PODS)), "a new release goes on with what it finds"
