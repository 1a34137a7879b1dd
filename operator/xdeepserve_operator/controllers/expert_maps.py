"""Maps of experts in ConfigMaps: those the operator writes for an instance, and those that users give."""

from xdeepserve_operator.api import names
from xdeepserve_operator.controllers.ports import Cluster, Object, Store
from xdeepserve_operator.planner.expert_map import BadMap, Map
from xdeepserve_operator.resources.expert_map import KEY, map_config_maps, map_name

MOST_SHARDS = 64


class ExpertMaps:
    """The maps of all ExpertPlacements."""

    def __init__(self, store: Store, cluster: Cluster) -> None:
        self._store, self._cluster = store, cluster
        self._parsed: dict[tuple[str, int], tuple[list[str], Map | None]] = {}  # by uid of the placement, and replica

    def written(self, placement: Object, index: int) -> Map | None:
        """What was written for an instance last; None where there is nothing, or somebody spoiled it."""
        documents = self._documents(placement, index)
        key = placement["metadata"]["uid"], index
        known = self._parsed.get(key)
        if known is None or known[0] != documents:
            known = self._parsed[key] = documents, _parsed(documents)
        return known[1]

    def shards(self, placement: Object, index: int) -> int:
        """ConfigMaps that hold an instance's map."""
        return len(self._documents(placement, index))

    def forget(self, uid: str, index: int) -> None:
        """Drops what is remembered of an instance that is gone."""
        self._parsed.pop((uid, index), None)

    def given(self, placement: Object, name: str) -> Map:
        """What a user wants. Raises BadMap. The operator sees ConfigMaps with its label only."""
        stored = self._store.get("ConfigMap", placement["metadata"]["namespace"], name)
        if stored is None:
            raise BadMap(f"there is no ConfigMap {name} with the label {names.LABEL_MANAGED_BY}: {names.MANAGED_BY}")
        return Map.parse([stored.get("data", {}).get(KEY, "")])

    async def write(self, placement: Object, index: int, map_: Map) -> Map:
        """Makes this the map of an instance; the same one again writes nothing."""
        bodies = map_config_maps(placement, index, map_.dump())
        for body in bodies:
            await self._cluster.apply("ConfigMap", body)
        for shard in range(len(bodies), MOST_SHARDS):
            stale = self._shard(placement, index, shard)
            if stale is None:
                break
            await self._cluster.delete("ConfigMap", stale)
        return map_

    def _documents(self, placement: Object, index: int) -> list[str]:
        documents: list[str] = []
        for shard in range(MOST_SHARDS):
            stored = self._shard(placement, index, shard)
            if stored is None or not stored.get("data", {}).get(KEY):
                break
            documents.append(stored["data"][KEY])
        return documents

    def _shard(self, placement: Object, index: int, shard: int) -> Object | None:
        metadata = placement["metadata"]
        return self._store.get("ConfigMap", metadata["namespace"], map_name(metadata["name"], index, shard))


def _parsed(documents: list[str]) -> Map | None:
    try:
        return Map.parse(documents)
    except BadMap:
        return None
