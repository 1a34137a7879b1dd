"""``xdeepserve eplb show|history|apply|pause|resume NAME``: an ExpertPlacement in a cluster.

Applying, pausing and resuming are edits of the object like any other; the operator does the rest.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from xdeepserve_cli.access import Context, Kubeconfig, Namespace, connected, perform
from xdeepserve_cli.output import Format, Output, print_document, print_table
from xdeepserve_cli.place import Place
from xdeepserve_operator.api.names import ANNOTATION_APPLY_EXPERTS
from xdeepserve_operator.api.v1alpha1.experts import ExpertPlacementStatus, InstancePlacement, PlacementEvent
from xdeepserve_operator.planner.conditions import format_time
from xdeepserve_operator.runtime.kube import Object
from xdeepserve_operator.runtime.resources import EXPERTPLACEMENTS

Name = Annotated[str, typer.Argument(help="An ExpertPlacement.")]
CONDITIONS = ("Ready", "Balanced", "SwapInProgress", "Stalled", "ReplicaComplete")


def register(app: typer.Typer) -> None:
    """Adds the commands that only make sense in a cluster."""
    app.command()(history)
    app.command("apply")(apply_now)
    app.command()(pause)
    app.command()(resume)


def show(name: str, namespace: str | None, output: Format, context: str | None, kubeconfig: Any) -> None:
    """Prints how even the load of each instance is, and how far a change is."""
    placement = _read(name, namespace, context, kubeconfig)
    if output is not Format.TEXT:
        print_document(placement, output)
        return
    status = _status(placement)
    conditions = {one.type: one for one in status.conditions}
    columns = ("INSTANCE", "VERSION", "BEFORE", "PREDICTED", "NOW", "WORST-LAYER", "SWAP", "LAYERS", "MISSING", "MOVED")
    print_table(columns, [_instance(one) for one in status.instances])
    for one in status.instances:
        if one.message:
            typer.echo(f"instance {one.index}: {one.message}")
    typer.echo("")
    told = [conditions[kind] for kind in CONDITIONS if kind in conditions]
    print_table(("CONDITION", "STATUS", "REASON", "MESSAGE"), [(c.type, c.status, c.reason, c.message) for c in told])


def history(
    name: Name,
    namespace: Namespace = None,
    output: Output = Format.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """List the last changes of placement, the newest first."""
    status = _status(_read(name, namespace, context, kubeconfig))
    if output is not Format.TEXT:
        print_document([one.to_wire() for one in status.history], output)
        return
    columns = ("TIME", "INSTANCE", "VERSION", "OUTCOME", "LAYERS", "BEFORE", "PREDICTED", "AFTER")
    print_table(columns, [_event(one) for one in status.history])


def apply_now(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Act on the next plan, whatever it is worth. In mode Advisory, act this once."""
    request = format_time(datetime.now(UTC))
    _patch(name, namespace, context, kubeconfig, {"metadata": {"annotations": {ANNOTATION_APPLY_EXPERTS: request}}})
    typer.echo(f"expertplacement/{name}: the next plan will be applied; follow it with: xdeepserve eplb show {name}")


def pause(name: Name, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """Begin no change, and call off one that is on its way."""
    _patch(name, namespace, context, kubeconfig, {"spec": {"paused": True}})
    typer.echo(f"expertplacement/{name} paused")


def resume(name: Name, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """Go on after a pause."""
    _patch(name, namespace, context, kubeconfig, {"spec": {"paused": False}})
    typer.echo(f"expertplacement/{name} resumed")


def _read(name: str, namespace: str | None, context: str | None, kubeconfig: Any) -> Object:
    return _at(connected(kubeconfig, context, namespace), lambda place: place.get(EXPERTPLACEMENTS, name))


def _patch(name: str, namespace: str | None, context: str | None, kubeconfig: Any, patch: Mapping[str, Any]) -> None:
    _at(connected(kubeconfig, context, namespace), lambda place: place.patch(EXPERTPLACEMENTS, name, dict(patch)))


def _at(connection: AbstractAsyncContextManager[Place], request: Callable[[Place], Awaitable[Object]]) -> Object:
    """The answer to one request."""

    async def work() -> Object:
        async with connection as place:
            return await request(place)

    return perform(work)


def _status(placement: Object) -> ExpertPlacementStatus:
    return ExpertPlacementStatus.model_validate(placement.get("status") or {})


def _instance(one: InstancePlacement) -> tuple[str, ...]:
    load = one.imbalance
    layers = f"{one.layers_done}/{one.layers_total}"
    ratios = tuple(map(_ratio, (load.before, load.predicted, load.after, load.worst_layer)))
    rest = (one.swap_phase, layers, str(one.missing_experts), f"{one.moved_mebibytes} MiB")
    return (str(one.index), str(one.map_version), *ratios, *rest)


def _event(one: PlacementEvent) -> tuple[str, ...]:
    ratios = tuple(map(_ratio, (one.before, one.predicted, one.after)))
    return (one.time, str(one.index), str(one.version), one.outcome, str(one.layers), *ratios)


def _ratio(percent: int) -> str:
    return f"{percent / 100:.2f}" if percent else "-"
