"""``rollout``: the commands as a person types them, against an API server in this process."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from xdeepserve_cli.main import app
from xdeepserve_operator.api.names import ANNOTATION_CHANGE_CAUSE
from xdeepserve_operator.api.v1alpha1.deployment import ModelDeploymentSpec
from xdeepserve_operator.resources.revision import deployment_data, deployment_revision
from xdeepserve_operator.runtime.resources import CONTROLLERREVISIONS, MODELDEPLOYMENTS

from ..runtime.api_server import ApiServer, serve, write_kubeconfig

Object = dict[str, Any]
URIS = ("file:///models/v1", "file:///models/v2", "file:///models/v3")
CAUSES = ("", "new weights", "")


def spec(uri: str) -> Object:
    roles = [{"name": "p", "type": "Prefill", "chips": ["910B"]}, {"name": "d", "type": "Decode", "chips": ["910C"]}]
    given = {"superPodRef": {"name": "pod-a"}, "model": {"name": "m", "uri": uri}, "roles": roles}
    return ModelDeploymentSpec.model_validate(given).to_wire()


@dataclass
class Place:
    """A ModelDeployment with three revisions, and a person with a terminal."""

    server: ApiServer
    kubeconfig: Path

    @property
    def chat(self) -> Object:
        return self.server.objects["modeldeployments", "default", "chat"]

    def put(self, **parts: Any) -> None:
        self.server.put(MODELDEPLOYMENTS, {**self.chat, **parts})

    def say(self, reason: str, *, generation: int | None = None) -> None:
        """The operator writes Progressing."""
        seen = self.chat["metadata"]["generation"] if generation is None else generation
        condition = {"type": "Progressing", "status": str(reason != "ProgressDeadlineExceeded"), "reason": reason}
        condition |= {"message": "1 instances serve", "observedGeneration": seen}
        self.put(status={"revision": 3, "conditions": [condition]})

    async def watched(self) -> None:
        """Waits until somebody has listed, and watches."""
        path = ("GET", MODELDEPLOYMENTS.path("default"))
        await self.server.until(lambda: self.server.requests.count(path) >= 2)

    async def type(self, *words: str) -> Result:
        line = ["rollout", *words, "--kubeconfig", str(self.kubeconfig)]
        return await asyncio.to_thread(CliRunner().invoke, app, line)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    server = ApiServer()
    runner = await serve(server)
    for number, (uri, cause) in enumerate(zip(URIS, CAUSES, strict=True), 1):
        metadata = {"name": "chat", "namespace": "default", "annotations": {ANNOTATION_CHANGE_CAUSE: cause}}
        owner = server.put(MODELDEPLOYMENTS, {"metadata": metadata, "spec": spec(uri)})
        data = deployment_data(ModelDeploymentSpec.model_validate(owner["spec"]))
        server.put(CONTROLLERREVISIONS, deployment_revision(owner, data, f"r{number}", number))
    foreign = deployment_revision({**owner, "metadata": {**owner["metadata"], "uid": "other"}}, {}, "x", 9)
    server.put(CONTROLLERREVISIONS, foreign)
    yield Place(server, write_kubeconfig(tmp_path / "kubeconfig", server.url))
    server.drop_watches()
    await runner.cleanup()


async def test_the_history_lists_numbers_changes_and_causes(place: Place) -> None:
    done = await place.type("history", "chat")
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["REVISION", "CHANGED", "CHANGE-CAUSE"],
        ["1", "<none>", "<none>"],
        ["2", "model.uri", "new", "weights"],
        ["3", "model.uri", "<none>"],
    ]


async def test_one_revision_shows_what_it_holds(place: Place) -> None:
    done = await place.type("history", "chat", "--revision", "2", "-o", "json")
    told = json.loads(done.stdout)
    assert (told["revision"], told["changeCause"]) == (2, "new weights")
    assert told["data"]["model"]["uri"] == URIS[1]


@pytest.mark.parametrize(
    ("words", "numbers", "values"),
    [
        ((), (2, 3), (URIS[1], URIS[2])),
        (("--to", "2"), (1, 2), (URIS[0], URIS[1])),
        (("--from", "3", "--to", "1"), (3, 1), (URIS[2], URIS[0])),
    ],
)
async def test_a_difference_is_told_by_field(
    place: Place, words: tuple[str, ...], numbers: tuple[int, int], values: tuple[str, str]
) -> None:
    told = json.loads((await place.type("diff", "chat", *words, "-o", "json")).stdout)
    assert (told["from"], told["to"]) == numbers
    assert told["differences"] == [{"field": "model.uri", "old": values[0], "new": values[1]}]


async def test_undo_goes_one_step_back_with_its_cause_and_leaves_the_rest(place: Place) -> None:
    place.put(spec={**place.chat["spec"], "frontend": {"replicas": 7}})
    done = await place.type("undo", "chat")
    assert done.stdout == "modeldeployment.serving.xdeepserve.io/chat rolled back to revision 2\n"
    assert place.chat["spec"]["model"]["uri"] == URIS[1]
    assert place.chat["metadata"]["annotations"] == {ANNOTATION_CHANGE_CAUSE: "new weights"}
    assert place.chat["spec"]["frontend"] == {"replicas": 7}


async def test_undo_goes_where_it_is_told_and_says_when_it_is_there(place: Place) -> None:
    assert (
        "would go back to revision 1: model.uri"
        in (await place.type("undo", "chat", "--to-revision", "1", "--dry-run")).stdout
    )
    assert place.chat["spec"]["model"]["uri"] == URIS[2]
    told = json.loads((await place.type("undo", "chat", "--to-revision", "1", "-o", "json")).stdout)
    assert told["spec"]["model"]["uri"] == URIS[0]
    assert "skipped rollback" in (await place.type("undo", "chat", "--to-revision", "1")).stdout


async def test_undo_never_overwrites_what_changed_meanwhile(place: Place) -> None:
    typed = asyncio.create_task(place.type("undo", "chat"))
    place.server.hang(lambda request: request.method == "PATCH")
    await place.server.until(lambda: ("PATCH", MODELDEPLOYMENTS.path("default", "chat")) in place.server.requests)
    place.put(spec=spec("file:///models/v4"))
    place.server.release()
    done = await typed
    assert done.exit_code == 1
    assert "has been modified" in done.stderr
    assert place.chat["spec"]["model"]["uri"] == "file:///models/v4"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("undo", "chat", "--to-revision", "7"), "revision 7 is not in the history: 1, 2, 3"),
        (("diff", "chat", "--to", "1"), "there is no earlier revision"),
        (("resume", "chat"), "is not paused"),
    ],
)
async def test_what_cannot_be_is_said_in_one_line(place: Place, words: tuple[str, ...], message: str) -> None:
    done = await place.type(*words)
    assert done.exit_code == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


async def test_a_paused_deployment_cannot_go_back_until_it_is_resumed(place: Place) -> None:
    assert (await place.type("pause", "chat")).stdout.endswith("/chat paused\n")
    assert place.chat["spec"]["rollout"]["paused"] is True
    assert "already paused" in (await place.type("pause", "chat")).stderr
    assert "rollout resume chat" in (await place.type("undo", "chat")).stderr
    assert (await place.type("resume", "chat")).stdout.endswith("/chat resumed\n")
    assert place.chat["spec"]["rollout"]["paused"] is False


async def test_status_follows_to_the_end(place: Place) -> None:
    place.say("Complete", generation=1)  # of an older spec
    typed = asyncio.create_task(place.type("status", "chat"))
    await place.watched()
    place.say("Progressing")
    place.say("Complete")
    done = await typed
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        'Waiting for rollout of modeldeployment "chat": its spec is not observed yet',
        'Waiting for rollout of modeldeployment "chat": 1 instances serve',
        'modeldeployment "chat" successfully rolled out',
    ]


async def test_status_fails_at_the_progress_deadline(place: Place) -> None:
    place.say("ProgressDeadlineExceeded")
    done = await place.type("status", "chat")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "exceeded its progress deadline: 1 instances serve" in done.stderr


async def test_status_waits_no_longer_than_told(place: Place) -> None:
    place.say("Paused")
    done = await place.type("status", "chat", "--timeout", "0.05")
    assert done.exit_code == 1
    assert "timed out after 0.05 s" in done.stderr
    once = await place.type("status", "chat", "--no-watch", "-o", "json")
    assert json.loads(once.stdout) | {"message": ""} == {
        "name": "chat",
        "revision": 3,
        "reason": "Paused",
        "message": "",
        "complete": False,
        "roles": [],
    }


async def test_status_ends_when_the_deployment_does(place: Place) -> None:
    place.say("Progressing")
    typed: asyncio.Task[Result] = asyncio.create_task(place.type("status", "chat"))
    await place.watched()
    place.server.remove(MODELDEPLOYMENTS, "default", "chat")
    done = await typed
    assert "was deleted" in done.stderr
