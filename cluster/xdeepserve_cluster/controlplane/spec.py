"""What a cluster should be, as its user says it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

DnsLabel = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=32)]

_SERVERS = re.compile(r"^(910B|910C)=(\d{1,4})$")


class ClusterSpec(BaseModel):
    """A named cluster: its emulated servers (`910B=2,910C=4`: chip and number), or none without the agent.

    `models` is what `file:///models/` stands for on the servers; without it, that directory of this machine.
    A node that is silent for `node_grace_seconds` is NotReady; its lease is renewed in a quarter of that.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: DnsLabel = "demo"
    agent: bool = True
    servers: str = Field("910B=2,910C=4", max_length=64)
    superpod: DnsLabel = "pod-a"
    models: Path | None = None
    node_grace_seconds: int = Field(8, ge=4, le=3600)

    @field_validator("servers")
    @classmethod
    def _check_servers(cls, value: str) -> str:
        chips = [match and match[1] for match in map(_SERVERS.match, value.split(","))]
        if None in chips or len(set(chips)) != len(chips):
            raise ValueError("must be CHIP=NUMBER, each of 910B and 910C at most once, as in 910B=2,910C=4")
        return value


def default_state_root() -> Path:
    """`$XDEEPSERVE_STATE_DIR`, else `$XDG_STATE_HOME/xdeepserve`, else `~/.local/state/xdeepserve`."""
    if root := os.environ.get("XDEEPSERVE_STATE_DIR"):
        return Path(root).absolute()
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base).absolute() / "xdeepserve"
