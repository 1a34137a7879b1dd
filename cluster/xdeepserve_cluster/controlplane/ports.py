"""Free ports on 127.0.0.1 that stay ours while a component is down.

Linux gives outgoing connections ports from 32768 up, Kubernetes NodePorts are from 30000 to 32767. A port below
both cannot be taken by chance while an API server is being restarted on the address its clients know.
"""

from __future__ import annotations

import itertools
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
    names: Iterable[str], *, free: Callable[[int], bool] = is_free, start: int | None = None
) -> dict[str, int]:
    """A free port for each name, no port twice, searched upwards and around from `start`.

    The start is random by default, so that two choosers at once rarely meet. Raises OSError when there are too few.
    """
    names = list(names)
    start = random.randint(FIRST, LAST) if start is None else start
    usable = (port for port in itertools.chain(range(start, LAST + 1), range(FIRST, start)) if free(port))
    ports = dict(zip(names, usable, strict=False))
    if len(ports) < len(names):
        raise OSError(f"fewer than {len(names)} free ports on 127.0.0.1 between {FIRST} and {LAST}")
    return ports
