"""What a plan must know of an instance's ranks: which hold nothing, how fast they are, which share a server."""

from collections import Counter
from dataclasses import dataclass

from xdeepserve_operator.api.v1alpha1.experts import ExpertPlacementSpec
from xdeepserve_operator.planner.expert_map import NoPlan


@dataclass(frozen=True)
class Ranks:
    """``closed`` hold no expert. ``speeds`` are relative, ``servers`` names, both by rank."""

    closed: frozenset[int]
    speeds: tuple[float, ...]
    servers: tuple[str, ...]

    @classmethod
    def of(cls, spec: ExpertPlacementSpec, evacuated: frozenset[int], servers: tuple[str, ...]) -> "Ranks":
        """The ranks on these ``servers``, of which recovery wants ``evacuated`` to be empty, and the user some more.

        An instance lies on one chip, so its ranks are alike unless the user says that one is slower.
        """
        told = {one.rank: one.percent / 100 for one in spec.rank_speeds}
        count = len(servers)
        closed = evacuated | {rank for rank in spec.evacuate if rank < count}
        return cls(closed, tuple(told.get(rank, 1.0) for rank in range(count)), servers)

    @property
    def weights(self) -> tuple[float, ...]:
        """By rank: the speed at which it serves experts, 0 for one that holds none."""
        return tuple(0.0 if rank in self.closed else speed for rank, speed in enumerate(self.speeds))

    def by_server(self) -> tuple[tuple[int, ...], int]:
        """The ranks, those of a server side by side, and the number of servers. Raises NoPlan if they differ in size.

        Servers come in the order of their first ranks, so that ranks which are in order already stay so.
        """
        size = Counter(self.servers)
        if len(set(size.values())) > 1:
            told = ", ".join(f"{server or 'no server yet'} {count}" for server, count in sorted(size.items()))
            raise NoPlan(f"expertGroups SameServer needs as many ranks on each server; there are: {told}"[:1024])
        first = {server: self.servers.index(server) for server in size}
        order = sorted(range(len(self.servers)), key=lambda rank: (first[self.servers[rank]], rank))
        return tuple(order), len(size)
