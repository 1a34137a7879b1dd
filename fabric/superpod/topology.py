"""Where dies are: SuperPod → server → die. Immutable values, validated when built."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from superpod.chip import CHIPS, Chip


@dataclass(frozen=True)
class Die:
    """One die, by its number inside its server: the unit that a rank runs on."""

    server: str
    index: int


@dataclass(frozen=True)
class Server:
    """A server of one SuperPod; `has_roce` is false where its RoCE plane is not wired or is down."""

    name: str
    superpod: str
    chip: Chip
    has_roce: bool = True

    @property
    def has_ub(self) -> bool:
        return CHIPS[self.chip].has_ub

    @property
    def dies(self) -> tuple[Die, ...]:
        """The server's dies in the order of their numbers: 8 on a 910B server, 16 on a 910C server."""
        return tuple(Die(self.name, index) for index in range(CHIPS[self.chip].dies_per_server))


@dataclass(frozen=True)
class SuperPod:
    """The servers of one SuperPod, in a stable order. Raises ValueError on a foreign or doubled server."""

    name: str
    servers: tuple[Server, ...]

    def __post_init__(self) -> None:
        names = [server.name for server in self.servers]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"SuperPod {self.name!r}: servers named twice: {', '.join(doubled)}")
        for server in self.servers:
            if server.superpod != self.name:
                raise ValueError(f"SuperPod {self.name!r}: server {server.name!r} is of {server.superpod!r}")

    def dies(self, chip: Chip | None = None) -> Iterator[Die]:
        """Every die, server by server; only those of `chip` when one is given."""
        for server in self.servers:
            if chip is None or server.chip is chip:
                yield from server.dies
