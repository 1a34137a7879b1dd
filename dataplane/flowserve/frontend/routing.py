"""Which instances serve: the route table and the picker. Pure: no clock, no I/O.

Routes are replaced whole, by epoch. A request takes a pair (prefill, decode) of one revision, for KV of one revision
means nothing to weights of another. Load is the number of this frontend's own requests on an instance. The least
loaded wins, ties go to the one that was picked longest ago, so that equal instances take turns. Instances that
already failed this request are taken only when no others are left.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from flowserve.epoch import Refused, supersedes
from flowserve.wire import Role, Routes, Target


class NoTarget(LookupError):
    """No instance of a role can take a request."""

    def __init__(self, role: Role) -> None:
        super().__init__(f"no {role.lower()} instance is ready")
        self.role = role


class Pair(NamedTuple):
    """The two instances that one request goes to."""

    prefill: Target
    decode: Target


class Router:
    """The routes in force and the load on each instance."""

    def __init__(self, deployment: str) -> None:
        self._deployment = deployment
        self._routes: Routes | None = None
        self._load: Counter[str] = Counter()
        self._last_pick: dict[str, int] = {}
        self._picks = 0

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
        known = {target.instance for target in routes.targets}
        self._last_pick = {name: pick for name, pick in self._last_pick.items() if name in known}

    def pick(self, avoid: Collection[str] = ()) -> Pair:
        """The pair for the next request; ``avoid`` names instances that failed it before. Raises NoTarget."""
        revisions = self._paired_revisions()
        if not revisions:
            raise NoTarget("Decode" if self._with_role("Prefill") and not self._with_role("Decode") else "Prefill")
        decode = self._least_loaded([t for t in self._with_role("Decode") if t.revision in revisions], avoid)
        prefill = self._least_loaded([t for t in self._with_role("Prefill") if t.revision == decode.revision], avoid)
        return Pair(prefill, decode)

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

    def _with_role(self, role: Role) -> list[Target]:
        return [target for target in self._routes.targets if target.role == role] if self._routes else []

    def _paired_revisions(self) -> set[str]:
        return {t.revision for t in self._with_role("Prefill")} & {t.revision for t in self._with_role("Decode")}

    def _least_loaded(self, targets: list[Target], avoid: Collection[str]) -> Target:
        def cost(target: Target) -> tuple[bool, int, int]:
            name = target.instance
            return name in avoid, self._load[name], self._last_pick.get(name, 0)

        best = min(targets, key=cost)
        self._picks += 1
        self._last_pick[best.instance] = self._picks
        return best
