"""``xdeepserve bench NAME``: runs one benchmark; exit status 1 when a bar is missed."""

import importlib
import json
from pathlib import Path
from typing import Annotated

import typer

NAMES = ("quickstart", "model", "control-plane", "eplb", "xccl", "start-up", "rollout")

Quick = Annotated[bool, typer.Option("--quick", help="Fewer runs, for a first impression.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Plot = Annotated[Path | None, typer.Option(help="Draw latency against size into this image (xccl).")]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(NAMES)}.")],
    quick: Quick = False,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Run a benchmark."""
    if name not in NAMES:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(NAMES)}")
    conduct(name, quick=quick, as_json=as_json, plot=plot)


def conduct(name: str, *, quick: bool, as_json: bool, plot: Path | None) -> None:
    """Run a benchmark of NAMES, print what it found and draw it; raises ``typer.Exit`` when a bar is missed."""
    from xdeepserve_bench.table import print_report

    report = importlib.import_module(f"xdeepserve_bench.{name.replace('-', '_')}").run(quick=quick)
    if as_json:
        typer.echo(json.dumps(report.document(), indent=2))
    else:
        print_report(report)
    if plot is not None:
        from xdeepserve_bench.plot import draw

        draw(report, plot)
    if report.failed:
        raise typer.Exit(1)
