"""Installs the two charts, as the README tells a platform engineer to do it by hand."""

from xdeepserve_demo.assets import asset
from xdeepserve_demo.tools import Tools

NAMESPACE = "xdeepserve-system"


async def install(tools: Tools, *values: str, wait_seconds: int = 60) -> None:
    """CRDs first, then the operator; returns when the operator's pod is ready. ``values``: key=value for --set."""
    charts = asset("helm")
    settings = [word for value in values for word in ("--set", value)]
    await tools.helm("upgrade", "--install", "xdeepserve-crds", str(charts / "xdeepserve-crds"), "--wait")
    await tools.helm(
        *("upgrade", "--install", "xdeepserve", str(charts / "xdeepserve")),
        *("--namespace", NAMESPACE, "--create-namespace", *settings),
    )
    await tools.kubectl(
        *("rollout", "status", "deployment", "--namespace", NAMESPACE),
        *("--selector", "app.kubernetes.io/name=xdeepserve", f"--timeout={wait_seconds}s"),
    )
