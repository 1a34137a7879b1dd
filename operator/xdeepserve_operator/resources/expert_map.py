"""ConfigMaps that hold the placement an instance has or goes to; sharded, since one may have 1 MiB only."""

from collections.abc import Mapping, Sequence
from typing import Any

from xdeepserve_operator.resources.metadata import child_metadata

KEY = "map.json"


def map_name(placement: str, index: int, shard: int = 0) -> str:
    """The name of a shard of an instance's map: at most 63 characters, as the kind's name has at most 46."""
    return f"{placement}-{index}-map" + (f"-{shard}" if shard else "")


def map_config_maps(placement: Mapping[str, Any], index: int, documents: Sequence[str]) -> list[dict[str, Any]]:
    """The ConfigMaps of an instance's map, one a document; they go with the ExpertPlacement."""
    name = placement["metadata"]["name"]
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": child_metadata(placement, "ExpertPlacement", map_name(name, index, shard), {}),
            "data": {KEY: document},
        }
        for shard, document in enumerate(documents)
    ]
