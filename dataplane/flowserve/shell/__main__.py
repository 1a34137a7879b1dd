"""``python -m flowserve.shell``: one instance's TE-shell."""

from __future__ import annotations

import asyncio

import aiohttp

from flowserve import process
from flowserve.control import listening
from flowserve.shell.http import application
from flowserve.shell.shell import Shell
from flowserve.wire import ShellConfig

CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 2.0


async def serve(config: ShellConfig, token: str) -> None:
    """Until cancelled."""
    session = aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {token}"},
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
    )
    async with session:
        shell = Shell(config, session)
        try:
            async with listening(application(token, shell), config.host, config.control_port):
                await asyncio.Event().wait()
        finally:
            await shell.close()


def main() -> None:
    """Raises Unusable."""
    config = process.read_config(ShellConfig)
    process.configure_logs(process="shell", instance=config.instance)
    asyncio.run(process.until_stopped(serve(config, process.control_token())))


if __name__ == "__main__":
    process.run(main)
