"""A report for people."""

from rich.console import Console
from rich.table import Table

from xdeepserve_bench.report import Measure, Report


def print_report(report: Report) -> None:
    """Prints a table to standard output."""
    table = Table("Measure", title=f"bench {report.name}", title_justify="left")
    for heading in ("Value", "Against", "Ratio", "Bar", "Met"):
        table.add_column(heading, justify="right")
    for one in report.measures:
        table.add_row(one.name, f"{one.value:.4g} {one.unit}", _peer(one), _number(one.ratio), _bar(one), _met(one))
    Console(width=None if Console().is_terminal else 140).print(table)


def _peer(one: Measure) -> str:
    if one.against is None:
        return ""
    return f"{one.against}: {_number(one.against_value) or 'not installed'}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _bar(one: Measure) -> str:
    sign = "≤" if one.better == "lower" else "≥"
    return "" if one.bar is None else f"{sign} {one.bar:g}"


def _met(one: Measure) -> str:
    return {True: "yes", False: "NO", None: ""}[one.met]
