"""Steps that the tests on hollow servers share."""

from __future__ import annotations

from xdeepserve_bench.control_plane.hollow import Hollow
from xdeepserve_bench.control_plane.manifests import NAMESPACE, deployment
from xdeepserve_bench.control_plane.watch import watched
from xdeepserve_operator.runtime.resources import MODELDEPLOYMENTS

SECONDS = 90.0


async def bring_up(hollow: Hollow, name: str, groups: int = 4) -> None:
    """A ModelDeployment, until it is Ready."""
    async with watched(hollow.api, MODELDEPLOYMENTS, NAMESPACE) as deployments:
        await hollow.api.create(MODELDEPLOYMENTS, deployment(name, "pod-0", groups))
        await deployments.until(lambda: deployments.ready(name), f"{name} is Ready", SECONDS)
