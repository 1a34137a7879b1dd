"""``python -m flowserve.output DESCRIPTOR``: started by an engine, over whose socket pair they speak."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

from flowserve import process
from flowserve.control import listening
from flowserve.output.api import Api
from flowserve.output.link import Hopeless, Link, Listening
from flowserve.source import model_directory
from flowserve.text import TextError, Tokenizer
from flowserve.wire import EngineConfig


async def serve(config: EngineConfig, descriptor: int) -> None:
    """Serves the API port until the engine is gone, whose signals are not meant for this process."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    link = await Link.over(socket.socket(fileno=descriptor))
    try:
        api = Api(config, process.control_token(), link, load_tokenizer(config))
        async with listening(api.application(), config.host, config.api_port):
            link.send(Listening())
            await api.run()
    except process.Unusable as error:
        link.send(Hopeless(reason=error.reason, message=str(error)))
    finally:
        await link.close()


def load_tokenizer(config: EngineConfig) -> Tokenizer | None:
    """The model's tokenizer; none on a prefill engine, which makes no text. Raises Unusable."""
    if config.role == "Prefill":
        return None
    directory = model_directory(config.model_uri)
    if not (directory / "tokenizer.json").is_file():
        raise process.Unusable("CheckpointMissing", f"{directory}: there is no tokenizer.json")
    try:
        return Tokenizer(directory)
    except TextError as error:
        raise process.Unusable("CheckpointDamaged", str(error)) from error


def main() -> None:
    """Ends with the engine, quietly."""
    config = process.read_config(EngineConfig, [])
    process.configure_logs(process="output", name=config.name, instance=config.instance)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    asyncio.run(serve(config, int(sys.argv[1])))


if __name__ == "__main__":
    process.run(main)
