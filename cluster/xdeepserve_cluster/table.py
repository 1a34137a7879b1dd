"""A cluster's status for people: a table with colours on a terminal, aligned columns in a pipe."""

from __future__ import annotations

import sys

import typer

from xdeepserve_cluster.controlplane.health import ClusterStatus, ComponentStatus

COLUMNS = ("COMPONENT", "STATE", "PID", "PORT", "MEMORY", "LOG")
COLOURS = {"ready": "green", "not ready": "yellow", "dead": "red"}


def print_status(status: ClusterStatus) -> None:
    """Print to standard output."""
    cluster = status.cluster
    typer.echo(f"{cluster.name}: {cluster.server}, kubeconfig {cluster.kubeconfig}")
    rows = [_row(component) for component in status.components]
    if sys.stdout.isatty():
        _print_rich(rows)
    else:
        _print_plain(rows)
    for component in status.components:
        if component.problem:
            typer.echo(f"{component.name}: {component.problem}", err=True)


def _row(component: ComponentStatus) -> tuple[str, ...]:
    memory = f"{component.resident_bytes / 2**20:.0f} MiB" if component.pid else "-"
    pid = str(component.pid or "-")
    return component.name, component.state, pid, str(component.port), memory, component.log


def _print_rich(rows: list[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*COLUMNS, box=None)
    for row in rows:
        table.add_row(row[0], f"[{COLOURS[row[1]]}]{row[1]}[/]", *row[2:])
    Console().print(table)


def _print_plain(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    for row in (COLUMNS, *rows):
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
