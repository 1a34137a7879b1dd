"""Why a model cannot be served. Both errors are found before any weight is read."""

from __future__ import annotations


class CheckpointError(Exception):
    """A checkpoint is missing, damaged or inconsistent; the message names the file, and the tensor if there is one."""


class UnsupportedModel(CheckpointError):
    """A sound checkpoint of a model that this runtime does not compute; the message names the field of config.json."""
