"""Hands out dies by number, as a device plugin does. Pure.

Invariants: a die belongs to one pod at most; an unhealthy die is never handed out; what a pod got it keeps until it
is released, whatever becomes of the die's health. Free dies are taken in the order of their numbers, so that small
numbers fill first and the rest of the server stays in one block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from xdeepserve_operator.api import names
from xdeepserve_operator.runtime.kube import Object


class NoDies(Exception):
    """Fewer healthy free dies than asked for."""


class DieAllocator:
    """The dies of one server, and who holds them."""

    def __init__(self, dies: Iterable[int]) -> None:
        self._holder: dict[int, str | None] = dict.fromkeys(sorted(dies))

    def held(self, pod_uid: str) -> tuple[int, ...]:
        """The dies of a pod, ascending."""
        return tuple(die for die, holder in self._holder.items() if holder == pod_uid)

    def free(self, unhealthy: Set[int]) -> list[int]:
        """Dies that could be handed out now, ascending."""
        return [die for die, holder in self._holder.items() if holder is None and die not in unhealthy]

    def allocate(self, pod_uid: str, count: int, unhealthy: Set[int]) -> tuple[int, ...]:
        """`count` dies for a pod that holds none yet. Raises NoDies, and then changes nothing."""
        free = self.free(unhealthy)
        if len(free) < count:
            raise NoDies(f"requested {count} dies, {len(free)} healthy ones are free")
        chosen = tuple(free[:count])
        for die in chosen:
            self._holder[die] = pod_uid
        return chosen

    def restore(self, pod_uid: str, dies: Iterable[int]) -> bool:
        """Give a pod the dies that it held before the agent restarted; False, and no change, if one is taken."""
        wanted = set(dies)
        if not wanted <= self._holder.keys() or any(self._holder[die] not in (None, pod_uid) for die in wanted):
            return False
        for die in wanted:
            self._holder[die] = pod_uid
        return True

    def release(self, pod_uid: str) -> None:
        """Take back all dies of a pod."""
        for die in self.held(pod_uid):
            self._holder[die] = None


def wanted_dies(pod: Object) -> dict[str, int]:
    """How many dies each container asks for; containers that ask for none are left out."""
    containers = pod["spec"]["containers"]
    limits = {
        item["name"]: int(item.get("resources", {}).get("limits", {}).get(names.RESOURCE_DIE, 0)) for item in containers
    }
    return {name: count for name, count in limits.items() if count}


def split_dies(wanted: Mapping[str, int], dies: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """A pod's dies by container: in the order of the containers, so that a restart gives the same."""
    found, start = {}, 0
    for name, count in wanted.items():
        found[name] = tuple(dies[start : start + count])
        start += count
    return found
