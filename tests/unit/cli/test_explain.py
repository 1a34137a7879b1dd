"""``explain-placement``: the first reason that holds, for every server."""

from typing import Any

import pytest

from xdeepserve_cli.access import CliError
from xdeepserve_cli.explain import explain, look
from xdeepserve_operator.api.v1alpha1.executor import TaskExecutorSpec
from xdeepserve_operator.runtime.store import Store

from . import world

SPEC = TaskExecutorSpec.model_validate(
    {
        "role": "Decode",
        "chips": ["910C"],
        "superPodRef": {"name": "pod-a"},
        "parallelism": {"dp": 2, "tp": 4, "ep": 8},
        "model": {"name": "m", "uri": "file:///models/m"},
    }
)


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (world.server("s", used=8), "would fit; another server"),
        (world.server("s"), "would fit; whole servers stay free"),
        (world.server("s", used=14), "2 dies free, a group needs 4"),
        (world.server("s", chip="910B"), "Decode runs on 910C only"),
        (world.server("s", mismatch="label says 910B"), "never used: label says 910B"),
        (world.server("s", ready=False, schedulable=False), "not ready"),
        (world.server("s", ready=False, lost=True, schedulable=False), "lost"),
        (world.server("s", schedulable=False), "cordoned"),
        (world.server("s", used=13, unhealthy=frozenset({1})), "1 dies unhealthy"),
    ],
)
def test_the_reason_of_a_server_without_groups(server: Any, expected: str):
    found = explain(world.executor("chat-decode"), SPEC, [server], {})
    assert expected in found.servers[0].why


def test_servers_that_hold_groups_come_first():
    servers = [world.server("a"), world.server("b", used=8)]
    found = explain(world.executor("chat-decode"), SPEC, servers, {"b": 2})
    assert [(one.server, one.groups) for one in found.servers] == [("b", 2), ("a", 0)]
    assert "2 x 8" not in found.asked
    assert "1 x 2 groups of 4 dies on 910C" in found.asked


def test_what_is_waited_for_is_said_in_the_operators_words():
    waiting = world.executor("chat-decode")
    waiting["status"]["conditions"] = [world.condition("Placed", False, "InsufficientDies", "0 of 1; needs 2 x 4 dies")]
    assert explain(waiting, SPEC, [], {}).placed == "InsufficientDies: 0 of 1; needs 2 x 4 dies"


def test_a_name_that_does_not_exist_is_said():
    with pytest.raises(CliError, match="no TaskExecutor 'x' in namespace default"):
        look(Store(), "default", "x")
