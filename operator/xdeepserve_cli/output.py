"""How the commands print: Rich where the output is a terminal, plain text in a pipe, JSON or YAML when asked."""

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
import yaml


class Format(StrEnum):
    """What ``-o`` takes."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


Output = Annotated[Format, typer.Option("--output", "-o", help="text, json or yaml.")]


def on_terminal() -> bool:
    """Whether a person looks at the output."""
    return sys.stdout.isatty()


def print_document(document: Any, form: Format) -> None:
    """Prints JSON or YAML."""
    if form is Format.JSON:
        typer.echo(json.dumps(document, indent=2))
    else:
        typer.echo(yaml.safe_dump(document, sort_keys=False), nl=False)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints aligned columns; the last one may be long."""
    if on_terminal():
        from rich.console import Console
        from rich.table import Table

        table = Table(*columns, box=None, pad_edge=False, header_style="bold")
        for row in rows:
            table.add_row(*row)
        Console(highlight=False, markup=False).print(table)
        return
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
