"""tokenizer_config.json of a checkpoint, as far as it is used here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flowserve.text.errors import TextError

FILE = "tokenizer_config.json"


def read_settings(directory: Path) -> dict[str, Any]:
    """The object in the file. Raises TextError if it is missing or no JSON object."""
    path = directory / FILE
    try:
        settings = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise TextError(f"{path}: cannot be read: {error}") from error
    if not isinstance(settings, dict):
        raise TextError(f"{path}: must be a JSON object")
    return settings
