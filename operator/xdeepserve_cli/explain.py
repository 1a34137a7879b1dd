"""``xdeepserve explain-placement TASKEXECUTOR``: why its groups are where they are, and why not elsewhere.

One line a server, the first reason that holds. The servers are surveyed as the operator does it, from all pods and
DPGroups of the cluster, so this needs the rights of an administrator. What a TaskExecutor that waits is missing is
said in its condition Placed, by the operator, which alone knows the order in which gangs are considered.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from xdeepserve_cli.access import CliError, Context, Kubeconfig, Namespace, connected, perform
from xdeepserve_cli.output import Format, Output, print_document, print_table
from xdeepserve_operator.api.v1alpha1.executor import TaskExecutorSpec
from xdeepserve_operator.controllers.snapshot import servers_of
from xdeepserve_operator.planner.conditions import find_condition
from xdeepserve_operator.planner.executorstatus import PLACED
from xdeepserve_operator.planner.placement import Request
from xdeepserve_operator.planner.servers import Server
from xdeepserve_operator.runtime.cache import Cache
from xdeepserve_operator.runtime.store import Store


@dataclass(frozen=True)
class Reason:
    """One server: how many groups of the TaskExecutor it holds, and why it holds no others."""

    server: str
    chip: str
    dies: int
    free: int
    groups: int
    why: str


@dataclass(frozen=True)
class Explanation:
    """``asked``: what the TaskExecutor needs. ``placed``: the operator's own words."""

    asked: str
    placed: str
    servers: tuple[Reason, ...]


def explain_placement(
    name: Annotated[str, typer.Argument(help="A TaskExecutor.")],
    namespace: Namespace = None,
    output: Output = Format.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say why a TaskExecutor's groups are where they are, and why not elsewhere."""

    async def read() -> Explanation:
        async with connected(kubeconfig, context, namespace) as place:
            store = Store()
            await Cache(place.api, store, lambda _uid: None).fill()
            return look(store, place.namespace, name)

    found = perform(read)
    if output is not Format.TEXT:
        print_document(asdict(found), output)
        return
    typer.echo(found.asked)
    typer.echo(found.placed)
    rows = [(one.server, one.chip, f"{one.free}/{one.dies}", str(one.groups), one.why) for one in found.servers]
    if rows:
        print_table(("SERVER", "CHIP", "FREE", "HOLDS", "WHY"), rows)


def look(store: Store, namespace: str, name: str) -> Explanation:
    """The explanation, from a full store; ``CliError`` when there is no such TaskExecutor or SuperPod."""
    executor = store.get("TaskExecutor", namespace, name)
    if executor is None:
        raise CliError(f"there is no TaskExecutor {name!r} in namespace {namespace}")
    spec = TaskExecutorSpec.model_validate(executor["spec"])
    servers = servers_of(store, spec.superpod_ref.name)
    if servers is None:
        raise CliError(f"SuperPod {spec.superpod_ref.name!r}, which {name} refers to, does not exist")
    held = Counter(
        str(group["spec"]["node"])
        for group in store.list("DPGroup", namespace)
        if group["spec"]["executorRef"]["name"] == name
    )
    return explain(executor, spec, servers, held)


def explain(
    executor: Mapping[str, Any], spec: TaskExecutorSpec, servers: Sequence[Server], held: Mapping[str, int]
) -> Explanation:
    """``held``: DP groups of the TaskExecutor by server."""
    allowed = Request(spec.role, spec.superpod_ref.name, tuple(spec.chips), ()).allowed
    placed = find_condition(executor, PLACED) or {}
    asked = (
        f"{spec.role} {executor['metadata']['name']} asks for {spec.replicas} x {spec.parallelism.dp} groups of "
        f"{spec.parallelism.tp} dies on {' or '.join(allowed) or 'no chip'} in SuperPod {spec.superpod_ref.name}; "
        "a group lies on one server, an instance on one chip"
    )
    verdict = f"{placed.get('reason', 'Unknown')}: {placed.get('message', 'the operator has not seen it yet')}"
    reasons = [
        Reason(
            one.name,
            one.chip,
            one.capacity,
            one.free,
            held.get(one.name, 0),
            why(one, spec, allowed, held.get(one.name, 0)),
        )
        for one in servers
    ]
    return Explanation(asked, verdict, tuple(sorted(reasons, key=lambda one: (-one.groups, one.server))))


def why(server: Server, spec: TaskExecutorSpec, allowed: Sequence[str], groups: int) -> str:
    """Why the server holds what it holds of the TaskExecutor."""
    health, wanted = server.health, spec.parallelism.tp
    sick = f", {len(health.unhealthy)} dies unhealthy" if health.unhealthy else ""
    if groups:
        return f"holds {groups} of its groups, {server.used} of {server.allocatable} dies in use{sick}"
    if server.mismatch is not None:
        return f"never used: {server.mismatch}"
    if server.chip not in allowed:
        rule = "Decode runs on 910C only" if spec.role == "Decode" else f"it may run on {', '.join(allowed)}"
        return f"chip {server.chip}: {rule}"
    if not health.ready:
        return "its node is lost: nobody hears it" if health.lost else "its node is not ready"
    if not health.schedulable:
        return "its node is cordoned or tainted"
    if server.free < wanted:
        return f"{server.free} dies free, a group needs {wanted}{sick}"
    if server.used == 0:
        return f"would fit; whole servers stay free for big gangs while one in use has room{sick}"
    return f"would fit; another server was left with fewer free dies{sick}"
