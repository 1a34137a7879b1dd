"""Runs the emulated servers of one SuperPod until TERM or INT: `python -m xdeepserve_cluster.agent --help`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from urllib.parse import urlsplit

from xdeepserve_cluster.agent.addresses import Addresses
from xdeepserve_cluster.agent.agent import Agent, end_leftovers
from xdeepserve_cluster.agent.host import Host, ServerState, Settings
from xdeepserve_cluster.agent.logs_server import LogsServer, server_context
from xdeepserve_cluster.agent.servers import parse_servers
from xdeepserve_cluster.errors import ClusterError
from xdeepserve_cluster.files import write_atomically
from xdeepserve_cluster.locks import exclusive
from xdeepserve_operator.runtime.kube import KubeApi


def main() -> None:
    """Reads the flags, takes the state directory for itself, and runs."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    options = _parser().parse_args()
    try:
        with exclusive(options.state_dir / "lock", _refuse(options.state_dir)):
            end_leftovers(options.state_dir)
            asyncio.run(run(options))
    except (ClusterError, OSError, ValueError) as error:
        sys.exit(f"xdeepserve agent: {error}")


async def run(options: argparse.Namespace) -> None:
    """Brings the servers up, says so by the ready file, and waits for a signal."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    servers = parse_servers(options.servers, options.superpod)
    options.shm_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    async with KubeApi.connect(options.kubeconfig) as api:
        host = Host(
            settings=_settings(options, api.configuration.host),
            api=api,
            servers={server.name: ServerState(server) for server in servers},
            addresses=Addresses(str(options.state_dir)),
        )
        agent = Agent(host, options.superpod, options.port, options.lease_seconds)
        logs = LogsServer(agent.find)
        await logs.start(options.port, server_context(options.serving_cert, options.serving_key, options.client_ca))
        try:
            if await _before(stop, agent.start()):
                write_atomically(options.ready_file, "ready\n")
                await stop.wait()
        finally:
            options.ready_file.unlink(missing_ok=True)
            await agent.stop()
            await logs.stop()


async def _before(stop: asyncio.Event, work: Coroutine[None, None, None]) -> bool:
    """Whether `work` ended before `stop` was set, which cancels it. Raises what `work` raises."""
    tasks = [asyncio.create_task(work), asyncio.create_task(stop.wait())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    try:
        await tasks[0]
    except asyncio.CancelledError:
        return False
    return True


def _settings(options: argparse.Namespace, api_url: str) -> Settings:
    url = urlsplit(api_url)
    return Settings(
        state_dir=options.state_dir,
        shm_dir=options.shm_dir,
        models_dir=options.models_dir,
        api_url=api_url,
        api_host=url.hostname or "",
        api_port=str(url.port or 443),
    )


def _refuse(state_dir: Path) -> Callable[[str], None]:
    def refuse(holder: str) -> None:
        raise ClusterError(f"{state_dir} is in use by the agent with process id {holder}: stop that one first")

    return refuse


def _path(text: str) -> Path:
    return Path(text).absolute()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m xdeepserve_cluster.agent", description=__doc__)
    parser.add_argument("--kubeconfig", required=True, type=_path, metavar="PATH", help="how to reach the API server")
    parser.add_argument("--state-dir", required=True, type=_path, metavar="PATH", help="directories and logs of pods")
    parser.add_argument(
        "--shm-dir", required=True, type=_path, metavar="PATH", help="shared memory of the pods' processes"
    )
    parser.add_argument("--models-dir", type=_path, metavar="PATH", help="what file:///models/ stands for in pods")
    parser.add_argument("--servers", required=True, metavar="SPEC", help="chips and numbers, as 910B=2,910C=4")
    parser.add_argument("--superpod", required=True, metavar="ID", help="the SuperPod's id; names begin with it")
    parser.add_argument(
        "--serving-cert", required=True, type=_path, metavar="PATH", help="certificate of the logs' endpoint"
    )
    parser.add_argument("--serving-key", required=True, type=_path, metavar="PATH", help="its key")
    parser.add_argument("--client-ca", required=True, type=_path, metavar="PATH", help="authority of who may read logs")
    parser.add_argument("--port", required=True, type=int, help="port of the logs' endpoint, on loopback")
    parser.add_argument(
        "--ready-file", required=True, type=_path, metavar="PATH", help="written when all nodes are registered"
    )
    parser.add_argument("--lease-seconds", type=int, default=40, help="life of a node's lease, renewed in a quarter")
    return parser


if __name__ == "__main__":
    main()
