"""How a pod's service account reaches a process: tokens from the TokenRequest API, bound to the pod, and a kubeconfig.

Client libraries look for a service account at a fixed path, which a process without a mount namespace cannot have. A
kubeconfig named by KUBECONFIG serves them as well, and the API server's authorization is exercised in full. Tokens are
renewed after four fifths of their life.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from xdeepserve_cluster.agent.host import Host
from xdeepserve_cluster.agent.moments import parse_rfc3339
from xdeepserve_cluster.agent.retries import insist
from xdeepserve_cluster.agent.volumes import TokenRequest, directory, token_requests
from xdeepserve_operator.runtime.kube import Object
from xdeepserve_operator.runtime.resources import SERVICEACCOUNTS

RENEW_AFTER = 0.8  # of a token's life
MIN_RENEWAL_S = 10.0


class PodTokens:
    """The tokens of one pod."""

    def __init__(self, host: Host, pod: Object) -> None:
        self._host, self._pod = host, pod
        self._expires = float("inf")

    async def request(self) -> dict[TokenRequest, str]:
        """New tokens for all volumes of the pod. Raises ApiError."""
        found: dict[TokenRequest, str] = {}
        self._expires = float("inf")
        for request in sorted(token_requests(self._pod)):
            status = await self._request(request)
            found[request] = status["token"]
            self._expires = min(self._expires, parse_rfc3339(status["expirationTimestamp"]))
        return found

    async def keep(self, renew: Callable[[], Awaitable[None]]) -> None:
        """Calls `renew`, which requests anew, before tokens expire, for ever; returns at once if there are none."""
        while self._expires != float("inf"):
            life = self._expires - self._host.clock()
            await asyncio.sleep(max(MIN_RENEWAL_S, RENEW_AFTER * life))
            if not await insist(renew, f"token of pod {self._pod['metadata']['name']}"):
                return

    async def _request(self, request: TokenRequest) -> Object:
        metadata = self._pod["metadata"]
        account = self._pod["spec"].get("serviceAccountName", "default")
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        spec: Object = {
            "audiences": [request.audience] if request.audience else [],
            "expirationSeconds": request.seconds,
            "boundObjectRef": bound,
        }
        answer = await self._host.api.request(
            "POST",
            SERVICEACCOUNTS.path(metadata["namespace"], account, "token"),
            json={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
        )
        status: Object = answer["status"]
        return status


def write_kubeconfig(host: Host, container: Object, pod: Object, pod_directory: Path) -> Path | None:
    """A kubeconfig for a container that mounts a token for the API server; None for others."""
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
    for mount in container.get("volumeMounts", []):
        volume = volumes[mount["name"]]
        sources = volume.get("projected", {}).get("sources") or []
        for token in (source["serviceAccountToken"] for source in sources if source.get("serviceAccountToken")):
            if not token.get("audience"):
                files = directory(volume, pod_directory)
                path = pod_directory / f"kubeconfig-{mount['name']}"
                document = _kubeconfig(host, pod["metadata"]["namespace"], files / "ca.crt", files / token["path"])
                path.write_text(json.dumps(document, indent=2))
                return path
    return None


def _kubeconfig(host: Host, namespace: str, authority: Path, token: Path) -> Object:
    cluster = {"server": host.settings.api_url, "certificate-authority": str(authority)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "pod", "user": {"tokenFile": str(token)}}],
        "contexts": [{"name": "pod", "context": {"cluster": "cluster", "user": "pod", "namespace": namespace}}],
        "current-context": "pod",
    }
