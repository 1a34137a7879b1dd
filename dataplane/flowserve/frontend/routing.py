"""Which instances serve: the route table and the picker. Pure: no clock, no I/O.

Routes are replaced whole, by epoch. A request is prefilled and decoded by instances of one revision, for KV of one
revision means nothing to weights of another; a revision that lacks one of the roles takes no requests. Revisions share
the requests by weight: the next one goes to whichever had the fewest for its weight. Within a revision, load is the
number of this frontend's own requests on an instance. The least loaded wins, ties go to the one that was picked
longest ago, so that equal instances take turns. Instances that already failed this request are the last choice.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from flowserve.epoch import Refused, supersedes
from flowserve.wire import Role, Routes, Target


class NoTarget(LookupError):
    """No instance of a role can take a request."""

    def __init__(self, role: Role) -> None:
        super().__init__(f"no {role.lower()} instance is ready")
        self.role = role


class Router:
    """The routes in force and the load on each instance."""

    def __init__(self, deployment: str) -> None:
        self._deployment = deployment
        self._routes: Routes | None = None
        self._load: Counter[str] = Counter()
        self._last_pick: dict[str, int] = {}
        self._picks = 0
        self._taken: Counter[str] = Counter()  # requests given to each revision under these routes

    @property
    def epoch(self) -> int:
        """Epoch of the routes in force, 0 before the first."""
        return self._routes.epoch if self._routes else 0

    @property
    def ready(self) -> bool:
        """Whether some revision has both a prefill and a decode instance."""
        return bool(self._paired_revisions())

    def replace(self, routes: Routes) -> None:
        """Put new routes in force; the same again are harmless. Raises epoch.Refused."""
        if routes.deployment != self._deployment:
            raise Refused(f"routes are for deployment {routes.deployment!r}, this is {self._deployment!r}")
        if not supersedes(routes, self._routes):
            return
        self._routes = routes
        self._taken.clear()
        known = {target.instance for target in routes.targets}
        self._last_pick = {name: pick for name, pick in self._last_pick.items() if name in known}

    def pick(self, role: Role, avoid: Collection[str] = (), revision: str | None = None) -> Target:
        """The instance for the next request, of ``revision`` if one is given; raises NoTarget.

        ``avoid`` names instances that failed this request before.
        """
        paired = self._paired_revisions()
        revisions = paired if revision is None else paired & {revision}
        targets = [target for target in self._with_role(role) if target.revision in revisions]
        if not targets:
            raise NoTarget(self._missing_role())

        def cost(target: Target) -> tuple[bool, float, int, int]:
            name = target.instance
            return name in avoid, self._share(target), self._load[name], self._last_pick.get(name, 0)

        best = min(targets, key=cost)
        self._picks += 1
        if revision is None:
            self._taken[best.revision] += 1
        self._last_pick[best.instance] = self._picks
        return best

    @contextmanager
    def hold(self, target: Target) -> Iterator[None]:
        """Count one request on an instance while the context is open."""
        self._load[target.instance] += 1
        try:
            yield
        finally:
            self._load[target.instance] -= 1
            if not self._load[target.instance]:
                del self._load[target.instance]

    def _share(self, target: Target) -> float:
        """Requests that its revision would have had, for each unit of its weight."""
        return (self._taken[target.revision] + 1) / target.weight if target.weight else math.inf

    def _with_role(self, role: Role) -> list[Target]:
        return [target for target in self._routes.targets if target.role == role] if self._routes else []

    def _revisions(self, role: Role) -> set[str]:
        return {target.revision for target in self._with_role(role)}

    def _paired_revisions(self) -> set[str]:
        return self._revisions("Prefill") & self._revisions("Decode")

    def _missing_role(self) -> Role:
        return "Decode" if self._with_role("Prefill") and not self._with_role("Decode") else "Prefill"
