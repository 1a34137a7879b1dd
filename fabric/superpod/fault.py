"""The kinds of fault that hardware can show, whether injected on purpose or reported by a real machine."""

from __future__ import annotations

from enum import StrEnum


class FaultKind(StrEnum):
    """What breaks; the value is the name that manifests and status use."""

    DIE_KILL = "DieKill"
    """The die stops and every process on it ends at once."""
    HANG = "Hang"
    """The process on the die stays but makes no progress."""
    HBM_RANGE = "HBMRange"
    """A range of the die's memory can no longer be trusted."""
    LINK_FLAP = "LinkFlap"
    """A link goes away and comes back."""
    LINK_SLOW = "LinkSlow"
    """A link carries a fraction of its bandwidth."""
    NODE_LOSS = "NodeLoss"
    """The whole server is gone."""
    EXPERT_WEIGHT_LOSS = "ExpertWeightLoss"
    """The weights of an expert on a die are damaged; the die itself works."""
