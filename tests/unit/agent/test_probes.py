"""Thresholds of probes, and the quick looks at the start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdeepserve_cluster.agent.looks import look_of
from xdeepserve_cluster.agent.podspec import ConfigError, Launch
from xdeepserve_cluster.agent.probes import Counter, Timing, timing, watch
from xdeepserve_operator.runtime.kube import Object


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes only in sleeps, and then at once."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def virtually(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(work())


def test_defaults_are_those_of_the_api() -> None:
    assert timing({}) == Timing(initial_delay=0, period=10, successes=1, failures=3)


@given(st.integers(1, 4), st.integers(1, 4), st.lists(st.booleans(), max_size=40), st.booleans())
def test_a_verdict_turns_by_results_in_a_row(successes: int, failures: int, results: list[bool], good: bool) -> None:
    counter = Counter(Timing(0, 1, successes, failures), good)
    seen: list[bool] = []
    for ok in results:
        seen.append(ok)
        needed = successes if ok else failures
        in_a_row = len(seen) >= needed and all(result is ok for result in seen[-needed:])
        assert counter.observe(ok) is (ok if in_a_row else None)
        good = ok if in_a_row else good
        assert counter.good is good


def looks_at(
    results: Callable[[float], bool], seconds: float, probe: Timing, **options: bool
) -> list[tuple[float, bool]]:
    """(time, verdict) of all reports of a probe whose look gives `results(time)`."""
    reports: list[tuple[float, bool]] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()

        async def look() -> str | None:
            return None if results(loop.time()) else "bad"

        def report(good: bool, problem: str) -> None:
            assert problem == ("" if good else "bad")
            reports.append((round(loop.time(), 3), good))

        try:
            async with asyncio.timeout(seconds):
                await watch(Counter(probe, good=options.pop("good", False)), look, report, **options)
        except TimeoutError:
            pass

    virtually(work)
    return reports


def test_readiness_is_seen_long_before_the_period_ends() -> None:
    reports = looks_at(lambda now: now >= 1.5, 12, Timing(0, 10, 1, 3))
    assert reports == [(1.6, True), (10.0, True)]


def test_quick_looks_count_no_failures() -> None:
    """Three failures in a row at 10 s each are 20 s, however often it was looked at in between."""
    assert looks_at(lambda now: False, 25, Timing(0, 10, 1, 3)) == [(20.0, False)]


def test_quick_looks_end_after_thirty_seconds() -> None:
    assert looks_at(lambda now: now > 30.5, 45, Timing(0, 10, 1, 99)) == [(40.0, True)]


def test_liveness_has_no_quick_looks_and_turns_at_its_threshold() -> None:
    reports = looks_at(lambda now: now < 5, 45, Timing(0, 10, 1, 3), good=True, quick=False)
    assert reports == [(0.0, True), (30.0, False), (40.0, False)]


def test_a_startup_probe_ends_when_it_is_good() -> None:
    assert looks_at(lambda now: now >= 3, 100, Timing(2, 5, 1, 3), until_good=True) == [(3.0, True)]


LAUNCH = Launch((), {"PATH": "/usr/bin:/bin", "GREETING": "hello"}, Path("/"))


async def look(probe: Object, scratch: Path, address: str = "127.0.0.1") -> str | None:
    container: Object = {"name": "c", "ports": [{"name": "web", "containerPort": 1}]}
    return await look_of(probe, container, address, LAUNCH, scratch)()


async def answer(status: str, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(f"HTTP/1.1 {status}\r\n\r\n".encode())
    writer.close()


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        ("200 OK", None),
        ("302 Found", None),
        ("503 Busy", "GET /ready: HTTP/1.1 503 Busy"),
        ("x" * 10_000, "ValueError"),
        ("nonsense", "ValueError"),
    ],
)
async def test_http_looks(status: str, problem: str | None, tmp_path: Path) -> None:
    async with await asyncio.start_server(partial(answer, status), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        found = await look({"httpGet": {"path": "/ready", "port": port}}, tmp_path)
        assert found == problem or (found and problem and problem in found)
        assert await look({"tcpSocket": {"port": str(port)}}, tmp_path) is None


async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def test_nobody_there_and_nobody_answering(tmp_path: Path) -> None:
    async with await asyncio.start_server(keep_silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        probe = {"httpGet": {"port": port}, "timeoutSeconds": 0.05}
        assert await look(probe, tmp_path) == "no answer within 0.05 s"
        server.close()
    assert "ConnectionRefusedError" in str(await look({"tcpSocket": {"port": port}}, tmp_path))


async def test_commands(tmp_path: Path) -> None:
    scratch = tmp_path / "out"

    async def run(script: str, **options: float) -> str | None:
        return await look({"exec": {"command": ["sh", "-c", script]}, **options}, scratch)

    assert await run('test "$GREETING" = hello') is None
    assert await run("echo not yet; exit 3") == "sh: exit code 3: not yet"
    assert await run("sleep 60", timeoutSeconds=0.05) == "sh: no end within 0.05 s"
    assert "No such file" in str(await look({"exec": {"command": ["no-such-command"]}}, scratch))


def test_impossible_probes_are_refused_before_anything_starts(tmp_path: Path) -> None:
    for probe, problem in (
        ({"grpc": {"port": 1}}, "needs httpGet, tcpSocket or exec"),
        ({"tcpSocket": {"port": "nope"}}, "names port 'nope'"),
    ):
        with pytest.raises(ConfigError, match=problem):
            look_of(probe, {"name": "c"}, "127.0.0.1", LAUNCH, tmp_path)
