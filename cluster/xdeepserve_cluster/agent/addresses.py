"""Pod addresses out of 127.16.0.0/12, all of which the loopback interface answers without any set-up. Pure.

An address belongs to one pod at a time. The search starts behind the address given out last, so one that became free
is used again as late as possible, and old connections do not meet a new pod. Clusters on one machine share the
range: each starts at a place of its own.
"""

from __future__ import annotations

import zlib
from ipaddress import IPv4Address, IPv4Network

NETWORK = IPv4Network("127.16.0.0/12")


class Addresses:
    """Who has which address; `seed` names the cluster."""

    def __init__(self, seed: str) -> None:
        self._next = zlib.crc32(seed.encode()) % NETWORK.num_addresses
        self._owner: dict[str, str] = {}
        self._address: dict[str, str] = {}

    def take(self, pod_uid: str) -> str:
        """The pod's address; a new one if it has none."""
        while pod_uid not in self._address:
            candidate = NETWORK[self._next]
            self._next = (self._next + 1) % NETWORK.num_addresses
            if int(candidate) & 0xFF not in (0, 255):  # nothing forbids these, but they look like networks
                self.restore(pod_uid, str(candidate))
        return self._address[pod_uid]

    def restore(self, pod_uid: str, address: str) -> bool:
        """Give a pod the address it had before the agent restarted; False if it cannot have it."""
        if self._owner.get(address, pod_uid) != pod_uid or not _is_ours(address):
            return False
        self._owner[address] = pod_uid
        self._address[pod_uid] = address
        return True

    def release(self, pod_uid: str) -> None:
        """Take a pod's address back."""
        if address := self._address.pop(pod_uid, None):
            del self._owner[address]


def _is_ours(address: str) -> bool:
    try:
        return IPv4Address(address) in NETWORK
    except ValueError:
        return False
