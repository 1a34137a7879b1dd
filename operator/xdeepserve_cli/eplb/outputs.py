"""Where a plan goes: our archive, what SGLang starts with, or the ConfigMap that an ExpertPlacement keeps."""

import re
from pathlib import Path

import yaml

from eplb import LoadWindow, Placement, Unplannable
from eplb.traces import npz, sglang
from xdeepserve_operator.api import names
from xdeepserve_operator.planner.expert_map import Map
from xdeepserve_operator.resources.expert_map import KEY

HELP = "Write the plan: .npz, .json for SGLang, or .yaml, a ConfigMap for mode Static."
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def save(path: Path, placement: Placement, window: LoadWindow, first_layer: int) -> None:
    """Writes a placement in the format that the name asks for."""
    if path.suffix == ".yaml":
        path.write_text(config_map(path.stem, placement, window, first_layer), encoding="utf-8")
        return
    with path.open("wb") as file:
        write = sglang.write_placement if path.suffix == ".json" else npz.write_placement
        write(file, placement)


def config_map(name: str, placement: Placement, window: LoadWindow, first_layer: int) -> str:
    """A manifest. Layers without any load are dense ones, and left out. Unplannable where there can be none."""
    if not _NAME.fullmatch(name):
        raise Unplannable(f"{name!r} cannot name a ConfigMap: lower-case letters, digits and '-', at most 63")
    rows = [row for row, idle in enumerate(window.idle.tolist()) if not idle]
    layers = {first_layer + row: tuple(map(tuple, placement.slots[row].tolist())) for row in rows}
    documents = Map(placement.experts, layers).dump()
    if len(documents) > 1:
        raise Unplannable("the map is larger than a ConfigMap may be")
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY}  # the operator sees no other ConfigMaps
    metadata = {"name": name, "labels": labels}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: documents[0]}}
    return str(yaml.safe_dump(manifest, sort_keys=False, width=10**6))
