"""``xdeepserve explain-placement TASKEXECUTOR``: a line a server.

The servers are surveyed as the operator does it, from all pods and DPGroups of the cluster, so this needs the rights of
an administrator. What a TaskExecutor that waits is missing is said in its condition Placed, by the operator, which
alone knows the order in which gangs are considered.
"""

from collections import Counter
from dataclasses import asdict
from typing import Annotated

import typer

from xdeepserve_cli.access import Context, Kubeconfig, Namespace, connected, perform
from xdeepserve_cli.explain.reasons import Explanation, Held, explain
from xdeepserve_cli.output import Format, Output, print_document, print_table
from xdeepserve_cli.place import CliError
from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.executor import TaskExecutorSpec
from xdeepserve_operator.controllers.objects import label
from xdeepserve_operator.controllers.snapshot import servers_of
from xdeepserve_operator.planner.conditions import find_condition
from xdeepserve_operator.planner.executorstatus import PLACED
from xdeepserve_operator.planner.pods import dies_requested, server_of, view_pod
from xdeepserve_operator.runtime.kube import Object
from xdeepserve_operator.runtime.resources import DPGROUPS, NODES, PODS, SUPERPODS, TASKEXECUTORS
from xdeepserve_operator.runtime.store import Store

COLUMNS = ("SERVER", "CHIP", "PLANE", "FREE", "HOLDS", "WARM", "WHY")


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
            executor, store = await place.get(TASKEXECUTORS, name), Store()
            for resource in (SUPERPODS, NODES, PODS, DPGROUPS):
                for item in await place.list(resource, everywhere=True):
                    store.put(resource.kind, item)
            return look(store, executor)

    found = perform(read)
    if output is not Format.TEXT:
        print_document(asdict(found), output)
        return
    for line in (found.asked, found.placed, found.kv):
        typer.echo(line)
    rows = [
        (one.server, one.chip, one.plane, f"{one.free}/{one.dies}", str(one.groups), str(one.warm), one.why)
        for one in found.servers
    ]
    if rows:
        print_table(COLUMNS, rows)


def look(store: Store, executor: Object) -> Explanation:
    """The explanation of a TaskExecutor, from all servers, pods and DPGroups; ``CliError`` when it has no SuperPod."""
    namespace, name = executor["metadata"]["namespace"], executor["metadata"]["name"]
    spec = TaskExecutorSpec.model_validate(executor["spec"])
    servers = servers_of(store, spec.superpod_ref.name)
    if servers is None:
        found = ", ".join(one["metadata"]["name"] for one in store.list("SuperPod")) or "none"
        raise CliError(f"SuperPod {spec.superpod_ref.name!r}, which {name} refers to, does not exist; there is {found}")
    placed = find_condition(executor, PLACED) or {}
    verdict = f"{placed.get('reason', 'Unknown')}: {placed.get('message', 'the operator has not seen it yet')}"
    return explain(name, verdict, spec, servers, _held(store, namespace, name))


def _held(store: Store, namespace: str, name: str) -> dict[str, Held]:
    """What is held by server, as far as an explanation speaks of it."""
    groups, waiting, dies = Counter[str](), Counter[str](), Counter[str]()
    for group in store.list("DPGroup", namespace):
        groups[group["spec"]["node"]] += group["spec"]["executorRef"]["name"] == name
    for pod in store.list("Pod", None, {names.LABEL_COMPONENT: names.COMPONENT_WARM}):
        if view_pod(pod).alive:
            mine = pod["metadata"]["namespace"] == namespace and label(pod, names.LABEL_EXECUTOR) == name
            dies[server_of(pod)] += dies_requested(pod)
            waiting[server_of(pod)] += mine
    return {node: Held(groups[node], waiting[node], dies[node]) for node in {*groups, *dies}}
