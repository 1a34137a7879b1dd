"""One look of a probe: an HTTP GET, a TCP connection or a command. Plain streams, a new connection every time."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from pathlib import Path

from xdeepserve_cluster.agent.logs import tail
from xdeepserve_cluster.agent.podspec import ConfigError, Launch
from xdeepserve_cluster.agent.probes import Look
from xdeepserve_cluster.agent.process import ContainerProcess
from xdeepserve_operator.runtime.kube import Object

MAX_STATUS_LINE = 256
MAX_MESSAGE = 200


def look_of(probe: Object, container: Object, address: str, launch: Launch, scratch: Path) -> Look:
    """The look that a probe describes, within its timeout; `scratch` takes a command's output.

    Raises ConfigError for a probe of another kind, and for a port that no container port has as its name.
    """
    seconds = float(probe.get("timeoutSeconds") or 1)
    if http := probe.get("httpGet"):
        port = _port(http["port"], container)
        return partial(_within, seconds, partial(_http, http, http.get("host") or address, port))
    if tcp := probe.get("tcpSocket"):
        return partial(_within, seconds, partial(_tcp, tcp.get("host") or address, _port(tcp["port"], container)))
    if command := probe.get("exec"):
        run = Launch(tuple(command["command"]), launch.environ, launch.directory)
        return partial(_command, run, scratch, seconds)
    raise ConfigError(f"container {container['name']}: a probe needs httpGet, tcpSocket or exec on emulated servers")


async def _within(seconds: float, look: Look) -> str | None:
    try:
        async with asyncio.timeout(seconds):
            return await look()
    except TimeoutError:
        return f"no answer within {seconds:g} s"
    except (OSError, ValueError, asyncio.IncompleteReadError) as error:
        return f"{type(error).__name__}: {error}"


async def _http(http: Object, host: str, port: int) -> str | None:
    context = None
    if http.get("scheme") == "HTTPS":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # as the kubelet
    reader, writer = await asyncio.open_connection(host, port, ssl=context, limit=MAX_STATUS_LINE)
    try:
        headers = {"Host": f"{host}:{port}", "User-Agent": "kube-probe/1.34", "Accept": "*/*", "Connection": "close"}
        headers |= {header["name"]: header["value"] for header in http.get("httpHeaders", [])}
        path = http.get("path") or "/"
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        writer.write("\r\n".join(lines).encode())
        status = (await reader.readline()).decode("latin-1").strip()
    finally:
        writer.close()
    code = int((status.split() or ["", ""])[1])
    return None if 200 <= code < 400 else f"GET {path}: {status}"


async def _tcp(host: str, port: int) -> str | None:
    _, writer = await asyncio.open_connection(host, port)
    writer.close()
    return None


async def _command(launch: Launch, scratch: Path, seconds: float) -> str | None:
    try:
        process = ContainerProcess(launch, scratch, append=False)
    except OSError as error:
        return f"{launch.argv[0]}: {error.strerror}"
    try:
        async with asyncio.timeout(seconds):
            code = await asyncio.shield(process.exited)
    except TimeoutError:
        return f"{launch.argv[0]}: no end within {seconds:g} s"
    finally:
        await process.stop(0)
    if code == 0:
        return None
    return f"{launch.argv[0]}: exit code {code}: {tail(scratch, MAX_MESSAGE).strip()}"


def _port(port: int | str, container: Object) -> int:
    if isinstance(port, int) or port.isdecimal():
        return int(port)
    named = {entry.get("name"): entry["containerPort"] for entry in container.get("ports", [])}
    if port not in named:
        raise ConfigError(f"container {container['name']}: a probe names port {port!r}, which is not among its ports")
    return int(named[port])
