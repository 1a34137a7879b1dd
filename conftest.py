"""How the tests are spread over processes: those that share a cluster stay together, the longest go first.

A control plane is costly, so the tests that use one fixture of it run in one process. Everything else is spread freely
and fills up what the clusters leave idle; it comes last, in the rings' order reversed.
"""

import pytest

CLUSTERS = ("served", "emulated_cluster", "cluster")
RINGS = ("e2e", "integration", "contract", "unit")


@pytest.hookimpl(tryfirst=True)  # before the plugin reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups for the workers, then the order of the rings."""
    for item in items:
        if _ring(item) in ("e2e", "integration"):
            fixtures = getattr(item, "fixturenames", ())
            shared = next((name for name in CLUSTERS if name in fixtures), str(item.path))
            item.add_marker(pytest.mark.xdist_group(shared))
    items.sort(key=lambda item: RINGS.index(_ring(item)))


def _ring(item: pytest.Item) -> str:
    return next(part for part in reversed(item.path.parts) if part in RINGS)
