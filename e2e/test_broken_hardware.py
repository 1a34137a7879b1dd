"""Hardware that hangs or vanishes while completions stream: detected by what real machines show, healed, told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from e2e_streams import HEAL_SECONDS, errors, kill_operator, operator_leads, under_load, until
from xdeepserve_demo.observe import Observer
from xdeepserve_demo.reference import Reference
from xdeepserve_demo.session import NAMESPACE, Session
from xdeepserve_operator.api.names import API_VERSION
from xdeepserve_operator.runtime.resources import FAULTINJECTIONS

pytestmark = pytest.mark.asyncio(loop_scope="session")
Object = dict[str, Any]


@asynccontextmanager
async def broken(served: Session, name: str, fault: str, target: Object) -> AsyncIterator[Observer]:
    """A FaultInjection as long as the block lasts; inside it was carried out, afterwards the deployment is Ready."""
    spec = {"target": target, "fault": {"type": fault}}
    body = {"apiVersion": API_VERSION, "kind": "FaultInjection", "spec": spec}
    await served.api.create(FAULTINJECTIONS, body | {"metadata": {"name": name, "namespace": NAMESPACE}})
    observer = Observer(name)
    following = asyncio.create_task(observer.follow(served.api, FAULTINJECTIONS, NAMESPACE))
    try:
        await observer.until(lambda obj: "injectedAt" in obj.get("status", {}), "carried out", HEAL_SECONDS)
        yield observer
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await served.api.delete(FAULTINJECTIONS, name, NAMESPACE)
        await served.endpoint()


async def recovery_seconds(observer: Observer) -> float:
    """How long it took, by the FaultInjection's own account."""
    told = await observer.until(lambda obj: "recoveredAt" in obj["status"], "told to be over", HEAL_SECONDS)
    return float(told["status"]["recoveryMilliseconds"]) / 1000


async def node_of(served: Session, pod_prefix: str) -> str:
    pods = [pod for pod in await served.pods() if pod["metadata"]["name"].startswith(pod_prefix)]
    return str(pods[0]["spec"]["nodeName"])


@pytest.mark.parametrize(("role", "code"), [("decode", "decode"), ("prefill", "prefill")])
async def test_a_die_that_hangs_is_heard_as_silence(
    served: Session, reference: Reference, role: str, code: str, record_property
) -> None:
    async with under_load(served, reference) as outage:
        outage.strikes()
        async with broken(served, f"hang-{role}", "DieHang", {"taskExecutor": f"chat-{role}"}) as fault:
            record_property("healed", await outage.healed())
            record_property("served", await outage.served())
            record_property("told", await recovery_seconds(fault))
    assert errors(outage.load) <= {"engine_lost", f"no_ready_{code}"}


async def test_a_lost_server_is_left(served: Session, reference: Reference, record_property) -> None:
    lost = await node_of(served, "chat-decode-0-dp0")
    async with under_load(served, reference) as outage:
        outage.strikes()
        async with broken(served, "lose-server", "NodeLoss", {"node": lost}) as fault:
            record_property("healed", await outage.healed())
            record_property("served", await outage.served())
            record_property("told", await recovery_seconds(fault))
            await until(lambda: _nothing_there(served, lost))


async def test_an_operator_killed_in_the_middle_of_a_recovery_loses_nothing(
    served: Session, reference: Reference
) -> None:
    async with under_load(served, reference) as outage:
        outage.strikes()
        async with broken(served, "kill-twice", "DieKill", {"taskExecutor": "chat-decode"}) as fault:
            await kill_operator(served)
            await operator_leads(served)
            await outage.served()
            await recovery_seconds(fault)
    groups = [pod["metadata"]["labels"].get("serving.xdeepserve.io/dp-group") for pod in await served.pods()]
    assert sorted(filter(None, groups)) == ["chat-decode-0-dp0", "chat-decode-0-dp1", "chat-prefill-0-dp0"]


async def _nothing_there(served: Session, node: str) -> bool:
    """Whether no pod of ours is bound to a server any more, ending ones included."""
    return all(pod["spec"].get("nodeName") != node for pod in await served.pods())
