"""The ETag of a shell's status: equal while nothing happens, different as soon as anything does."""

import pytest
from aiohttp.test_utils import TestClient, TestServer

from flowserve.shell.digest import digest
from flowserve.wire import EngineStatus, RankReport, ShellStatus

SAID = EngineStatus(name="g", incarnation="i", fabric_uri="shm:///x", state="Serving", epoch=3)


def status(silent: float = 0.1, **said: object) -> ShellStatus:
    report = RankReport(
        rank=0, host="127.0.0.1", silent_seconds=silent, ever_heard=True, status=SAID.model_copy(update=said)
    )
    return ShellStatus(instance="t-0", incarnation="s", epoch=3, ranks=(report,), ready=True)


def test_figures_that_only_move_along_change_nothing():
    assert digest(status()) == digest(status(silent=1.2, iterations=900, kv_usage=0.001))


@pytest.mark.parametrize(
    "other",
    [
        status(silent=2.0),
        status(state="Broken"),
        status(epoch=4),
        status(incarnation="another"),
        status(running=1),
        status(waiting=1),
        status(kv_usage=0.5),
        status(error="lost rank 1"),
        status().model_copy(update={"ready": False}),
        status().model_copy(update={"incarnation": "another"}),
        status().model_copy(update={"ranks": ()}),
    ],
)
def test_whatever_is_acted_on_changes_it(other: ShellStatus):
    assert digest(other) != digest(status())


def test_silence_is_told_every_second():
    assert len({digest(status(silent=seconds)) for seconds in (2.1, 2.9, 3.0, 4.5)}) == 3


async def test_an_unchanged_status_has_no_body():
    from flowserve.shell.http import application

    class Shell:
        ready = True

        def status(self) -> ShellStatus:
            return status()

    async with TestClient(TestServer(application("secret", Shell()))) as client:  # type: ignore[arg-type]
        token = {"Authorization": "Bearer secret"}
        first = await client.get("/v1/status", headers=token)
        assert ShellStatus.model_validate_json(await first.read()) == status()
        again = await client.get("/v1/status", headers=token | {"If-None-Match": first.headers["ETag"]})
        assert (again.status, await again.read()) == (304, b"")
        other = await client.get("/v1/status", headers=token | {"If-None-Match": '"else"'})
        assert other.status == 200
