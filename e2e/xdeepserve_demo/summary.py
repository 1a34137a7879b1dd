"""The tables at the end of a run: times, and pods by server and die."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

from xdeepserve_cluster.progress import duration
from xdeepserve_operator.api.names import LABEL_COMPONENT, LABEL_ROLE, POD_ANNOTATION_DIES, parse_dies


def times_table(steps: Iterable[tuple[str, float]]) -> Table:
    """What happened and how long it took."""
    table = Table("Step", title="Times", title_justify="left")
    table.add_column("Time", justify="right")
    for what, seconds in steps:
        table.add_row(what, duration(seconds))
    return table


def placement_table(pods: Iterable[dict[str, Any]]) -> Table:
    """Which pod runs where."""
    table = Table("Pod", "Component", "Server", "Dies", "State", title="Placement", title_justify="left")
    for pod in pods:
        metadata = pod["metadata"]
        labels, annotations = metadata.get("labels", {}), metadata.get("annotations", {})
        role, component = labels.get(LABEL_ROLE, ""), labels.get(LABEL_COMPONENT, "")
        dies = ", ".join(map(str, sorted(parse_dies(annotations.get(POD_ANNOTATION_DIES)))))
        server = pod["spec"].get("nodeName", "")
        table.add_row(
            metadata["name"], f"{role} {component}".strip(), server, dies, pod.get("status", {}).get("phase", "")
        )
    return table


def show(*tables: Table) -> None:
    """Prints to standard output; plain where it is no terminal."""
    console = Console(width=None if Console().is_terminal else 120)
    for table in tables:
        console.print(table)
