"""What a placement must fit into: NPUs, their slots and speeds, servers, and what some of them already carry.

A layer looks the same to every layer: one ``Cluster`` serves all. ``slots`` counts routed experts only; a shared
expert is not placed here, but its tokens are load of the NPUs that hold it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from eplb.errors import Unplannable

MAX_SLOTS = 2**20  # NPUs * slots of one layer


@dataclass(frozen=True)
class Cluster:
    """NPUs of one expert-parallel group.

    ``slots``: routed experts an NPU holds, one number or one a NPU. ``excluded``: NPUs that get nothing (dead or
    draining). ``speeds``: relative, one a NPU; load counts as tokens / speed. ``shared_on``: NPUs that also serve the
    shared expert, whose tokens they split evenly. ``servers`` with ``expert_groups``: hierarchical placement, all
    experts of a group (consecutive ids) live on one server (consecutive NPUs), as many groups on each.
    """

    npus: int
    slots: int | Sequence[int]
    excluded: frozenset[int] = frozenset()
    speeds: Sequence[float] | None = None
    shared_on: Sequence[int] = field(default=())
    servers: int = 1
    expert_groups: int = 1

    def __post_init__(self) -> None:
        if self.npus < 1:
            raise Unplannable(f"a cluster needs at least one NPU; it has {self.npus}")
        slots = [self.slots] if isinstance(self.slots, int) else list(self.slots)
        if not isinstance(self.slots, int) and len(slots) != self.npus:
            raise Unplannable(f"slots names {len(slots)} NPUs of {self.npus}")
        if min(slots) < 0 or max(slots) < 1:
            raise Unplannable(f"slots of an NPU must be 0 or more, and 1 or more on some; they are {self.slots}")
        if self.npus * max(slots) > MAX_SLOTS:
            raise Unplannable(f"{self.npus} NPUs of {max(slots)} slots are too many; {MAX_SLOTS} slots are the limit")
        for name, numbers in (("excluded", self.excluded), ("shared_on", self.shared_on)):
            if strange := [number for number in numbers if not 0 <= number < self.npus]:
                raise Unplannable(f"{name} names NPU {strange[0]}; there are {self.npus}, from 0")
        if self.speeds is not None:
            if len(self.speeds) != self.npus:
                raise Unplannable(f"speeds names {len(self.speeds)} NPUs of {self.npus}")
            if not all(0 < speed < float("inf") for speed in self.speeds):
                raise Unplannable("speeds must be positive and finite")
        if self.servers < 1 or self.npus % self.servers:
            raise Unplannable(f"{self.npus} NPUs cannot be dealt out evenly to {self.servers} servers")
        if self.expert_groups > 1 and self.expert_groups % self.servers:
            raise Unplannable(
                f"{self.expert_groups} expert groups cannot be dealt out evenly to {self.servers} servers"
            )

    @property
    def hierarchical(self) -> bool:
        """Whether experts are tied to servers by their group."""
        return self.servers > 1 and self.expert_groups > 1

    @property
    def width(self) -> int:
        """Slots of the widest NPU: the last dimension of every placement."""
        return self.slots if isinstance(self.slots, int) else max(self.slots)

    def open_slots(self) -> NDArray[np.bool_]:
        """[npus, width]: slots that may hold an expert."""
        wide = np.full(self.npus, self.slots) if isinstance(self.slots, int) else np.asarray(self.slots)
        wide = np.where(np.isin(np.arange(self.npus), list(self.excluded)), 0, wide)
        return np.asarray(np.arange(self.width) < wide[:, None])

    def speed(self) -> NDArray[np.float64]:
        """[npus]: relative speed; 0 where excluded."""
        speed = np.ones(self.npus) if self.speeds is None else np.asarray(self.speeds, dtype=np.float64)
        return np.where(np.isin(np.arange(self.npus), list(self.excluded)), 0.0, speed)

    def background(self, top_k: int) -> NDArray[np.float64]:
        """[npus]: load of the shared expert, as a part of a layer's routed tokens."""
        load = np.zeros(self.npus)
        holders = [number for number in self.shared_on if number not in self.excluded]
        if self.shared_on and not holders:
            raise Unplannable("every NPU that holds the shared expert is excluded")
        if holders:
            if top_k < 1:
                raise Unplannable("the load of a shared expert needs top_k, the experts a token visits")
            load[holders] = 1.0 / (top_k * len(holders))
        return load
