"""What two engines say to each other when one starts with the other's weights ("NPU fork").

HTTP, control port, with the token, as in ``flowserve.wire``:
  engine   GET /v1/weights -> WeightOffer · POST /v1/weights/pull <- WeightPull -> 202
The bytes themselves travel by XCCL, into the ring that the pull names.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from flowserve.wire import Identifier, PullRequest, Text, WireModel

MAX_FILES = 1024
PART_BYTES = 32 << 20
FileName = Annotated[str, StringConstraints(max_length=255, pattern=r"^[A-Za-z0-9._-]+\.safetensors$")]


class WeightFile(WireModel):
    """One file of tensors."""

    name: FileName
    size: int = Field(ge=1, le=1 << 42)  # bytes


class WeightOffer(WireModel):
    """What an engine can give, and where its rings are."""

    incarnation: Identifier
    fabric_uri: Text
    files: tuple[WeightFile, ...] = Field(min_length=1, max_length=MAX_FILES)


class WeightPull(PullRequest):
    """A wish for one part of a file."""

    file: FileName
    offset: int = Field(ge=0, le=1 << 42)
    length: int = Field(ge=1, le=PART_BYTES)
