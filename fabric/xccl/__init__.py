"""XCCL: memory-semantic communication between dies.

Dies talk by reading and writing each other's memory: a payload, then a metadata field that publishes it. This
package holds the memory (`Endpoint`), the collectives of a group in lockstep (`Group`: vote, dispatch, combine),
p2p over a ring (`Channel`), and the drivers that run their steps (`run`, `arun`). README.md has an example of each.
"""

from xccl.a2e import AttentionGroup, ExpertGroup
from xccl.alltoall import Dispatched
from xccl.channel import Channel
from xccl.completion import Completion, CompletionQueue
from xccl.doorbell import Doorbell
from xccl.endpoint import Endpoint
from xccl.errors import (
    BadSegment,
    Broken,
    CorruptField,
    EventMismatch,
    LayoutMismatch,
    LinkBroken,
    NotAuthentic,
    PeerLost,
    PeerRestarted,
    RingFull,
    StaleEpoch,
    Timeout,
    Unsupported,
    XcclError,
)
from xccl.faults import Disturbance, Faults, FaultyLink
from xccl.group import Group
from xccl.layout import Layout
from xccl.paths import Path, Situation, default_rule
from xccl.probe import Report, Verdict
from xccl.push import Pushed
from xccl.quantise import dequantise, quantise
from xccl.region import Region
from xccl.shm import sweep
from xccl.steps import Steps, arun, run, within
from xccl.tcp_sockets import Network
from xccl.uri import Peer

__all__ = [
    "AttentionGroup",
    "BadSegment",
    "Broken",
    "Channel",
    "Completion",
    "CompletionQueue",
    "CorruptField",
    "Dispatched",
    "Disturbance",
    "Doorbell",
    "Endpoint",
    "EventMismatch",
    "ExpertGroup",
    "Faults",
    "FaultyLink",
    "Group",
    "Layout",
    "LayoutMismatch",
    "LinkBroken",
    "Network",
    "NotAuthentic",
    "Path",
    "Peer",
    "PeerLost",
    "PeerRestarted",
    "Pushed",
    "Region",
    "Report",
    "RingFull",
    "Situation",
    "StaleEpoch",
    "Steps",
    "Timeout",
    "Unsupported",
    "Verdict",
    "XcclError",
    "arun",
    "default_rule",
    "dequantise",
    "quantise",
    "run",
    "sweep",
    "within",
]
