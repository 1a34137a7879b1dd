"""Where an endpoint is: its URI, `shm://<directory>/<incarnation>`, with `?tcp=<host>:<port>` if it also listens.

A URI comes from a peer by way of whoever sends memberships, so that nothing in it is believed: the incarnation is a
plain name, the host an IP address (no name is ever looked up), the port a number.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

HostPort: TypeAlias = tuple[str, int]
"""An IP address and a TCP port."""

INCARNATION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_URI: Final = re.compile(
    r"shm://(?P<directory>/[^?#]*)/(?P<incarnation>[^/?#]+)(\?tcp=(?P<host>[0-9.]+|\[[0-9A-Fa-f:.]+\]):(?P<port>\d{1,5}))?"
)


@dataclass(frozen=True)
class Peer:
    """Another endpoint, as membership names it: its rank in the group (0 where there is none), who, and where."""

    rank: int
    incarnation: str
    uri: str


@dataclass(frozen=True)
class Location:
    """The parts of a URI; `tcp` is None where the endpoint does not listen."""

    directory: Path
    incarnation: str
    tcp: HostPort | None

    def __str__(self) -> str:
        base = f"shm://{self.directory}/{self.incarnation}"
        if self.tcp is None:
            return base
        host, port = self.tcp
        return f"{base}?tcp={f'[{host}]' if ':' in host else host}:{port}"


def parse(uri: str) -> Location | None:
    """The parts of `uri`, or None when it is no endpoint's URI."""
    match = _URI.fullmatch(uri)
    if match is None or not INCARNATION.fullmatch(match["incarnation"]):
        return None
    tcp: HostPort | None = None
    if match["host"]:
        try:
            tcp = str(ipaddress.ip_address(match["host"].strip("[]"))), int(match["port"])
        except ValueError:
            return None
        if not 0 < tcp[1] < 1 << 16:
            return None
    location = Location(Path(match["directory"]), match["incarnation"], tcp)
    return location if str(location) == uri else None
