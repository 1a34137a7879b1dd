"""kopf, used for what it is best at: reliable watches. Handlers only pass events on; nothing is written to objects.

No ``@kopf.index`` (quadratic at thousands of objects), no finalizers, no annotations, no peering (a Lease elects the
leader), no posting of events by the framework. Settings are those of a process that lives behind load balancers.
"""

from typing import Any

import kopf

from xdeepserve_operator.api.names import GROUP
from xdeepserve_operator.runtime.cache import FOLLOWED, WATCHED, Cache
from xdeepserve_operator.runtime.kube import KubeApi
from xdeepserve_operator.runtime.resources import Resource


class _NoDiffs(kopf.DiffBaseStorage):
    """Nobody asks what changed since an object was last handled, so nothing is compared: it cost half of an event."""

    def build(self, *, body: Any, extra_fields: Any = None) -> Any:
        """Nothing to compare."""
        del body, extra_fields
        return {}

    def fetch(self, *, body: Any) -> Any:
        """Nothing was kept."""
        del body

    def store(self, *, body: Any, patch: Any, essence: Any) -> None:
        """Nothing is kept."""


def registry_for(api: KubeApi, cache: Cache) -> kopf.OperatorRegistry:
    """Handlers for the resources that the cache does not follow by itself, and a login by the identity of ``api``."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await connection_of(api)

    for resource in (one for one in WATCHED if one not in FOLLOWED):
        _pass_on(registry, resource, cache)
    return registry


def settings() -> kopf.OperatorSettings:
    """Settings of the watches."""
    result = kopf.OperatorSettings()
    result.posting.enabled = False
    result.peering.standalone = True
    result.scanning.disabled = True
    result.watching.server_timeout = 300
    result.watching.connect_timeout = 10
    result.watching.chunk_size = 500
    result.persistence.finalizer = f"{GROUP}/kopf"
    result.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP, v1=False)
    result.persistence.diffbase_storage = _NoDiffs()
    for resource, selector in WATCHED.items():
        if selector:
            result.watching.label_selectors[resource.plural] = selector
    return result


async def connection_of(api: KubeApi) -> kopf.ConnectionInfo:
    """The framework's credentials: the same server and user as ours."""
    configuration = api.configuration
    token = (await api.authorization()).get("authorization", "").partition(" ")[2] or None
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert or None,
        insecure=not configuration.verify_ssl,
        scheme="Bearer" if token else None,
        token=token,
        certificate_path=configuration.cert_file or None,
        private_key_path=configuration.key_file or None,
        default_namespace="default",
    )


def _pass_on(registry: kopf.OperatorRegistry, resource: Resource, cache: Cache) -> None:
    @kopf.on.event(resource.group, resource.version, resource.plural, id=f"watch-{resource.plural}", registry=registry)
    async def handler(event: Any, **_: Any) -> None:
        if event["type"] == "DELETED":
            cache.deleted(resource, dict(event["object"]))
        else:
            cache.changed(resource, dict(event["object"]))
