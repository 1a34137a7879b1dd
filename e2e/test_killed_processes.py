"""SIGKILL to one process after another while completions stream: it comes back, and no stream breaks its promise."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import yaml

from e2e_streams import errors, kill_component, kill_operator, kill_pod, operator_leads, under_load
from xdeepserve_cluster import controlplane
from xdeepserve_demo.assets import asset
from xdeepserve_demo.reference import Reference
from xdeepserve_demo.session import NAMESPACE, Session
from xdeepserve_operator.runtime.resources import MODELDEPLOYMENTS

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def pod_names(served: Session, component: str) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in await served.pods()
        if pod["metadata"]["labels"]["app.kubernetes.io/component"] == component
    ]


async def groups(served: Session) -> list[str]:
    """The DP group of every engine pod: one twice would be a duplicate."""
    return sorted(name.rpartition("-")[0] for name in await pod_names(served, "engine"))


def report(record_property, **seconds: float) -> None:
    for name, value in seconds.items():
        record_property(name, round(value, 2))


@pytest.mark.parametrize(
    ("component", "which", "module", "codes"),
    [
        ("engine", "chat-decode-0-dp1", "flowserve.engine", {"engine_lost", "no_ready_decode"}),
        ("engine", "chat-decode-0-dp0", "flowserve.output", {"engine_lost", "no_ready_decode"}),
        ("engine", "chat-prefill-0-dp0", "flowserve.engine", {"no_ready_prefill"}),
        ("shell", "chat-decode-0-shell", "flowserve.shell", {"no_ready_decode"}),
        ("frontend", "chat-frontend", "flowserve.frontend", {"connection_lost", "no_ready_prefill"}),
    ],
    ids=["decode engine", "output child", "prefill engine", "TE-shell", "frontend"],
)
async def test_a_killed_process_comes_back(
    served: Session, reference: Reference, component: str, which: str, module: str, codes: set[str], record_property
) -> None:
    async with under_load(served, reference) as outage:
        name = next(name for name in await pod_names(served, component) if name.startswith(which))
        outage.strikes()
        kill_pod(served.cluster, name, module)
        report(record_property, healed=await outage.healed(), served=await outage.served())
    assert errors(outage.load) <= codes
    assert await groups(served) == ["chat-decode-0-dp0", "chat-decode-0-dp1", "chat-prefill-0-dp0"]


async def test_without_the_operator_serving_goes_on_and_what_was_asked_for_waits(
    served: Session, reference: Reference
) -> None:
    before = await pod_names(served, "engine")
    async with under_load(served, reference) as outage:
        outage.strikes()
        await served.api.create(MODELDEPLOYMENTS, quickstart("late"))
        await kill_operator(served)
        await outage.served()
        await served.tools.kubectl("wait", "--for=condition=Ready", "modeldeployment/late", "--timeout=60s")
    assert errors(outage.load) == set()
    assert served.deployment.transitions[-1][0] < outage.began, "Ready all the time"
    late = ["late-decode-0-dp0-0", "late-decode-0-dp1-0", "late-prefill-0-dp0-0"]
    assert await pod_names(served, "engine") == [*before, *late], "nothing lost, nothing twice"
    await served.tools.kubectl("delete", "modeldeployment", "late", "--cascade=foreground")
    assert await pod_names(served, "engine") == before


def quickstart(name: str) -> dict[str, Any]:
    """The quickstart's ModelDeployment under another name."""
    manifests = yaml.safe_load_all((asset("examples") / "quickstart.yaml").read_text())
    found = next(one for one in manifests if one["kind"] == "ModelDeployment")
    return found | {"metadata": {"name": name, "namespace": NAMESPACE}}


async def test_serving_goes_on_without_the_api_server(served: Session, reference: Reference) -> None:
    before = await pod_names(served, "engine")
    async with under_load(served, reference) as outage:
        outage.strikes()
        kill_component(served.cluster, "kube-apiserver")
        await outage.served()
        await repair(served)
        outage.strikes()
        await outage.served()
        await operator_leads(served)
    assert errors(outage.load) == set()
    assert await pod_names(served, "engine") == before


async def test_the_servers_come_back_with_everything_on_them(
    served: Session, reference: Reference, record_property
) -> None:
    async with under_load(served, reference) as outage:
        outage.strikes()
        kill_component(served.cluster, "agent")
        await repair(served)
        report(record_property, healed=await outage.healed(), served=await outage.served())
    assert await groups(served) == ["chat-decode-0-dp0", "chat-decode-0-dp1", "chat-prefill-0-dp0"]


async def repair(served: Session) -> None:
    """``xdeepserve cluster up`` again."""
    cluster = served.cluster
    await asyncio.to_thread(controlplane.up, cluster.spec, root=cluster.directory.parent)
