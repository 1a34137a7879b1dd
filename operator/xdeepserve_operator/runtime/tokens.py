"""Control tokens: one Secret a deployment, made on first use, read rarely.

A Secret belongs to one life of its owner. While the Secret of a deleted owner waits for the garbage collector, a new
owner of the same name has no token: pods made now would lose theirs with that Secret. A token is read again every
``FRESH_SECONDS``; a Secret that vanished meanwhile is made anew with the same token, which running pods still hold.
"""

import secrets
import time
from base64 import b64decode
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from xdeepserve_operator.api.names import GROUP, LABEL_MANAGED_BY, MANAGED_BY
from xdeepserve_operator.planner.recent import Recent
from xdeepserve_operator.runtime import resources
from xdeepserve_operator.runtime.kube import AlreadyExists, Conflict, KubeApi, NotFound, Object

FRESH_SECONDS = 30.0
KEPT_SECONDS = 3600.0  # longer than anybody goes without asking


@dataclass(frozen=True, slots=True)
class _Life:
    """An owner: kind and name can come back, the uid never does."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class _Known:
    token: str
    life: _Life | None  # whose Secret it is; None for one that a user made
    read_at: float


class Tokens:
    """The tokens of all deployments; ``fence`` surrounds writes and raises when there may be none."""

    def __init__(
        self,
        api: KubeApi,
        fence: Callable[[], AbstractAsyncContextManager[None]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._fence, self._monotonic = api, fence, monotonic
        self._known = Recent[tuple[str, str], _Known](KEPT_SECONDS)

    async def get(self, namespace: str, name: str, owner: Object) -> str:
        """The Secret's key ``token``; the Secret is made, owned by ``owner``, when there is none.

        Raises ValueError when it has no token, Conflict while it is that of a deleted owner.
        """
        known = self._known.get((namespace, name), self._monotonic())
        if known is not None and _of_earlier_life(known.life, owner):
            known = None
        if known is not None and self._monotonic() - known.read_at < FRESH_SECONDS:
            return known.token
        try:
            secret = await self._api.get(resources.SECRETS, name, namespace)
        except NotFound:
            secret = await self._create(namespace, name, owner, known.token if known else secrets.token_urlsafe(32))
        life = _controller(secret)
        if _of_earlier_life(life, owner):
            raise Conflict(
                409, "Conflict", f"Secret {namespace}/{name} of a deleted {owner['kind']} is being collected"
            )
        token = b64decode((secret.get("data") or {}).get("token", "")).decode()
        if not token:
            raise ValueError(f"Secret {namespace}/{name}: key 'token' is missing or empty; add it")
        now = self._monotonic()
        self._known.put((namespace, name), _Known(token, life, now), now)
        return token

    async def _create(self, namespace: str, name: str, owner: Object, token: str) -> Object:
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {LABEL_MANAGED_BY: MANAGED_BY},
                "ownerReferences": [
                    {
                        "apiVersion": owner["apiVersion"],
                        "kind": owner["kind"],
                        "name": owner["metadata"]["name"],
                        "uid": owner["metadata"]["uid"],
                        "controller": True,
                    }
                ],
            },
            "stringData": {"token": token},
        }
        try:
            async with self._fence():
                return await self._api.create(resources.SECRETS, body)
        except AlreadyExists:
            return await self._api.get(resources.SECRETS, name, namespace)


def _of_earlier_life(life: _Life | None, owner: Object) -> bool:
    """Whether ``life`` is that of an object that had the name of ``owner``, or of its owner, before it."""
    itself = _Life(owner["kind"], owner["metadata"]["name"], owner["metadata"]["uid"])
    return any(
        life is not None and one is not None and (life.kind, life.name) == (one.kind, one.name) and life.uid != one.uid
        for one in (itself, _controller(owner))
    )


def _controller(obj: Object) -> _Life | None:
    """The object of our group that controls ``obj``."""
    for one in obj["metadata"].get("ownerReferences") or ():
        if one.get("controller") and one["apiVersion"].startswith(f"{GROUP}/"):
            return _Life(one["kind"], one["name"], one["uid"])
    return None
