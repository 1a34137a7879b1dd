"""``xdeepserve quantise``: an INT8 checkpoint from a float one."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from tokenizers import Tokenizer

from flowserve.model import CheckpointError
from flowserve.quant.calibration import TooFewSamples
from flowserve.quant.convert import quantise


def command(
    checkpoint: Annotated[Path, typer.Argument(help="Directory of the checkpoint.", exists=True, file_okay=False)],
    out: Annotated[Path, typer.Argument(help="Directory to write; must not hold a model yet.")],
    calibration: Annotated[Path, typer.Option(help="Text that the model reads first.", exists=True, dir_okay=False)],
    tokens: Annotated[int, typer.Option(help="How much of the text is read at most.", min=64)] = 16_384,
) -> None:
    """Quantise a checkpoint to INT8 with SmoothQuant and GPTQ."""
    tokenizer = checkpoint / "tokenizer.json"
    if not tokenizer.exists():
        raise typer.BadParameter(f"{tokenizer} is missing: the text cannot be turned into tokens")
    text = calibration.read_text(encoding="utf-8")
    ids = Tokenizer.from_file(str(tokenizer)).encode(text, add_special_tokens=False).ids[:tokens]
    if not ids:
        raise typer.BadParameter(f"{calibration} is empty")
    try:
        quantise(checkpoint, out, np.array(ids, np.int32), typer.echo)
    except (CheckpointError, TooFewSamples, FileExistsError) as error:
        typer.echo(f"xdeepserve: {error}", err=True)
        raise typer.Exit(1) from error
