"""The KV that waits on a prefill engine to be pulled. Pure: the clock is an argument.

    issue -> waiting -> take -> sending -> sent | failed (waiting again)
                 +-> drop, expire

A ticket holds its blocks until it was sent, dropped, or left waiting for ``lifetime`` seconds. One that is being sent
neither expires nor can be taken twice; if it is dropped meanwhile, it goes when the sending ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from flowserve.cache import SequenceKV


class NoTicket(Exception):
    """There is no such ticket (any more), or it is being pulled already."""


@dataclass(eq=False)
class _Entry:
    kv: SequenceKV
    until: float
    sending: bool = False
    dropped: bool = False


class TicketBook:
    """At most ``capacity`` tickets. Ids contain the engine's incarnation: those of an earlier life are never found."""

    def __init__(self, incarnation: str, capacity: int, lifetime: float) -> None:
        self.lifetime = lifetime
        self._incarnation = incarnation
        self._capacity = capacity
        self._entries: dict[str, _Entry] = {}
        self._issued = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def full(self) -> bool:
        return len(self._entries) >= self._capacity

    def issue(self, kv: SequenceKV, now: float) -> str:
        """Keeps ``kv`` under a new id."""
        self._issued += 1
        ticket = f"{self._incarnation}-{self._issued}"
        self._entries[ticket] = _Entry(kv, now + self.lifetime)
        return ticket

    def take(self, ticket: str) -> SequenceKV:
        """The KV, to be sent; ``sent`` or ``failed`` must follow. Raises NoTicket."""
        entry = self._entries.get(ticket)
        if entry is None:
            raise NoTicket(f"ticket {ticket} is unknown, expired or was pulled before; prefill again")
        if entry.sending:
            raise NoTicket(f"ticket {ticket} is being pulled already")
        entry.sending = True
        return entry.kv

    def sent(self, ticket: str) -> None:
        """The KV has arrived: its blocks are free."""
        self._remove(ticket)

    def failed(self, ticket: str) -> None:
        """The KV did not arrive: somebody may pull it again."""
        entry = self._entries[ticket]
        entry.sending = False
        if entry.dropped:
            self._remove(ticket)

    def drop(self, ticket: str) -> None:
        """Nobody will pull it. Raises NoTicket."""
        entry = self._entries.get(ticket)
        if entry is None:
            raise NoTicket(f"ticket {ticket} is unknown, expired or was pulled before")
        if entry.sending:
            entry.dropped = True
        else:
            self._remove(ticket)

    def expire(self, now: float) -> list[str]:
        """Drops the tickets whose time is over, and returns their ids."""
        old = [ticket for ticket, entry in self._entries.items() if entry.until <= now and not entry.sending]
        for ticket in old:
            self._remove(ticket)
        return old

    def _remove(self, ticket: str) -> None:
        self._entries.pop(ticket).kv.free()
