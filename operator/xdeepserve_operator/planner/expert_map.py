"""A whole placement as it is kept in ConfigMaps, and the way from one to the next in steps."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from flowserve.wire_experts import ExpertTable, LayerSlots

Slots = tuple[tuple[int, ...], ...]  # [ranks][slots] of a layer; -1 is an empty slot
SHARD_BYTES = 512 << 10  # a ConfigMap may have 1 MiB
EMPTY = -1


class BadMap(ValueError):
    """A ConfigMap that holds no placement; the message says why."""


class NoPlan(ValueError):
    """No placement can be planned for this load and these constraints; the message says why."""


@dataclass(frozen=True)
class Map:
    """``layers`` by number."""

    experts: int
    layers: Mapping[int, Slots]

    @classmethod
    def of(cls, table: ExpertTable) -> "Map":
        """What is in force."""
        return cls(table.experts, {each.layer: _trimmed(each.slots) for each in table.layers})

    @classmethod
    def parse(cls, shards: Iterable[str]) -> "Map":
        """What ``dump`` has written. Raises BadMap."""
        experts, layers = 0, {}
        try:
            for shard in shards:
                document = json.loads(shard)
                experts = int(document["experts"])
                for number, slots in document["layers"].items():
                    checked = LayerSlots.model_validate({"layer": int(number), "slots": slots})
                    layers[checked.layer] = _trimmed(checked.slots)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise BadMap(f"no placement: {str(error)[:300] or type(error).__name__}") from error
        if not layers:
            raise BadMap("no placement: there are no layers")
        return cls(experts, layers)

    def dump(self, shard_bytes: int = SHARD_BYTES) -> list[str]:
        """JSON documents of at most ``shard_bytes`` each, but of a layer at least: the same map in the same bytes."""
        shards: list[str] = []
        part: dict[str, Slots] = {}
        size = 0
        for number in sorted(self.layers):
            length = len(json.dumps(self.layers[number], separators=(",", ":"))) + 16
            if part and size + length > shard_bytes:
                shards.append(self._document(part))
                part, size = {}, 0
            part[str(number)] = self.layers[number]
            size += length
        return [*shards, self._document(part)]

    def fits(self, table: ExpertTable) -> str:
        """Why an instance with this table cannot have the map; empty if it can."""
        here = {each.layer: len(each.slots) for each in table.layers}
        there = {number: len(slots) for number, slots in self.layers.items()}
        if here != there:
            return f"the map is for layers and ranks {_brief(there)}, the instance has {_brief(here)}"
        if self.experts != table.experts:
            return f"the map is for {self.experts} experts, the model has {table.experts}"
        return ""

    def changed(self, layers: Mapping[int, Slots]) -> "Map":
        """The map with other slots in some layers."""
        return Map(self.experts, {**self.layers, **{number: _trimmed(slots) for number, slots in layers.items()}})

    def differing(self, other: "Map") -> list[int]:
        """Layers that are not the same in both."""
        return sorted(number for number, slots in self.layers.items() if other.layers.get(number) != slots)

    def step(self, numbers: Iterable[int]) -> tuple[LayerSlots, ...]:
        """Some layers, as an order has them."""
        return tuple(LayerSlots(layer=number, slots=self.layers[number]) for number in numbers)

    @cached_property
    def used(self) -> frozenset[int]:
        """Ranks that hold an expert, in any layer."""
        return frozenset(
            rank
            for slots in self.layers.values()
            for rank, held in enumerate(slots)
            if max(held, default=EMPTY) != EMPTY
        )

    @property
    def ranks(self) -> int:
        """How many ranks it is for."""
        return max(map(len, self.layers.values()), default=0)

    def missing(self) -> int:
        """Experts without any copy, over all layers."""
        everything = set(range(self.experts))
        return sum(len(everything.difference(*slots)) for slots in self.layers.values())

    def _document(self, part: Mapping[str, Slots]) -> str:
        return json.dumps({"experts": self.experts, "layers": part}, separators=(",", ":"))


def _trimmed(slots: Slots) -> Slots:
    """Without columns that are empty on all ranks: more slots than are used make no other placement."""
    width = max((1 + index for rank in slots for index, expert in enumerate(rank) if expert != EMPTY), default=1)
    return tuple(tuple(rank[:width]) for rank in slots)


def _brief(layers: Mapping[int, int]) -> str:
    return f"{min(layers)}..{max(layers)} x {max(layers.values())}" if layers else "none"
