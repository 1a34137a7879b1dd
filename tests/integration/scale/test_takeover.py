"""Two operators, one Lease, on a real API server: the leader is killed, and the other goes on where it stood."""

from __future__ import annotations

import os
import signal
import time

from scale_steps import SECONDS, bring_up

from xdeepserve_bench.control_plane.hollow import OPERATOR_HOST, SECOND_HOST, Hollow
from xdeepserve_bench.control_plane.manifests import NAMESPACE
from xdeepserve_bench.control_plane.watch import watched
from xdeepserve_demo.install import NAMESPACE as SYSTEM
from xdeepserve_operator.api.names import LABEL_COMPONENT
from xdeepserve_operator.runtime.resources import LEASES, PODS

LEASE = "xdeepserve-operator"


async def test_a_killed_leader_is_succeeded_within_15_seconds_and_nothing_is_lost(hollow: Hollow):
    for identity, host in (("one", OPERATOR_HOST), ("two", SECOND_HOST)):
        await hollow.start_operator(identity, host)
    await bring_up(hollow, "small")
    async with (
        watched(hollow.api, LEASES, SYSTEM) as leases,
        watched(hollow.api, PODS, NAMESPACE, f"{LABEL_COMPONENT}=engine") as pods,
    ):
        leader = leases.objects[LEASE]["spec"]["holderIdentity"]
        before = {pod["metadata"]["uid"] for pod in pods.objects.values()}
        os.kill(hollow.operators[leader].pid, signal.SIGKILL)
        killed = time.monotonic()
        victim = sorted(pods.objects)[0]
        await hollow.api.delete(PODS, victim, NAMESPACE, grace_seconds=0)
        await leases.until(
            lambda: leases.objects[LEASE]["spec"]["holderIdentity"] not in (leader, ""), "another leads", SECONDS
        )
        assert time.monotonic() - killed < 15
        await pods.until(lambda: pods.ready_count() == len(before), "the lost pod is replaced", SECONDS)
        after = {pod["metadata"]["uid"] for pod in pods.objects.values()}
        assert len(before - after) == 1, "a new leader restarts nothing that is well"
