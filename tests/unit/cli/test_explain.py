"""``explain-placement``: the first reason that holds, for every server."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from xdeepserve_cli.explain.command import look
from xdeepserve_cli.explain.reasons import Explanation, Held, explain
from xdeepserve_cli.main import app
from xdeepserve_cli.place import CliError
from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.executor import TaskExecutorSpec
from xdeepserve_operator.planner.servers import Server
from xdeepserve_operator.runtime.resources import NODES, SUPERPODS, TASKEXECUTORS
from xdeepserve_operator.runtime.store import Store

from ..controllers import manifests
from ..planner import builders
from ..runtime.api_server import ApiServer, serve, write_kubeconfig
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
PLACED_ON = world.server("z", used=8)


def told(spec: TaskExecutorSpec, *servers: Server, **held: Held) -> Explanation:
    return explain("chat-decode", "Placed: all groups have a place", spec, servers, held)


def why(found: Explanation, server: str) -> str:
    return next(one.why for one in found.servers if one.server == server)


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
        (world.server("s", used=13, unhealthy=frozenset({1})), "1 die unhealthy"),
    ],
)
def test_the_reason_of_a_server_without_groups(server: Server, expected: str):
    assert expected in why(told(SPEC, server, PLACED_ON, z=Held(groups=2)), "s")


def test_servers_that_hold_groups_come_first():
    found = told(SPEC, world.server("a"), world.server("b", used=8), b=Held(groups=2))
    assert [(one.server, one.groups) for one in found.servers] == [("b", 2), ("a", 0)]
    assert "1 x 2 groups of 4 dies on 910C" in found.asked


def test_where_nothing_is_placed_yet_no_server_is_said_to_be_worse_than_another():
    found = told(SPEC, world.server("s", used=3))
    assert why(found, "s") == "has room for 3 groups, over UB; what is placed together fits whole or not at all"
    assert found.kv.startswith("its KV will cross UB, then RoCE, then VPC: ")


def test_the_plane_that_kv_crosses_is_why_a_server_is_taken_or_passed_over():
    on = {plane: replace(world.server(plane, used=4), plane=plane) for plane in ("UB", "RoCE", "VPC")}
    fast = told(SPEC, *on.values(), UB=Held(groups=2))
    assert "its KV crosses UB" in why(fast, "UB")
    assert why(fast, "VPC") == "would fit, but its KV would cross VPC; servers on UB had room"
    assert fast.kv.startswith("its KV crosses UB; UB, then RoCE, then VPC")
    mixed = told(SPEC, *on.values(), UB=Held(groups=1), RoCE=Held(groups=1))
    assert mixed.kv.startswith("its KV crosses UB, RoCE; ")
    assert why(mixed, "VPC").endswith("servers on RoCE had room"), "its slowest plane counts"
    slow = told(SPEC, *on.values(), VPC=Held(groups=2))
    assert "servers on UB had no room for all of it" in why(slow, "UB")


@pytest.mark.parametrize(
    ("used", "free", "expected"), [("910B", "910C", "910B is preferred"), ("910C", "910B", "910B had no room")]
)
def test_an_instance_on_one_chip_keeps_off_the_other(used: str, free: str, expected: str):
    either = SPEC.model_copy(update={"role": "Prefill", "chips": ["910B", "910C"]})
    found = told(either, world.server("a", chip=used, used=4), world.server("b", chip=free), a=Held(groups=2))
    assert why(found, "b").startswith("would fit, but an instance lies on one chip, and ")
    assert expected in why(found, "b")


def test_engines_that_wait_are_named_with_what_becomes_of_them():
    servers = [world.server(name, used=14) for name in "abc"] + [PLACED_ON]
    found = told(SPEC, *servers, z=Held(2, 1, 4), a=Held(0, 1, 8), b=Held(0, 0, 8))
    assert why(found, "a") == (
        "nothing yet; its own waiting engines take its next groups"
        "; waiting engines hold 8 dies, 1 of them its own, and give way to a gang that lacks them"
    )
    assert why(found, "b").startswith("2 dies free, a group needs 4; waiting engines hold 8 dies, and give way")
    assert why(found, "c") == "2 dies free, a group needs 4"
    assert {one.server: one.warm for one in found.servers} == {"z": 4, "a": 8, "b": 8, "c": 0}
    assert why(found, "z").startswith("holds 2 of its groups, its KV crosses UB; 8 of 16 dies in use; waiting engines")


def test_it_is_read_from_the_cluster_in_the_operators_words():
    executor = world.executor("chat-decode") | {"spec": SPEC.to_wire()}
    executor["status"]["conditions"] = [
        world.condition("Placed", False, "InsufficientDies", "0 of 1; needs 2 x 4 dies")
    ]
    others = world.pod("stranger-warm-0", names.COMPONENT_WARM)
    others["spec"] = waiting_on("n0", 2)
    mine = world.pod("chat-decode-warm-0", names.COMPONENT_WARM)
    mine["metadata"]["labels"][names.LABEL_EXECUTOR] = "chat-decode"
    mine["metadata"]["annotations"] = {names.ANNOTATION_SERVER: "n0"}
    mine["spec"] = waiting_on(None, 4)
    found = look(filled(manifests.superpod(), builders.node(), others, mine), executor)
    assert found.placed == "InsufficientDies: 0 of 1; needs 2 x 4 dies"
    (server,) = found.servers
    assert (server.plane, server.free, server.warm) == ("UB", 10, 6)
    assert "1 of them its own" in server.why


def test_a_superpod_that_does_not_exist_is_told_with_those_that_do():
    other = manifests.superpod() | {"metadata": {"name": "pod-b"}}
    with pytest.raises(CliError, match=r"SuperPod 'pod-a', which chat-decode refers to, .* there is pod-b"):
        look(filled(other), world.executor("chat-decode") | {"spec": SPEC.to_wire()})


def filled(superpod: world.Object, node: world.Object | None = None, *pods: world.Object) -> Store:
    store = Store()
    objects = [("SuperPod", superpod), *([("Node", node)] if node else []), *(("Pod", pod) for pod in pods)]
    for number, (kind, obj) in enumerate(objects):
        store.put(kind, obj | {"metadata": obj["metadata"] | {"resourceVersion": "1", "uid": str(number)}})
    return store


def waiting_on(node: str | None, dies: int) -> dict[str, Any]:
    container = {"resources": {"requests": {names.RESOURCE_DIE: str(dies)}}}
    return {"containers": [container]} | ({"nodeName": node} if node else {})


async def test_every_form_of_output_says_the_same(tmp_path: Path):
    server = ApiServer()
    runner = await serve(server)
    server.put(SUPERPODS, manifests.superpod())
    server.put(NODES, builders.node())
    server.put(TASKEXECUTORS, world.executor("chat-decode") | {"spec": SPEC.to_wire()})
    line = ["explain-placement", "chat-decode", "--kubeconfig", str(write_kubeconfig(tmp_path / "k", server.url)), "-o"]

    async def typed(form: str) -> str:
        done = await asyncio.to_thread(CliRunner().invoke, app, [*line, form])
        assert done.exit_code == 0, done.output
        return done.stdout

    document = json.loads(await typed("json"))
    assert yaml.safe_load(await typed("yaml")) == document
    text = await typed("text")
    assert text.splitlines()[:3] == [document["asked"], document["placed"], document["kv"]]
    (server_line,) = document["servers"]
    assert text.splitlines()[-1].split() == ["n0", "910C", "UB", "16/16", "0", "0", *server_line["why"].split()]
    await runner.cleanup()
