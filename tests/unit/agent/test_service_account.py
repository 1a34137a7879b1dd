"""Tokens of pods are requested, bound, and renewed before they expire."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.unit.agent.fake_api import FakeApi, make_host
from xdeepserve_cluster.agent import service_account
from xdeepserve_cluster.agent.moments import rfc3339
from xdeepserve_cluster.agent.sandbox import Sandbox
from xdeepserve_operator.runtime.kube import Object


class TokenApi(FakeApi):
    """Hands out tokens that live for an hour, as the TokenRequest API does."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, Object]] = []

    async def request(self, method: str, path: str, **options: Any) -> Object:
        self.requests.append((path, options["json"]["spec"]))
        token = f"token-{len(self.requests)}"
        return {"status": {"token": token, "expirationTimestamp": rfc3339(3600.0)}}


POD: Object = {
    "metadata": {"name": "p", "namespace": "team", "uid": "u1"},
    "spec": {
        "serviceAccountName": "reader",
        "volumes": [
            {
                "name": "access",
                "projected": {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}]},
            }
        ],
    },
    "status": {"podIP": "127.16.0.1"},
}
CONTAINER: Object = {"name": "c", "volumeMounts": [{"name": "access", "mountPath": "/var/run/secrets"}]}


def sandbox(api: TokenApi, directory: Path, pod: Object = POD) -> Sandbox:
    host = make_host(api, directory)
    host.clock = lambda: 0.0
    return Sandbox(host, host.servers["pod-a-910c-0"], pod, lambda: None, lambda reason, message: None)


async def test_a_token_is_bound_to_its_pod(tmp_path: Path) -> None:
    api = TokenApi()
    pod = sandbox(api, tmp_path)
    await pod.prepare()
    [(path, spec)] = api.requests
    assert path == "/api/v1/namespaces/team/serviceaccounts/reader/token"
    assert (spec["boundObjectRef"]["name"], spec["boundObjectRef"]["uid"]) == ("p", "u1")
    assert (spec["audiences"], spec["expirationSeconds"]) == ([], 3607)
    assert (pod.directory / "volumes" / "access" / "token").read_text() == "token-1"


async def test_it_is_renewed_after_four_fifths_of_its_life(tmp_path: Path, monkeypatch: Any) -> None:
    sleeps: list[float] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        await real_sleep(0 if len(sleeps) < 3 else 3600)

    pod = sandbox(TokenApi(), tmp_path)
    await pod.prepare()
    monkeypatch.setattr(asyncio, "sleep", sleep)
    keeping = asyncio.create_task(pod.keep_tokens())
    file = pod.directory / "volumes" / "access" / "token"
    async with asyncio.timeout(5):
        while file.read_text() != "token-3":
            await real_sleep(0)
    keeping.cancel()
    assert sleeps[0] == 0.8 * 3600


async def test_a_pod_without_a_token_asks_for_none(tmp_path: Path) -> None:
    api = TokenApi()
    pod = sandbox(api, tmp_path, {**POD, "spec": {}})
    await pod.prepare()
    await pod.keep_tokens()
    assert api.requests == []
    assert service_account.write_kubeconfig(pod.host, {"name": "c"}, pod.pod, pod.directory) is None


async def test_the_kubeconfig_names_files_and_holds_no_secret(tmp_path: Path) -> None:
    pod = sandbox(TokenApi(), tmp_path)
    await pod.prepare()
    path = service_account.write_kubeconfig(pod.host, CONTAINER, POD, pod.directory)
    assert path is not None
    document = json.loads(path.read_text())
    volume = pod.directory / "volumes" / "access"
    assert document["users"][0]["user"] == {"tokenFile": str(volume / "token")}
    assert document["clusters"][0]["cluster"]["certificate-authority"] == str(volume / "ca.crt")
    assert document["contexts"][0]["context"]["namespace"] == "team"
