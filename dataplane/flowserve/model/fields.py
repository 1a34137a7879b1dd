"""Typed, bounded access to the fields of a JSON file that somebody else wrote."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from flowserve.model.errors import CheckpointError, UnsupportedModel

MAX_JSON_BYTES = 16 << 20  # config.json takes kilobytes; the index of a 671 B checkpoint 9 MB


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises CheckpointError if it is missing, too large, or something else."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    if len(raw) > MAX_JSON_BYTES:
        raise CheckpointError(f"{path}: larger than {MAX_JSON_BYTES} bytes")
    return parse_json_object(raw, str(path))


def parse_json_object(raw: bytes, origin: str) -> dict[str, Any]:
    """The JSON object that `raw` spells; a name given twice is refused, since readers disagree on which one wins."""
    try:
        value = json.loads(raw, object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{origin}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{origin}: must be a JSON object, not {type(value).__name__}")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("an object has the same name twice")
    return result


class Fields:
    """The fields of one JSON object; every refusal names the file and the field."""

    def __init__(self, values: dict[str, Any], origin: str) -> None:
        self._values = values
        self._origin = origin

    def __contains__(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._values.get(name) is not None

    def integer(self, name: str, default: int | None = None, *, low: int = 1, high: int = 1 << 24) -> int:
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise CheckpointError(f"{self._origin}: {name} must be an integer in {low}..{high}, not {value!r}")
        return value

    def number(self, name: str, default: float | None = None, *, low: float = 0.0, high: float = 1e9) -> float:
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise CheckpointError(f"{self._origin}: {name} must be a number, not {value!r}")
        if not math.isfinite(value) or not low <= value <= high:
            raise CheckpointError(f"{self._origin}: {name} must be in {low}..{high}, not {value!r}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self._take(name, default)
        if not isinstance(value, bool):
            raise CheckpointError(f"{self._origin}: {name} must be true or false, not {value!r}")
        return value

    def expect(self, name: str, supported: object) -> None:
        """Refuses a model whose field `name` is given and is not the one value that this runtime computes."""
        if name in self and self._values[name] != supported:
            raise UnsupportedModel(
                f"{self._origin}: {name} = {self._values[name]!r} is not supported, only {supported!r}"
            )

    def token_ids(self, name: str, vocabulary: int) -> tuple[int, ...]:
        """One token or a list of tokens, all inside the vocabulary; none if the field is missing."""
        value = self._values.get(name)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        for token in ids:
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocabulary:
                raise CheckpointError(f"{self._origin}: {name} must hold tokens in 0..{vocabulary - 1}, not {token!r}")
        return tuple(ids)

    def pair(self, name: str) -> tuple[int, int]:
        """Two natural numbers above 0."""
        value = self._take(name, None)
        if (
            not isinstance(value, list)
            or len(value) != 2
            or any(type(one) is not int or not 0 < one < 1 << 24 for one in value)
        ):
            raise CheckpointError(f"{self._origin}: {name} must be two positive integers, not {value!r}")
        return value[0], value[1]

    def section(self, name: str) -> Fields | None:
        """The object in field `name`, or None if the field is missing or null."""
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise CheckpointError(f"{self._origin}: {name} must be an object, not {value!r}")
        return Fields(value, f"{self._origin}: {name}")

    def text(self, name: str, default: str) -> str:
        value = self._take(name, default)
        if not isinstance(value, str):
            raise CheckpointError(f"{self._origin}: {name} must be a string, not {value!r}")
        return value

    def _take(self, name: str, default: Any) -> Any:
        value = self._values.get(name, default)
        if value is None:
            if default is None:
                raise CheckpointError(f"{self._origin}: {name} is missing")
            return default
        return value
