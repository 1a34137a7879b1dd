"""``status``: everything of a deployment in one tree, what is wrong never folded away."""

from typing import Any

import pytest

from xdeepserve_cli.status.render import SHOWN, lines
from xdeepserve_cli.status.tree import Branch, World, trees

from . import world


def small(**broken: Any) -> World:
    return World(
        [world.deployment("chat")],
        [world.executor("chat-decode", "chat")],
        [world.group("chat-decode", 0), world.group("chat-decode", 1, ready=not broken)],
        [
            world.pod("chat-frontend-x", "frontend", owner="chat"),
            world.pod("chat-decode-0-shell", "shell", owner="chat"),
            world.pod("chat-decode-0-dp0-0", "engine", owner="chat", of_group="chat-decode-0-dp0"),
            world.pod("chat-decode-0-dp1-0", "engine", owner="chat", of_group="chat-decode-0-dp1"),
        ],
    )


def names_below(branch: Branch) -> list[str]:
    return [branch.name, *(name for child in branch.children for name in names_below(child))]


def test_a_deployment_is_one_tree_down_to_its_dies():
    (tree,) = trees(small())
    assert names_below(tree) == [
        "chat",
        "chat-frontend-x",
        "chat-decode",
        "chat-decode-0",
        "chat-decode-0-shell",
        "chat-decode-0-dp0",
        "chat-decode-0-dp0-0",
        "chat-decode-0-dp1",
        "chat-decode-0-dp1-0",
    ]
    engine = tree.children[1].children[0].children[1].children[0]
    assert engine.facts["dies"] == [4]


def test_an_executor_of_its_own_is_a_tree_and_can_be_named():
    both = World([world.deployment("chat")], [world.executor("chat-decode", "chat"), world.executor("lone")], [], [])
    assert [tree.name for tree in trees(both)] == ["chat", "lone"]
    assert [tree.kind for tree in trees(both, "lone")] == ["TaskExecutor"]
    assert trees(both, "nobody") == []


def test_an_executor_whose_deployment_is_gone_is_still_seen():
    orphan = World([], [world.executor("chat-decode", "chat")], [], [])
    assert [tree.name for tree in trees(orphan)] == ["chat-decode"]


def test_the_reason_of_what_is_not_ready_is_in_its_line():
    text = "\n".join(lines(trees(small(broken=True))[0]))
    assert "DPGroup chat-decode-0-dp1: NOT READY, Hung" in text
    assert "DPGroup chat-decode-0-dp0: ready" in text


def test_healthy_groups_are_folded_and_broken_ones_are_not():
    many = SHOWN + 20
    groups = [world.group("wide", index, ready=index != many - 1) for index in range(many)]
    (tree,) = trees(World([], [world.executor("wide", dp=many)], groups, []))
    text = "\n".join(lines(tree))
    assert f"wide-0-dp{many - 1}: NOT READY" in text
    assert f"and {many - 4} more DPGroups that are ready" in text
    assert sum("DPGroup wide" in line for line in lines(tree, everything=True)) == many


def test_groups_are_in_the_order_of_their_numbers():
    groups = [world.group("wide", index) for index in (10, 9, 2)]
    (tree,) = trees(World([], [world.executor("wide", dp=3)], groups, []))
    assert [child.name for child in tree.children[0].children] == ["wide-0-dp2", "wide-0-dp9", "wide-0-dp10"]


@pytest.mark.parametrize("status", [{}, {"status": {}}, {"status": {"conditions": None}}])
def test_objects_without_a_status_are_shown(status: dict[str, Any]):
    new = {"metadata": {"name": "new", "namespace": "default"}, "spec": {"role": "Prefill"}, **status}
    (tree,) = trees(World([], [new], [], []))
    assert tree.ready is None
    assert tree.document()["serving"] == "0/0"


def test_a_group_that_says_nothing_is_as_its_instance():
    silent = world.group("wide", 0) | {"status": {}}
    for ready in (True, False):
        (tree,) = trees(World([], [world.executor("wide", dp=1, ready=ready)], [silent], []))
        group = tree.children[0].children[0]
        assert (group.ready, group.reason) == ((True, "Joined") if ready else (None, ""))


def test_engines_that_wait_are_counted_and_none_is_not_mentioned():
    waiting = world.executor("wide", dp=1)
    waiting["status"]["warm"] = 3
    told = ["\n".join(lines(trees(World([], [one], [], []))[0])) for one in (waiting, world.executor("wide", dp=1))]
    assert ["warm=3" in told[0], "warm" in told[1]] == [True, False]
