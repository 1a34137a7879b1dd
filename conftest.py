"""How the tests are spread over processes: those that share a cluster stay together, and clusters go first.

A control plane is costly, so the tests that use one fixture of it run in one process. Every other file is handed out by
itself and fills up what the clusters leave idle; the rings' order is reversed, so that the quick ones come last.
"""

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

SHARED = {  # where tests use one cluster -> its fixture
    "e2e/test_broken": "served",
    "e2e/test_killed": "served",
    "tests/integration/operator/": "emulated_cluster",
    "tests/integration/agent/": "emulated_cluster",
    "tests/integration/admission/": "cluster",
}
RINGS = ("e2e", "integration", "contract", "unit")


class Together(LoadScopeScheduling):
    """Hands out a cluster's tests, or a file, as a whole."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return next((cluster for place, cluster in SHARED.items() if path.startswith(place)), path)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Together:
    """Only asked for when there are several processes."""
    return Together(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The order of the rings."""
    items.sort(key=lambda item: RINGS.index(next(part for part in reversed(item.path.parts) if part in RINGS)))
