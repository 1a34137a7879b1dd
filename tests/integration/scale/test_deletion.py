"""Deleting never waits for the operator: there is no finalizer, and owner references lead to everything."""

from __future__ import annotations

import asyncio

from scale_steps import bring_up

from xdeepserve_bench.control_plane.hollow import Hollow, names_of
from xdeepserve_bench.control_plane.manifests import NAMESPACE
from xdeepserve_operator.api.names import LABEL_MANAGED_BY, MANAGED_BY
from xdeepserve_operator.runtime.kube import NotFound
from xdeepserve_operator.runtime.resources import (
    CRDS,
    DEPLOYMENTS,
    DPGROUPS,
    MODELDEPLOYMENTS,
    PODS,
    SECRETS,
    SERVICES,
    SUPERPODS,
    TASKEXECUTORS,
)

OWNED = (TASKEXECUTORS, DPGROUPS, PODS, DEPLOYMENTS, SECRETS)
OURS = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
SECONDS = 180.0  # the garbage collector hears of new kinds every half minute


async def test_everything_goes_while_the_operator_is_down(hollow: Hollow):
    operator = await hollow.start_operator()
    await bring_up(hollow, "small")
    for kind in (MODELDEPLOYMENTS, *OWNED):
        items, _ = await hollow.api.list(kind, NAMESPACE, labels=OURS if kind in OWNED else "")
        assert items, kind.plural
        assert not [item for item in items if item["metadata"].get("finalizers")], kind.plural
    hollow.stop(operator)
    await hollow.api.delete(MODELDEPLOYMENTS, "small", NAMESPACE)
    async with asyncio.timeout(SECONDS):
        for kind in OWNED:
            while (await hollow.api.list(kind, NAMESPACE, labels=OURS))[0]:  # noqa: ASYNC110 - several kinds, one by one
                await asyncio.sleep(0.2)
    assert await names_of(hollow.api, SERVICES) == ["kubernetes"]


async def test_the_kinds_themselves_can_be_removed_with_objects_left_and_no_operator(hollow: Hollow):
    assert await names_of(hollow.api, SUPERPODS, "")
    crd = f"{SUPERPODS.plural}.{SUPERPODS.group}"
    await hollow.api.delete(CRDS, crd)
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                await hollow.api.get(CRDS, crd)
            except NotFound:
                return
            await asyncio.sleep(0.2)
