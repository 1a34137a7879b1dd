"""Prometheus' text format (version 0.0.4), for processes whose figures are at hand when they are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def sample(name: str, labels: Mapping[str, str | int], value: float) -> str:
    """One line, with label values escaped."""
    escaped = (
        (key, str(text).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for key, text in labels.items()
    )
    inside = ",".join(f'{key}="{text}"' for key, text in escaped)
    return f"{name}{{{inside}}} {value}\n" if inside else f"{name} {value}\n"


def family(name: str, kind: Literal["gauge", "counter", "histogram"], text: str, samples: Iterable[str]) -> str:
    """A metric with all its samples."""
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n{''.join(samples)}"
