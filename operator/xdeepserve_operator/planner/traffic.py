"""Routes: which instances get requests, and how the traffic is shared between revisions.

An instance is routed while it serves and does not leave. Requests are prefilled and decoded in one pair; a pair's
weight is what it could carry, the smaller of its shares of the prefill and of the decode instances, so that a rollout
shifts the traffic as it moves instances, and one new instance is not flooded. A pair that lacks a role carries nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flowserve.wire import Target
from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.base import RoleType

WHOLE = 100


@dataclass(frozen=True, slots=True)
class Entrance:
    """An instance that serves: its TE-shell's address and the pair it belongs to."""

    instance: str
    role: RoleType
    shell_host: str
    pair: str


def targets(entrances: Sequence[Entrance]) -> tuple[Target, ...]:
    """The targets of the routes, by name."""
    weights = _weights(entrances)
    return tuple(
        Target(
            instance=one.instance,
            role=one.role,
            shell_host=one.shell_host,
            shell_port=names.PORT_CONTROL,
            revision=one.pair,
            weight=weights[one.pair],
        )
        for one in sorted(entrances, key=lambda one: one.instance)
    )


def _weights(entrances: Sequence[Entrance]) -> Mapping[str, int]:
    """Weight of every pair, in percent, at least 1 if it can carry anything; the only pair has all of it."""
    count = Counter((one.role, one.pair) for one in entrances)
    total = Counter(one.role for one in entrances)
    pairs = {one.pair for one in entrances}
    if len(pairs) == 1:
        return dict.fromkeys(pairs, WHOLE)
    shares = {
        pair: min(count[role, pair] * WHOLE // max(1, total[role]) for role in ("Prefill", "Decode")) for pair in pairs
    }
    whole = {pair for pair in pairs if count["Prefill", pair] and count["Decode", pair]}
    return {pair: max(1, share) if pair in whole else 0 for pair, share in shares.items()}
