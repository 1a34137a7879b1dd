"""Where a model's files lie: from the ``file:`` URI that users write to a directory of this machine.

``file:///models/NAME`` names the model ``NAME`` in whatever directory this machine keeps models in, so that a manifest
is the same everywhere; other absolute paths are taken as they are.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from flowserve.process import Unusable

MODELS_VARIABLE = "XDEEPSERVE_MODELS_DIR"
SHARED = PurePosixPath("/models")


def model_directory(uri: str) -> Path:
    """The directory that ``uri`` names. Raises Unusable: BadConfig for a URI, CheckpointMissing for no directory."""
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise Unusable("BadConfig", f"model URI {uri!r}: {error}") from error
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise Unusable("BadConfig", f"model URI {uri!r}: only file:///DIRECTORY is supported")
    path = PurePosixPath(unquote(parts.path))
    if not path.is_absolute() or ".." in path.parts or "\0" in str(path) or parts.query or parts.fragment:
        raise Unusable("BadConfig", f"model URI {uri!r}: must be an absolute path without '..', query or fragment")
    if path.is_relative_to(SHARED):
        directory = Path(os.environ.get(MODELS_VARIABLE) or SHARED) / path.relative_to(SHARED)
    else:
        directory = Path(path)
    if not directory.is_dir():
        raise Unusable("CheckpointMissing", f"model URI {uri!r}: {directory} is not a directory on this server")
    return directory
