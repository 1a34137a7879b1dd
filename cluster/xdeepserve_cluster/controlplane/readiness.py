"""Asking components whether they are ready, and waiting until they are."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

POLL_S = 0.05
REQUEST_TIMEOUT_S = 2.0


class Check(Protocol):
    """A question to a component."""

    def problem(self) -> str | None:
        """Why the component is not ready, or None if it is. Never raises, takes seconds at most."""


@dataclass(frozen=True)
class HttpsCheck:
    """Ready when a GET of `url` answers 200, to a client with a certificate, from a server that `ca` signed."""

    url: str
    ca: Path
    certificate: Path
    key: Path

    def problem(self) -> str | None:
        parts = urlsplit(self.url)
        try:
            context = ssl.create_default_context(cafile=self.ca)
            context.load_cert_chain(self.certificate, self.key)
            connection = http.client.HTTPSConnection(
                parts.hostname or "", parts.port, context=context, timeout=REQUEST_TIMEOUT_S
            )
            try:
                connection.request("GET", parts.path)
                response = connection.getresponse()
                body = response.read(4096).decode(errors="replace").strip()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            return f"{self.url}: {error}"
        return None if response.status == 200 else f"{self.url}: {response.status} {body}"


@dataclass(frozen=True)
class FileCheck:
    """Ready when `path` exists."""

    path: Path

    def problem(self) -> str | None:
        return None if self.path.exists() else f"{self.path} was not written yet"


def first_problem(checks: Sequence[Check]) -> str | None:
    """The first thing that is not ready."""
    return next((problem for check in checks if (problem := check.problem())), None)


def wait_ready(
    checks: Sequence[Check],
    ended: Callable[[], bool],
    timeout_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str | None:
    """Wait until all checks pass; returns None, or the problem that is left when the component has `ended()`
    or `timeout_s` seconds are over.
    """
    deadline = clock() + timeout_s
    while problem := first_problem(checks):
        if ended() or clock() >= deadline:
            return problem
        sleep(POLL_S)
    return None
