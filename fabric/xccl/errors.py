"""What can go wrong between dies, as exceptions that a caller can act on by class or by `code`."""

from __future__ import annotations

from typing import ClassVar


class XcclError(Exception):
    """Base of every error of this package. `code` is stable and fit for metrics and status."""

    code: ClassVar[str] = "xccl"


class Timeout(XcclError):
    """The steps did not finish in time; the traceback names the wait they were in."""

    code = "timeout"


class RingFull(Timeout):
    """A send found no free slot in time: the link works, but the receiver does not take what is there."""

    code = "ring_full"


class PeerLost(XcclError):
    """The process that owns rank's memory is gone, or has closed that memory."""

    code = "peer_lost"

    def __init__(self, rank: int, reason: str) -> None:
        super().__init__(f"rank {rank}: {reason}; join the next epoch without it, or with its replacement")
        self.rank = rank


class PeerRestarted(PeerLost):
    """Another process answers where the peer was: it has restarted, and what it held is gone."""

    code = "peer_restarted"


class LinkBroken(PeerLost):
    """The link to the peer carries nothing, whether or not the peer lives; it may come back."""

    code = "link_broken"


class NotAuthentic(XcclError):
    """Whoever answers at a peer's address does not hold the group's secret."""

    code = "not_authentic"


class StaleEpoch(XcclError):
    """The epoch is not newer than one this endpoint has already joined."""

    code = "stale_epoch"


class Broken(XcclError):
    """A group or channel was used while in use, after a failure inside it, or after it was closed."""

    code = "broken"


class BadSegment(XcclError):
    """A shared-memory file is not what its name promises: truncated, foreign or hostile. It was not mapped."""

    code = "bad_segment"


class LayoutMismatch(XcclError):
    """Two endpoints were built with different layouts, so their offsets do not agree."""

    code = "layout_mismatch"


class CorruptField(XcclError):
    """A metadata field contradicts its seal, the layout, or what this rank sent."""

    code = "corrupt_field"


class EventMismatch(XcclError):
    """A peer is at another event than this rank: the two no longer execute the same sequence."""

    code = "event_mismatch"


class Unsupported(XcclError):
    """This installation or this transport cannot do what was asked; the message says what can."""

    code = "unsupported"
