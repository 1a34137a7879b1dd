"""What a person is told who names something that is not there, or a cluster that does not answer."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from xdeepserve_cli.main import app
from xdeepserve_operator.runtime.resources import EXPERTPLACEMENTS, MODELDEPLOYMENTS, NAMESPACES, TASKEXECUTORS

from ..runtime.api_server import ApiServer, serve, write_kubeconfig
from . import world

COMMANDS = {  # every command that looks at a cluster, and the kinds of what it is given
    "status": "ModelDeployment or TaskExecutor",
    "top": "ModelDeployment or TaskExecutor",
    "explain-placement": "TaskExecutor",
    **{f"rollout {word}": "ModelDeployment" for word in ("history", "diff", "undo", "pause", "resume", "status")},
    **{f"eplb {word}": "ExpertPlacement" for word in ("show", "history", "apply", "pause", "resume")},
}
WAYS = ("status", "top", "explain-placement", "rollout undo", "rollout status", "eplb show", "eplb pause")  # to ask


@dataclass
class Terminal:
    """A person in front of a cluster."""

    server: ApiServer
    kubeconfig: Path

    async def type(self, command: str, *words: str, kubeconfig: Path | None = None) -> Result:
        line = [*command.split(), *words, "--kubeconfig", str(kubeconfig or self.kubeconfig)]
        async with asyncio.timeout(10):
            return await asyncio.to_thread(CliRunner().invoke, app, line)


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    server = ApiServer()
    runner = await serve(server)
    server.put(NAMESPACES, {"metadata": {"name": "default"}})
    yield Terminal(server, write_kubeconfig(tmp_path / "kubeconfig", server.url))
    await runner.cleanup()


def error(result: Result) -> str:
    """The one line on standard error."""
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


@pytest.mark.parametrize(("command", "kinds"), COMMANDS.items())
async def test_a_name_that_does_not_exist_is_told_with_those_that_do(
    terminal: Terminal, command: str, kinds: str
) -> None:
    terminal.server.put(MODELDEPLOYMENTS, world.deployment("chat"))
    terminal.server.put(TASKEXECUTORS, world.executor("chat-decode", "chat"))
    terminal.server.put(EXPERTPLACEMENTS, {"metadata": {"name": "even", "namespace": "default"}, "spec": {}})
    said = error(await terminal.type(command, "nobody"))
    assert said.startswith(f"there is no {kinds} 'nobody' in namespace default; there is ")
    known = {"ModelDeployment": "chat", "TaskExecutor": "chat-decode", "ExpertPlacement": "even"}
    assert said.endswith(", ".join(f"{kind} {known[kind]}" for kind in kinds.split(" or ")))


@pytest.mark.parametrize("command", WAYS)
async def test_a_namespace_that_does_not_exist_is_told(terminal: Terminal, command: str) -> None:
    said = error(await terminal.type(command, "nobody", "-n", "elsewhere"))
    assert said == "there is no namespace 'elsewhere'; choose one with --namespace"


async def test_an_empty_namespace_says_where_else_to_look(terminal: Terminal) -> None:
    said = error(await terminal.type("rollout history", "chat"))
    assert said.endswith("nor any other; 'kubectl get modeldeployments -A' lists those of all namespaces")
    empty = await terminal.type("status")
    assert "there is no ModelDeployment in namespace default; choose another" in empty.stderr


@pytest.mark.parametrize("command", WAYS)
async def test_a_cluster_without_our_kinds_is_told_how_to_get_them(terminal: Terminal, command: str) -> None:
    terminal.server.refuse(404, lambda request: "serving.xdeepserve.io" in request.path, times=9)
    said = error(await terminal.type(command, "chat"))
    assert re.match(r"this cluster has no kind \w+ \(serving.xdeepserve.io/v1alpha1\): ", said)
    assert "The chart xdeepserve-crds brings our kinds" in said


@pytest.mark.parametrize("command", WAYS)
async def test_a_server_that_does_not_answer_is_named(terminal: Terminal, tmp_path: Path, command: str) -> None:
    dead = write_kubeconfig(tmp_path / "dead", "http://127.0.0.1:1")
    said = error(await terminal.type(command, "chat", kubeconfig=dead))
    assert said.startswith("the API server http://127.0.0.1:1 does not answer: Cannot connect")
    assert "--context" in said


@pytest.mark.parametrize(
    ("status", "expected"),
    [(401, "does not know you"), (403, "you may not do that"), (500, "is in trouble (500)")],
)
@pytest.mark.parametrize("kind", ["taskexecutors", "pods"])
async def test_a_refusal_is_told_and_not_repeated(terminal: Terminal, kind: str, status: int, expected: str) -> None:
    terminal.server.put(TASKEXECUTORS, world.executor("chat-decode"))
    terminal.server.refuse(status, lambda request: kind in request.path, times=99)
    said = error(await terminal.type("explain-placement", "chat-decode"))
    assert expected in said
    assert "asked for by the test" in said


@pytest.mark.parametrize("text", ["{}", "not: [yaml", "current-context: nowhere\n"])
async def test_a_kubeconfig_that_cannot_be_used_is_named(terminal: Terminal, tmp_path: Path, text: str) -> None:
    broken = tmp_path / "broken"
    broken.write_text(text)
    result = await terminal.type("status", kubeconfig=broken)
    assert result.exit_code == 1
    assert f"error: no cluster can be told from {broken}: " in result.stderr


async def test_a_context_that_is_not_in_the_kubeconfig_is_told(terminal: Terminal) -> None:
    assert "nowhere" in error(await terminal.type("status", "--context", "nowhere"))


async def test_a_file_that_is_not_there_is_told(terminal: Terminal, tmp_path: Path) -> None:
    result = await terminal.type("status", kubeconfig=tmp_path / "gone")
    assert result.exit_code == 2
    assert "gone" in result.stderr
    assert "does not exist" in result.stderr
