"""Control tokens: made once, kept while their owner lives, never taken over from a deleted one."""

from base64 import b64encode
from contextlib import nullcontext

import pytest

from xdeepserve_operator.runtime.kube import Conflict
from xdeepserve_operator.runtime.tokens import FRESH_SECONDS, Tokens

from .fake_api import FakeApi

KEY = ("secrets", "n", "chat-control")


class SecretsApi(FakeApi):
    """Encodes ``stringData`` as the API server does."""

    async def create(self, resource, body):
        data = {key: b64encode(text.encode()).decode() for key, text in body.get("stringData", {}).items()}
        return await super().create(resource, {**body, "data": data})


@pytest.fixture
def world():
    api, clock = SecretsApi(), {"now": 0.0}
    return api, Tokens(api, nullcontext, monotonic=lambda: clock["now"]), clock


def deployment(uid: str):
    return {"apiVersion": "serving.xdeepserve.io/v1alpha1", "kind": "ModelDeployment"} | {
        "metadata": {"name": "chat", "namespace": "n", "uid": uid}
    }


def executor(uid: str, owner: str):
    reference = {"kind": "ModelDeployment", "name": "chat", "uid": owner, "controller": True}
    return {"apiVersion": "serving.xdeepserve.io/v1alpha1", "kind": "TaskExecutor"} | {
        "metadata": {
            "name": "chat-decode",
            "uid": uid,
            "ownerReferences": [{"apiVersion": "serving.xdeepserve.io/v1alpha1", **reference}],
        }
    }


async def test_one_token_for_a_deployment_and_its_executors(world):
    api, tokens, _ = world
    token = await tokens.get("n", "chat-control", deployment("a"))
    assert len(token) >= 32
    assert await tokens.get("n", "chat-control", executor("e", owner="a")) == token
    assert api.calls == ["get", "create"]


async def test_a_new_owner_of_the_same_name_waits_for_the_old_secret_to_go(world):
    api, tokens, _ = world
    old = await tokens.get("n", "chat-control", deployment("a"))
    for owner in (deployment("b"), executor("e", owner="b")):
        with pytest.raises(Conflict, match="is being collected"):
            await tokens.get("n", "chat-control", owner)
    del api.objects[KEY]
    new = await tokens.get("n", "chat-control", deployment("b"))
    assert new != old
    assert api.objects[KEY]["metadata"]["ownerReferences"][0]["uid"] == "b"


async def test_a_secret_that_vanished_under_its_owner_comes_back_with_the_token_that_pods_hold(world):
    api, tokens, clock = world
    token = await tokens.get("n", "chat-control", deployment("a"))
    del api.objects[KEY]
    clock["now"] = FRESH_SECONDS
    assert await tokens.get("n", "chat-control", deployment("a")) == token
    assert KEY in api.objects


async def test_a_token_of_the_users_own_is_taken(world):
    api, tokens, _ = world
    api._store(KEY, {"metadata": {}, "data": {"token": b64encode(b"mine").decode()}}, {})
    assert await tokens.get("n", "chat-control", deployment("a")) == "mine"


async def test_a_secret_without_a_token_is_complained_about(world):
    api, tokens, _ = world
    api._store(KEY, {"metadata": {}, "data": {"other": "eA=="}}, {})
    with pytest.raises(ValueError, match="key 'token' is missing or empty"):
        await tokens.get("n", "chat-control", deployment("a"))
