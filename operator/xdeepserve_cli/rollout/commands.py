"""``xdeepserve rollout history|diff|undo|pause|resume|status NAME``, in the manner of ``kubectl rollout``.

Going back, pausing and resuming are edits of the ModelDeployment's spec like any other; the operator does the rest.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

import typer

from xdeepserve_cli.access import Context, Kubeconfig, Namespace, connected, perform
from xdeepserve_cli.group import group
from xdeepserve_cli.output import Format, Output, print_document, print_table
from xdeepserve_cli.place import CliError, Place
from xdeepserve_cli.rollout.history import Revision, changed, pick, revisions_of, way_back
from xdeepserve_cli.rollout.progress import End, Stage, stage_of
from xdeepserve_operator.api.names import LABEL_DEPLOYMENT
from xdeepserve_operator.planner.history import differences
from xdeepserve_operator.runtime import resources
from xdeepserve_operator.runtime.kube import Object
from xdeepserve_operator.runtime.reflector import Reflector

Name = Annotated[str, typer.Argument(help="A ModelDeployment.")]
app = group("History and progress of a ModelDeployment's revisions.")


@app.command()
def history(
    name: Name,
    revision: Annotated[int | None, typer.Option(help="Show what this revision holds.")] = None,
    namespace: Namespace = None,
    output: Output = Format.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """List the revisions that are kept, the newest last."""

    async def read() -> list[Revision]:
        async with connected(kubeconfig, context, namespace) as place:
            found = (await _read(place, name))[1]
            return found if revision is None else [pick(found, revision, -1)]

    found = perform(read)
    if revision is not None:
        print_document(found[0].document(), Format.YAML if output is Format.TEXT else output)
    elif output is not Format.TEXT:
        print_document([one.document() for one in found], output)
    else:
        before = [None, *found]
        rows = [
            (str(new.number), _short(changed(old, new)), new.cause or "<none>")
            for old, new in zip(before, found, strict=False)
        ]
        print_table(("REVISION", "CHANGED", "CHANGE-CAUSE"), rows)


@app.command()
def diff(
    name: Name,
    old: Annotated[int | None, typer.Option("--from", help="A revision; the one before --to when not given.")] = None,
    new: Annotated[int | None, typer.Option("--to", help="A revision; the one in force when not given.")] = None,
    namespace: Namespace = None,
    output: Output = Format.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show in which fields two revisions differ."""

    async def read() -> tuple[Revision, Revision]:
        async with connected(kubeconfig, context, namespace) as place:
            found = (await _read(place, name))[1]
            after = pick(found, new, -1)
            return pick(found[: found.index(after)] if old is None else found, old, -1), after

    before, after = perform(read)
    found = differences(before.data, after.data)
    if output is not Format.TEXT:
        fields = [{"field": path, "old": one, "new": other} for path, one, other in found]
        print_document({"from": before.number, "to": after.number, "differences": fields}, output)
        return
    columns = ("FIELD", f"REVISION {before.number}", f"REVISION {after.number}")
    print_table(columns, [(path, _told(one), _told(other)) for path, one, other in found])


@app.command()
def undo(
    name: Name,
    to_revision: Annotated[int | None, typer.Option(help="Where to go; the revision before when not given.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    namespace: Namespace = None,
    output: Output = Format.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Go back to an earlier revision. Replicas and budgets stay as they are."""

    async def work() -> tuple[str, Object | None]:
        async with connected(kubeconfig, context, namespace) as place:
            deployment, found = await _read(place, name)
            target = pick(found, to_revision, -2)
            patch = way_back(deployment, target)
            if patch is None:
                return f"skipped rollback (it already is as in revision {target.number})", None
            if dry_run:
                return f"would go back to revision {target.number}: {_short(changed(found[-1], target))}", None
            patched = await place.patch(resources.MODELDEPLOYMENTS, name, patch)
            return f"rolled back to revision {target.number}", patched

    _say(name, *perform(work), output)


@app.command()
def pause(
    name: Name,
    namespace: Namespace = None,
    output: Output = Format.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Keep every instance at the revision it has."""
    _set_paused(name, True, output, connected(kubeconfig, context, namespace))


@app.command()
def resume(
    name: Name,
    namespace: Namespace = None,
    output: Output = Format.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Let a paused rollout go on."""
    _set_paused(name, False, output, connected(kubeconfig, context, namespace))


@app.command()
def status(
    name: Name,
    watch: Annotated[bool, typer.Option("--watch/--no-watch", "-w", help="Wait for the end.")] = True,
    timeout: Annotated[float, typer.Option(min=0, help="Longest wait in seconds; 0 is for ever.")] = 0,
    namespace: Namespace = None,
    output: Output = Format.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Follow a rollout to its end. Exit status 1 if it misses its progress deadline or the timeout."""

    async def follow() -> Stage:
        async with connected(kubeconfig, context, namespace) as place:
            await place.get(resources.MODELDEPLOYMENTS, name)  # says what is wrong, if anything
            try:
                async with asyncio.timeout(timeout or None), _seen(place, name) as seen:
                    said = ""
                    while True:
                        stage = stage_of(await _next(seen, name))
                        if output is Format.TEXT and stage.text != said and stage.end is not End.LATE:
                            typer.echo(stage.text)
                        said = stage.text
                        if stage.end is not None or not watch:
                            return stage
            except TimeoutError:
                raise CliError(f"timed out after {timeout:g} s waiting for the rollout of {name!r}") from None

    stage = perform(follow)
    if output is not Format.TEXT:
        print_document(stage.document, output)
    if stage.end is End.LATE:
        typer.echo(f"error: {stage.text}", err=True)
        raise typer.Exit(1)


async def _read(place: Place, name: str) -> tuple[Object, list[Revision]]:
    deployment = await place.get(resources.MODELDEPLOYMENTS, name)
    stored = await place.list(resources.CONTROLLERREVISIONS, labels=f"{LABEL_DEPLOYMENT}={name}")
    return deployment, revisions_of(deployment, stored)


def _set_paused(name: str, paused: bool, output: Format, connection: Any) -> None:
    word = "paused" if paused else "resumed"

    async def work() -> tuple[str, Object]:
        async with connection as place:
            deployment = (await _read(place, name))[0]
            if bool((deployment["spec"].get("rollout") or {}).get("paused")) is paused:
                raise CliError(f'modeldeployment "{name}" is {"already" if paused else "not"} paused')
            patch = {"spec": {"rollout": {"paused": paused}}}
            return word, await place.patch(resources.MODELDEPLOYMENTS, name, patch)

    _say(name, *perform(work), output)


def _say(name: str, text: str, obj: Object | None, output: Format) -> None:
    if output is Format.TEXT or obj is None:
        typer.echo(f"modeldeployment.serving.xdeepserve.io/{name} {text}")
        return
    print_document(obj | {"metadata": {k: v for k, v in obj["metadata"].items() if k != "managedFields"}}, output)


@asynccontextmanager
async def _seen(place: Place, name: str) -> AsyncIterator["asyncio.Queue[Object | None]"]:
    """Every state of the ModelDeployment, None when it is gone."""
    states: asyncio.Queue[Object | None] = asyncio.Queue()
    reflector = Reflector(
        place.api,
        resources.MODELDEPLOYMENTS,
        lambda kind, obj: states.put_nowait(None if kind == "DELETED" else obj),
        namespace=place.namespace,
        fields=f"metadata.name={name}",
    )
    watching = asyncio.create_task(reflector.run())
    try:
        yield states
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _next(seen: "asyncio.Queue[Object | None]", name: str) -> Object:
    state = await seen.get()
    if state is None:
        raise CliError(f'modeldeployment "{name}" was deleted')
    return state


def _short(paths: Sequence[str]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "") or "<none>"


def _told(value: Any) -> str:
    return "<none>" if value is None else str(value)
