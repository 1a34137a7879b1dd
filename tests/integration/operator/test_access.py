"""Who may do what: clients with a key, the deployment's own processes with its token, the operator with its role."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import openai
import pytest
import pytest_asyncio
from operator_site import MODEL, Site

from xdeepserve_demo.install import NAMESPACE
from xdeepserve_operator.api.names import PORT_API, PORT_CONTROL
from xdeepserve_operator.runtime.cache import WATCHED
from xdeepserve_operator.runtime.resources import PODS, SECRETS

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def endpoint(shared: Site) -> AsyncIterator[str]:
    """The API of a deployment whose users need keys, in a namespace under the restricted pod security standard."""
    await shared.create(SECRETS, "keys", stringData={"keys": "sk-one,sk-two"})
    await shared.deploy(frontend={"replicas": 2, "apiKeysSecretRef": {"name": "keys"}})
    yield (await shared.ready())["status"]["endpoint"]


async def test_the_official_client_works_with_a_key_and_not_without(endpoint: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{endpoint}/v1", api_key="sk-two", max_retries=0) as client:
        assert [model.id async for model in client.models.list()] == [MODEL]
        answer = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hello"}], max_tokens=8
        )
        assert answer.usage is not None
        assert answer.usage.completion_tokens <= 8
        stream = await client.completions.create(model=MODEL, prompt="hello", max_tokens=8, stream=True)
        assert [chunk async for chunk in stream][-1].choices[0].finish_reason
    async with openai.AsyncOpenAI(base_url=f"{endpoint}/v1", api_key="sk-three", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.models.list()


@pytest.mark.parametrize(
    ("component", "method", "port", "path"),
    [
        ("engine", "GET", PORT_CONTROL, "/v1/status"),
        ("engine", "PUT", PORT_CONTROL, "/v1/membership"),
        ("engine", "POST", PORT_API, "/v1/generate"),
        ("shell", "GET", PORT_CONTROL, "/v1/status"),
        ("shell", "PUT", PORT_CONTROL, "/v1/membership"),
        ("shell", "POST", PORT_CONTROL, "/v1/dispatch"),
        ("frontend", "PUT", PORT_CONTROL, "/v1/routes"),
        ("frontend", "GET", PORT_CONTROL, "/v1/status"),
    ],
)
async def test_control_routes_refuse_strangers(
    shared: Site, endpoint: str, component: str, method: str, port: int, path: str
) -> None:
    pods, _ = await shared.api.list(PODS, shared.namespace, labels=f"app.kubernetes.io/component={component}")
    async with aiohttp.ClientSession() as http:
        for token in ("", "Bearer ", "Bearer sk-one"):
            headers = {"authorization": token} if token else {}
            url = f"http://{pods[0]['status']['podIP']}:{port}{path}"
            async with http.request(method, url, data=b"{}", headers=headers) as answer:
                assert answer.status == 401, f"{token}: {await answer.text()}"


async def test_the_operator_is_never_forbidden_anything(shared: Site, endpoint: str) -> None:
    log = await shared.tools.kubectl("--namespace", NAMESPACE, "logs", "deployment/xdeepserve")
    assert "forbidden" not in log.lower()


async def test_the_operators_pod_and_all_of_ours_are_restricted(shared: Site, endpoint: str) -> None:
    assert len(await shared.names(PODS)) == 7, "3 engines, 2 TE-shells, 2 frontends"
    enforced = "pod-security.kubernetes.io/enforce=restricted"
    told = await shared.tools.kubectl("label", "--dry-run=server", "--overwrite", "namespace", NAMESPACE, enforced)
    assert "violate" not in told


async def test_names_are_listed_as_the_audit_for_missed_deletions_needs_them(shared: Site, endpoint: str) -> None:
    for resource, labels in WATCHED.items():
        whole, _ = await shared.api.list(resource, labels=labels)
        names = await shared.api.list_metadata(resource, labels=labels)
        assert [item["metadata"]["uid"] for item in names] == [item["metadata"]["uid"] for item in whole]
