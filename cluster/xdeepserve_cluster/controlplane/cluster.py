"""A running cluster, as its users see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from xdeepserve_cluster.controlplane.components import api_server_url
from xdeepserve_cluster.controlplane.layout import Layout
from xdeepserve_cluster.controlplane.spec import ClusterSpec, default_state_root
from xdeepserve_cluster.controlplane.state import load_state
from xdeepserve_cluster.errors import ClusterError


@dataclass(frozen=True)
class Cluster:
    """`kubeconfig` is the administrator's, `tools` a directory with kubectl and helm for a PATH."""

    name: str
    spec: ClusterSpec
    server: str
    directory: Path
    kubeconfig: Path
    tools: Path


def layout_of(name: str, root: Path | None = None) -> Layout:
    """The files of the cluster `name`, whether it exists or not. Raises ClusterError for an unfit name."""
    try:
        return Layout((root or default_state_root()).absolute(), ClusterSpec(name=name).name)
    except ValueError:
        raise ClusterError(
            f"{name!r} is no cluster name: lower-case letters, digits and '-' inside, at most 32 characters"
        ) from None


def get(name: str, root: Path | None = None) -> Cluster:
    """The cluster `name`, ready or not. Raises ClusterError if there is none."""
    layout = layout_of(name, root)
    state = load_state(layout)
    if state is None:
        raise ClusterError(f"there is no cluster {name!r} in {layout.root}: run 'xdeepserve cluster up'")
    return Cluster(name, state.spec, api_server_url(state.ports), layout.directory, layout.kubeconfig, layout.tools)


def specify(name: str, given: Mapping[str, Any], root: Path | None = None) -> ClusterSpec:
    """The specification for `up`: what is `given`, else what the cluster `name` has already, else the defaults.

    Raises ClusterError, naming the setting, if a value is unfit.
    """
    state = load_state(layout_of(name, root))
    base = state.spec.model_dump() if state else {"name": name}
    try:
        return ClusterSpec.model_validate({**base, **given})
    except ValidationError as error:
        first = error.errors()[0]
        reason = first["msg"].removeprefix("Value error, ")
        raise ClusterError(f"{first['loc'][0]} is {first['input']!r}: {reason}") from None
