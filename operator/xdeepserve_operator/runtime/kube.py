"""A thin asynchronous client of the Kubernetes REST API, over the configuration and session of ``kubernetes.aio``.

Objects are plain dictionaries: the generated models cost memory and time and add nothing to code that passes objects
through. Equal short strings of what is decoded, keys, names and labels, are one string. Every request has a timeout.
A 429 that names a time was not carried out, so it is repeated then, a few times; all other errors are the caller's.
Watches read chunks and split lines themselves, since a pod's line can exceed the line limit of the HTTP library; in a
flood of news they read in gulps, for a wake-up costs more than an event. Errors carry the API server's own reason and
message.
"""

import asyncio
import json
import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import getproxies

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from pydantic_core import from_json

from xdeepserve_operator.runtime.resources import Resource

Object = dict[str, Any]
UNREACHABLE = (aiohttp.ClientError, OSError)  # no answer; a TimeoutError is an OSError
USER_AGENT = "xdeepserve"  # the name in an object's managedFields, and in the API server's log
PAGE = 500
GULP_SECONDS = 0.02  # news that come faster one after the other than this are waited for so long
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
TIMEOUT = aiohttp.ClientTimeout(total=30)
BUSY_TRIES = 5
BUSY_SECONDS = 5.0  # longest wait between two tries
WATCH_SECONDS = 300
WATCH_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=WATCH_SECONDS + 30)


class ApiError(Exception):
    """The API server refused: HTTP status, machine-readable reason, message for people."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message


class NotFound(ApiError):
    """404: no such object."""


class Conflict(ApiError):
    """409: the object changed meanwhile, or a field has another owner."""


class AlreadyExists(Conflict):
    """409 on create: the name is taken."""


class Gone(ApiError):
    """410: the resourceVersion is too old; list again."""


class TooManyRequests(ApiError):
    """429: come back in ``after`` seconds, if the server said when."""

    after: float | None = None


_BY_STATUS: dict[int, type[ApiError]] = {404: NotFound, 409: Conflict, 410: Gone, 429: TooManyRequests}


def error_of(status: int, body: str) -> ApiError:
    """The exception for an answer of 400 or more; ``body`` is a Status object, or any text."""
    try:
        document = json.loads(body)
    except ValueError:
        document = {}
    fields = document if isinstance(document, dict) else {}
    reason = str(fields.get("reason") or "Unknown")
    message = str(fields.get("message") or body[:500])
    kind = AlreadyExists if reason == "AlreadyExists" else _BY_STATUS.get(status, ApiError)
    return kind(status, reason, message)


class KubeApi:
    """Requests to one API server as one user; made by ``connect``. ``on_call(verb, plural)`` counts requests."""

    def __init__(self, client: ApiClient, session: aiohttp.ClientSession) -> None:
        self._client, self._session = client, session
        self.on_call: Callable[[str, str], None] = lambda _verb, _plural: None

    @property
    def configuration(self) -> Configuration:
        """Server and credentials."""
        configuration: Configuration = self._client.configuration
        return configuration

    async def authorization(self) -> dict[str, str]:
        """The headers that identify us; tokens of service accounts are read anew when they turn."""
        auths: Any = await self.configuration.auth_settings()
        return {str(auth["key"]): str(auth["value"]) for auth in auths.values()}

    @classmethod
    @asynccontextmanager
    async def connect(cls, kubeconfig: Path | None = None, context: str | None = None) -> AsyncIterator["KubeApi"]:
        """Connects by ``kubeconfig``, else by KUBECONFIG or ~/.kube/config, else as the pod's service account.

        ``context`` names another context of the kubeconfig than its current one.
        """
        settings = Configuration()
        if kubeconfig is None and context is None and not _has_kubeconfig():
            config.load_incluster_config(client_configuration=settings)
        else:
            await config.load_kube_config(
                config_file=str(kubeconfig) if kubeconfig else None, context=context, client_configuration=settings
            )
        settings.connection_pool_maxsize = 64
        # The HTTP library asks the environment for proxies, but also, before every request, in a thread, for a .netrc.
        settings.client_session_kwargs = {
            "trust_env": bool(getproxies()),
            "headers": {"User-Agent": USER_AGENT},
        }
        async with ApiClient(configuration=settings) as client:
            rest = client.rest_client
            session = rest.pool_manager or rest._create_pool_manager()
            rest.pool_manager = session
            yield cls(client, session)

    @asynccontextmanager
    async def _open(
        self, method: str, path: str, *, timeout: aiohttp.ClientTimeout = TIMEOUT, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {**options.pop("headers", {}), **await self.authorization()}
        url = self.configuration.host + path
        async with self._session.request(method, url, headers=headers, timeout=timeout, **options) as response:
            if response.status >= 400:
                error = error_of(response.status, await response.text())
                if isinstance(error, TooManyRequests):
                    error.after = _seconds(response.headers.get("Retry-After"))
                raise error
            yield response

    async def request(self, method: str, path: str, **options: Any) -> Any:
        """One request; returns the decoded JSON answer. Raises ``ApiError``."""
        tries = 0
        while True:
            tries += 1
            try:
                async with self._open(method, path, **options) as response:
                    return from_json(await response.read())
            except TooManyRequests as busy:
                if busy.after is None or tries == BUSY_TRIES:
                    raise
                await asyncio.sleep(min(busy.after, BUSY_SECONDS))

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """Reads one object."""
        return await self._object("get", "GET", resource, resource.path(namespace, name))

    async def list(
        self, resource: Resource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> tuple[Sequence[Object], str]:
        """Reads a collection page by page; returns the items and the resourceVersion to watch from."""
        return await self._list(resource, namespace, _query(labelSelector=labels, fieldSelector=fields), {})

    async def list_metadata(self, resource: Resource, *, labels: str = "") -> Sequence[Object]:
        """Reads names and uids of a collection in all namespaces, without the objects' contents."""
        return (await self._list(resource, None, _query(labelSelector=labels), {"Accept": METADATA_ONLY}))[0]

    async def _list(
        self, resource: Resource, namespace: str | None, query: dict[str, str], headers: dict[str, str]
    ) -> tuple[Sequence[Object], str]:
        items: Sequence[Object] = []
        query["limit"] = str(PAGE)
        while True:
            page = await self._object("list", "GET", resource, resource.path(namespace), params=query, headers=headers)
            items = [*items, *(page["items"] or ())]  # an empty list of metadata is null
            metadata = page["metadata"]
            if not metadata.get("continue"):
                return items, metadata["resourceVersion"]
            query["continue"] = metadata["continue"]

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        labels: str = "",
        fields: str = "",
    ) -> AsyncIterator[tuple[str, Object]]:
        """Yields (ADDED | MODIFIED | DELETED | BOOKMARK, object) until the server ends the watch; ``Gone`` on 410."""
        query = _query(
            watch="true",
            labelSelector=labels,
            fieldSelector=fields,
            resourceVersion=resource_version,
            allowWatchBookmarks="true",
            timeoutSeconds=str(WATCH_SECONDS),
        )
        self.on_call("watch", resource.plural)
        async with self._open("GET", resource.path(namespace), timeout=WATCH_TIMEOUT, params=query) as response:
            buffer = bytearray()
            async for chunk in gulps(response.content):
                buffer += chunk
                *lines, rest = buffer.split(b"\n")
                buffer = bytearray(rest)
                for line in lines:
                    event = from_json(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise error_of(int(status.get("code", 500)), json.dumps(status))
                    yield event["type"], event["object"]

    async def create(self, resource: Resource, body: Object) -> Object:
        """Creates an object; ``AlreadyExists`` when the name is taken."""
        namespace = body["metadata"].get("namespace")
        return await self._object("create", "POST", resource, resource.path(namespace), json=body)

    async def apply(
        self,
        resource: Resource,
        body: Object,
        *,
        field_manager: str,
        subresource: str | None = None,
        force: bool = True,
    ) -> Object:
        """Server-side apply: the fields in ``body`` become ours; ours that are missing from it are removed."""
        metadata = body["metadata"]
        document = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        return await self._object(
            "apply",
            "PATCH",
            resource,
            resource.path(metadata.get("namespace"), metadata["name"], subresource),
            data=json.dumps(document),
            headers={"Content-Type": "application/apply-patch+yaml"},
            params={"fieldManager": field_manager, "force": str(force).lower()},
        )

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Object | Sequence[Object],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> Object:
        """A JSON patch (a list of operations) or a merge patch (an object)."""
        kind = "json-patch" if not isinstance(patch, dict) else "merge-patch"
        return await self._object(
            "patch",
            "PATCH",
            resource,
            resource.path(namespace, name, subresource),
            data=json.dumps(patch),
            headers={"Content-Type": f"application/{kind}+json"},
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        grace_seconds: int | None = None,
        uid: str | None = None,
    ) -> None:
        """Deletes an object in the background; with ``uid`` only that life of the name. Absent is fine."""
        options: Object = {"propagationPolicy": "Background"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            await self._object("delete", "DELETE", resource, resource.path(namespace, name), json=options)
        except NotFound:
            return

    async def delete_collection(
        self, resource: Resource, namespace: str, labels: Mapping[str, str], fields: Mapping[str, str]
    ) -> None:
        """Deletes the objects with these labels and fields, in the background.

        The server does it one by one and answers at the end: what is chosen must be few enough for a request's
        timeout. ValueError without labels: nobody means everything.
        """
        if not labels:
            raise ValueError(f"a deletion of all {resource.plural} of {namespace} was asked for")
        await self._object(
            "deletecollection",
            "DELETE",
            resource,
            resource.path(namespace),
            params=_query(labelSelector=_selector(labels), fieldSelector=_selector(fields)),
            headers={"Accept": METADATA_ONLY},
            json={"propagationPolicy": "Background"},
        )

    async def _object(self, verb: str, method: str, resource: Resource, path: str, **options: Any) -> Object:
        self.on_call(verb, resource.plural)
        answer: Object = await self.request(method, path, **options)
        return answer


def default_namespace(kubeconfig: Path | None = None, context: str | None = None) -> str:
    """The namespace that the kubeconfig's context names, as kubectl would use it; else ``default``."""
    if kubeconfig is None and context is None and not _has_kubeconfig():
        return "default"
    contexts, current = config.list_kube_config_contexts(str(kubeconfig) if kubeconfig else None)
    chosen = next((one for one in contexts if one["name"] == context), current)
    return str(chosen["context"].get("namespace") or "default")


def _query(**words: str) -> dict[str, str]:
    return {word: value for word, value in words.items() if value}


def _selector(values: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in values.items())


async def gulps(
    stream: aiohttp.StreamReader,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[bytes]:
    """All that has arrived, again and again; in a flood, what arrives within a moment is one gulp."""
    last = -math.inf
    async for chunk in stream.iter_any():
        yield chunk
        if monotonic() - last < GULP_SECONDS:
            await sleep(GULP_SECONDS)
        last = monotonic()


def _seconds(header: str | None) -> float | None:
    return float(header) if header and header.isdecimal() else None


def _has_kubeconfig() -> bool:
    named = os.environ.get("KUBECONFIG")
    return bool(named) or (Path.home() / ".kube" / "config").is_file()
