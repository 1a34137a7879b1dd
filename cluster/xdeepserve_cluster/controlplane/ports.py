"""Free ports on 127.0.0.1 that stay ours while a component is down.

Linux gives outgoing connections ports from 32768 up, Kubernetes NodePorts are from 30000 to 32767. A port below
both cannot be taken by chance while an API server is being restarted on the address its clients know.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterable

FIRST, LAST = 20_000, 29_999


def is_free(port: int) -> bool:
    """Whether 127.0.0.1:`port` can be bound now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose_ports(
    names: Iterable[str], *, free: Callable[[int], bool] = is_free, chance: random.Random | None = None
) -> dict[str, int]:
    """A free port for each name, no port twice. Starts at a random place, so that two choosers rarely meet."""
    start = (chance or random.Random()).randint(FIRST, LAST)
    candidates = (FIRST + (start - FIRST + step) % (LAST - FIRST + 1) for step in range(LAST - FIRST + 1))
    usable = (port for port in candidates if free(port))
    ports = dict(zip(names := list(names), usable, strict=False))
    if len(ports) < len(names):
        raise OSError(f"fewer than {len(names)} free ports on 127.0.0.1 between {FIRST} and {LAST}")
    return ports
