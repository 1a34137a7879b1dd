"""The order of things, and how much of each."""

import asyncio
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from xdeepserve_bench.control_plane import phases
from xdeepserve_bench.control_plane.hollow import hollow_cluster
from xdeepserve_bench.control_plane.soak import soak
from xdeepserve_bench.report import Report
from xdeepserve_cluster.progress import Progress


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    runs: int
    deaths: int
    deployments: int
    superpods: int
    idle_seconds: float
    soak_minutes: float


FULL = Plan(runs=3, deaths=100, deployments=100, superpods=10, idle_seconds=60, soak_minutes=30)
QUICK = Plan(runs=1, deaths=20, deployments=100, superpods=3, idle_seconds=20, soak_minutes=2)


def run(*, quick: bool) -> Report:
    """Runs it; progress goes to standard error."""
    return asyncio.run(_run(QUICK if quick else FULL))


async def _run(plan: Plan) -> Report:
    report, progress = Report("control-plane"), Progress()
    minutes = float(os.environ.get("XDEEPSERVE_SOAK_MINUTES", plan.soak_minutes))
    with tempfile.TemporaryDirectory(prefix="xdeepserve-bench-") as root:
        async with hollow_cluster(Path(root), progress) as hollow:
            await hollow.add_superpod("pod-0")
            runs: list[phases.Comparison] = []
            for last in [*[False] * (plan.runs - 1), True]:
                with progress.step("the peer, up and down, no operator running"):
                    peer = await phases.peer(hollow, f"peer-{len(runs)}")
                operator = await hollow.start_operator()
                with progress.step("768 dies up"):
                    up = await phases.bring_up(hollow)
                if last:
                    with progress.step(f"{plan.deaths} pods die"):
                        report.measures += await phases.deaths(hollow, plan.deaths)
                with progress.step("768 dies down"):
                    runs.append(peer.against(up, await phases.bring_down(hollow)))
                if not last:
                    hollow.stop(operator)
            report.measures = [*phases.compared(runs), *report.measures]
            with progress.step(f"{plan.deployments} deployments change"):
                report.measures += await phases.change_many(hollow, plan.deployments)
            if minutes > 0:
                with progress.step(f"soak for {minutes:g} min"):
                    report.measures += await soak(hollow, minutes * 60)
            with progress.step(f"{plan.superpods} SuperPods full"):
                await phases.fill(hollow, plan.superpods)
            with progress.step(f"idle for {plan.idle_seconds:.0f} s"):
                report.measures += await phases.idle(hollow, plan.superpods, plan.idle_seconds)
    return report
