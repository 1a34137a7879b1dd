"""Prefill and decode change their revision together.

An engine understands KV of its own pair only (see revision). So a replica is of use while a replica of the other type
serves in the same pair, and giving one up may make others useless. Two rules, over all roles of a deployment:

* Budget: no role may lose useful replicas below its floor (replicas less ``maxUnavailable``) because one leaves,
  whether it is the one that leaves or loses its partners. A role whose own budget lets all of it be missing at once
  (one replica, replaced in place) takes its partners along.
* Turn: a role that already has a replica of the new pair gives up an old one only if its progress would not run ahead
  of another role by more than that role's own next step. The role whose next step ends first may always go, so
  somebody always may; and capacity of both pairs stays in the proportion of the roles.

A role that has none of the new pair yet may always go, within its budget: others wait for it to pair with.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from xdeepserve_operator.api.v1alpha1.base import RoleType


@dataclass(frozen=True, slots=True)
class Member:
    """One replica as other roles see it; ``movable``: it is to be replaced by another revision."""

    replica: int
    pair: str
    serves: bool
    movable: bool = False


@dataclass(frozen=True, slots=True)
class RoleState:
    """A role's replicas that have not begun to leave; ``floor``: how many of them must stay of use."""

    name: str
    type: RoleType
    replicas: int
    floor: int
    target: str
    members: tuple[Member, ...]

    def without(self, replica: int) -> "RoleState":
        """The role after that replica left."""
        return replace(self, members=tuple(one for one in self.members if one.replica != replica))

    @property
    def left(self) -> int:
        """Replicas of another pair that are to be replaced."""
        return sum(one.movable and one.pair != self.target for one in self.members)

    def progress(self, steps: int = 0) -> Fraction:
        """Share that has left the old pairs, after ``steps`` more have."""
        return 1 - Fraction(self.left - steps, max(1, self.replicas))


def useful(roles: Sequence[RoleState]) -> dict[str, int]:
    """Replicas of use, by role; a role without the other type counts by itself."""
    served = {role.type: set[str]() for role in roles}
    for role in roles:
        served[role.type] |= {one.pair for one in role.members if one.serves}
    common = set[str].intersection(*served.values())
    return {role.name: sum(one.serves and one.pair in common for one in role.members) for role in roles}


def objection(roles: Sequence[RoleState], name: str, replica: int) -> str | None:
    """Why ``replica`` of role ``name`` may not leave now; None when it may."""
    mine = next(role for role in roles if role.name == name)
    others = [role for role in roles if role.name != name]
    before, after = useful(roles), useful([mine.without(replica), *others])
    for role in roles:
        spared = role is mine or mine.floor > 0
        if spared and after[role.name] < min(role.floor, before[role.name]):
            return f"{role.name} would have {after[role.name]} instances of use, its budget says {role.floor}"
    begun = any(one.pair == mine.target for one in mine.members)
    leaves_old_pair = any(one.replica == replica and one.pair != mine.target for one in mine.members)
    if begun and leaves_old_pair:
        for role in others:
            if role.left and mine.progress(1) > role.progress(1):
                return f"{role.name} comes first"
    return None
