"""How two endpoints prove over TCP that they hold the group's secret, and that each is who the other looks for.

    listener -> caller   Greeting   a fresh nonce
    caller -> listener   Claim      a fresh nonce, who it is, whom it wants, HMAC over both nonces and names
    listener -> caller   Verdict    welcome, or "another incarnation lives here", HMAC over all of that

Every message has a fixed size, so that nothing is allocated on a stranger's word. The secret itself never travels;
a recorded conversation is worth nothing later, since both nonces are new; an answer cannot be turned round, since
each side's HMAC has a label of its own. What follows is neither encrypted nor sealed, as on the fabric itself:
whoever can alter packets on the way is not kept out.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

MIN_SECRET_BYTES: Final = 16

_MAGIC: Final = b"\x01XDSXCTP"
_NONCE_BYTES: Final = 32
_GREETING: Final = struct.Struct(f"<8s{_NONCE_BYTES}s")
_CLAIM: Final = struct.Struct(f"<8s{_NONCE_BYTES}s64s64s32s")
_VERDICT: Final = struct.Struct("<B32s")

GREETING_BYTES: Final = _GREETING.size
CLAIM_BYTES: Final = _CLAIM.size
VERDICT_BYTES: Final = _VERDICT.size


class Verdict(IntEnum):
    """What a listener says to a caller that holds the secret."""

    WELCOME = 1
    RESTARTED = 2


@dataclass(frozen=True)
class Claim:
    """A caller that holds the secret: who it is and whom it wants."""

    caller: str
    wanted: str


def greeting() -> bytes:
    """The listener's first message."""
    return _GREETING.pack(_MAGIC, secrets.token_bytes(_NONCE_BYTES))


def claim(secret: bytes, greeting: bytes, who: Claim) -> bytes | None:
    """The caller's answer; None when the greeting is not one of this protocol."""
    if _GREETING.unpack(greeting)[0] != _MAGIC:
        return None
    body = _MAGIC + secrets.token_bytes(_NONCE_BYTES) + _padded(who.caller) + _padded(who.wanted)
    return body + _mac(secret, b"caller", greeting, body)


def verify_claim(secret: bytes, greeting: bytes, claim: bytes) -> Claim | None:
    """Who calls, for the listener; None when the caller does not hold the secret."""
    magic, _, caller, wanted, mac = _CLAIM.unpack(claim)
    if magic != _MAGIC or not hmac.compare_digest(mac, _mac(secret, b"caller", greeting, claim[: -len(mac)])):
        return None
    return Claim(caller.rstrip(b"\0").decode(), wanted.rstrip(b"\0").decode())


def verdict(secret: bytes, greeting: bytes, claim: bytes, word: Verdict) -> bytes:
    """The listener's answer to a verified claim."""
    return _VERDICT.pack(word, _mac(secret, b"listener", greeting, claim, bytes([word])))


def verify_verdict(secret: bytes, greeting: bytes, claim: bytes, verdict: bytes) -> Verdict | None:
    """The listener's answer, for the caller; None when the listener does not hold the secret."""
    word, mac = _VERDICT.unpack(verdict)
    if not hmac.compare_digest(mac, _mac(secret, b"listener", greeting, claim, bytes([word]))):
        return None
    return Verdict(word)


def _padded(name: str) -> bytes:
    return name.encode().ljust(64, b"\0")


def _mac(secret: bytes, label: bytes, *parts: bytes) -> bytes:
    return hmac.digest(secret, b"xccl-tcp " + label + b"".join(parts), "sha256")
