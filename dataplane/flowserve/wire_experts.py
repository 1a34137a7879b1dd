"""What engines, TE-shells and whoever orchestrates them say about the load and the placement of routed experts.

HTTP, control port, with the token, as in ``flowserve.wire``:
  engine   GET /v1/experts/load -> ExpertLoad · GET /v1/experts/placement -> ExpertTable
           PUT /v1/experts/placement <- ExpertOrder -> EngineStatus
           DELETE /v1/experts/placement/{version} -> EngineStatus (gives the change up, if it is still on its way)
  shell    PUT /v1/experts/watch <- ExpertWatch -> ShellStatus
           GET /v1/experts/load?after=N -> ExpertHistory (slices with a sequence above N)
           PUT /v1/experts/placement <- ExpertOrder -> ShellStatus
           DELETE /v1/experts/placement/{version} -> ShellStatus
           GET /v1/experts/placement -> ExpertTable (of the first member that serves; 503 without one)
How far a change is stands in every heartbeat (``EngineStatus.experts``), so the shell's status tells it of all ranks.

A placement is data with a version. An order names the epoch it is for, a version above all before it, and the slots of
those layers that change; it is taken up by all ranks between the same two iterations, or by none.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from flowserve.wire import MAX_RANKS, Identifier, WireModel

MAX_LAYERS = 256
MAX_EXPERTS = 1024
MAX_SLOTS = 256  # of a rank and layer
MAX_SLICES = 32  # intervals that a shell remembers

Count = Annotated[int, Field(ge=0, le=2**62)]
Slot = Annotated[int, Field(ge=-1, lt=MAX_EXPERTS)]  # an expert, or -1 for nothing
LayerNumber = Annotated[int, Field(ge=0, lt=4096)]
RankSlots = Annotated[tuple[Slot, ...], Field(min_length=1, max_length=MAX_SLOTS)]


class LayerSlots(WireModel):
    """Which experts the ranks of a layer hold: by rank, by slot; all ranks have as many slots."""

    layer: LayerNumber
    slots: tuple[RankSlots, ...] = Field(min_length=1, max_length=MAX_RANKS)


class ExpertOrder(WireModel):
    """A change of placement: these layers go over to these slots, the others stay."""

    instance: Identifier
    epoch: int = Field(ge=1)
    version: int = Field(ge=1, lt=2**56)
    layers: tuple[LayerSlots, ...] = Field(min_length=1, max_length=MAX_LAYERS)
    deadline_seconds: float = Field(default=60.0, gt=0, le=3600)  # without progress for so long it is given up


class ExpertTable(WireModel):
    """The whole placement in force."""

    epoch: int = Field(ge=0)
    version: int = Field(ge=0)
    top_k: int = Field(ge=1)
    experts: int = Field(ge=1, le=MAX_EXPERTS)
    groups: int = Field(default=1, ge=1, le=MAX_EXPERTS)  # of the gate, of consecutive experts; 1 where it has none
    expert_bytes: int = Field(ge=0)  # what one expert's weights take in memory, the largest of all layers
    layers: tuple[LayerSlots, ...] = Field(max_length=MAX_LAYERS)


class ExpertLoad(WireModel):
    """What one rank counted since it started: never less than before, so that a lost answer loses nothing."""

    incarnation: Identifier
    epoch: int = Field(ge=0)
    version: int = Field(ge=0)
    layers: tuple[LayerNumber, ...] = Field(max_length=MAX_LAYERS)  # numbers of the MoE layers
    chosen: tuple[tuple[Count, ...], ...] = Field(max_length=MAX_LAYERS)  # [layers][experts] by this rank's tokens
    served: tuple[Count, ...] = Field(max_length=MAX_LAYERS)  # [layers] (token, expert) pairs that came here


class ExpertWatch(WireModel):
    """How a shell counts: intervals of so many seconds, of which it remembers so many."""

    instance: Identifier
    interval_seconds: float = Field(default=60.0, ge=0.1, le=3600)
    slices: int = Field(default=16, ge=1, le=MAX_SLICES)


class ExpertSlice(WireModel):
    """One interval, all ranks together. ``version`` is None if the placement changed within it, or ranks differed."""

    sequence: int = Field(ge=1)
    seconds: float = Field(gt=0)
    epoch: int = Field(ge=0)
    version: int | None = Field(default=None, ge=0)
    chosen: tuple[tuple[Count, ...], ...] = Field(max_length=MAX_LAYERS)  # [layers][experts]
    served: tuple[tuple[Count, ...], ...] = Field(max_length=MAX_RANKS)  # [ranks][layers]


class ExpertHistory(WireModel):
    """What a shell remembers, oldest first. Sequences begin anew with a shell's incarnation."""

    incarnation: Identifier
    layers: tuple[LayerNumber, ...] = Field(default=(), max_length=MAX_LAYERS)
    slices: tuple[ExpertSlice, ...] = Field(default=(), max_length=MAX_SLICES)
