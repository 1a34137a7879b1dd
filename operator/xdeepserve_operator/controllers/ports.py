"""What reconcilers need of the world, as protocols: the runtime implements them, tests replace them.

Objects are plain dicts as the API server sends them, with ``apiVersion`` and ``kind``. They are shared: nobody changes
one in place.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from flowserve.wire import EngineConfig, FrontendStatus, Membership, Roster, Routes, ShellStatus

Object = dict[str, Any]


class Key(NamedTuple):
    """An object to reconcile; ``namespace`` is None for cluster-wide kinds."""

    kind: str
    namespace: str | None
    name: str


class Store(Protocol):
    """Reads from caches that watches feed; never the network."""

    def get(self, kind: str, namespace: str | None, name: str) -> Object | None:
        """The object, or None."""

    def list(self, kind: str, namespace: str | None = None, labels: Mapping[str, str] | None = None) -> list[Object]:
        """Objects of a kind, in one namespace or all, that carry all ``labels``."""


class Cluster(Protocol):
    """Writes. The store shows what was applied, created or written to status as soon as the call returns.

    A deletion or a new scale may reach the store later: reconcilers must bear to see the object once more.
    """

    async def apply(self, kind: str, body: Object) -> Object:
        """Server-side apply, creating what is absent; skipped when the stored object shows all of ``body``."""

    async def create(self, kind: str, body: Object) -> Object:
        """Creates; when the name is taken, returns what holds it. Fields created so are not owned by ``apply``."""

    async def strip(self, kind: str, obj: Object, fields: Sequence[str]) -> Object:
        """Takes fields away from this very state of the object, by JSON pointer, whoever owns them."""

    async def update_status(self, kind: str, obj: Object, status: Object) -> None:
        """Makes the fields of ``status``, and of conditions those types, be so; skipped when they are."""

    async def scale(self, executor: Object, replicas: int) -> None:
        """Sets replicas through /scale."""

    async def delete(self, kind: str, obj: Object, *, grace_seconds: int | None = None) -> None:
        """Deletes this very object (by uid); absent is fine."""

    async def delete_all(self, kind: str, namespace: str, labels: Mapping[str, str], fields: Mapping[str, str]) -> None:
        """Deletes all objects of a kind with all these labels and fields, in few requests."""

    async def token(self, namespace: str, secret_name: str, owner: Object) -> str:
        """The control token in a Secret, made on first use; ValueError when the Secret has none."""

    def event(self, obj: Object, reason: str, message: str, *, warning: bool = False) -> None:
        """Tells people about a transition."""


class Engines(Protocol):
    """Control routes of TE-shells and frontends; ``host`` is a pod IP. No answer is None or False, never an error."""

    async def shell_status(self, host: str, token: str) -> ShellStatus | None:
        """What a TE-shell says."""

    async def frontend_status(self, host: str, token: str) -> FrontendStatus | None:
        """What a frontend says."""

    async def put_roster(self, host: str, token: str, roster: Roster) -> bool:
        """Whom a TE-shell should listen to; True when it took it."""

    async def put_membership(self, host: str, token: str, membership: Membership) -> bool:
        """What a TE-shell should spread; True when it took it."""

    async def put_assignment(self, host: str, token: str, config: EngineConfig) -> bool:
        """What a warm engine should become; True when it is that now."""

    async def put_routes(self, host: str, token: str, routes: Routes) -> bool:
        """Where a frontend finds instances; True when it took it."""


class Clock(Protocol):
    """Time."""

    def now(self) -> datetime:
        """UTC."""

    def monotonic(self) -> float:
        """Seconds that never jump."""


class Reconciler(Protocol):
    """One kind's reconciler. It may be called at any time, any number of times, and may be cut off between writes."""

    kind: str

    async def reconcile(self, namespace: str | None, name: str) -> float | None:
        """Brings one object closer to its spec; seconds until it wants to run again, None for events only."""
