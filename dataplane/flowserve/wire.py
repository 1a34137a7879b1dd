"""Everything that processes of the engine say to each other, and to whoever orchestrates them.

Three configuration documents start a process (``EngineConfig``, ``ShellConfig``, ``FrontendConfig``: JSON in the
environment variable ``XDEEPSERVE_CONFIG`` or a file). After that, control is two idempotent messages, each with
an epoch: ``Membership`` (who is in an instance) to TE-shells and engines, ``Routes`` (where instances are) to
frontends. A message of an older epoch is refused with 409; the same epoch again is harmless; the same epoch with
other content is refused. Status flows the other way and is only ever pulled.

HTTP, control port (``Authorization: Bearer <control token>`` on all but the two health routes):
  engine   GET /health · GET /health/ready · GET /v1/status -> EngineStatus · PUT /v1/membership <- Membership
           PUT /v1/assignment <- EngineConfig (warm engines, until they have theirs)
           POST /v1/transfers/{id}/pull <- PullRequest -> 202 · DELETE /v1/transfers/{id} -> 204 (prefill engines)
           the routes of ``flowserve.wire_experts`` and ``flowserve.wire_fork`` · GET /metrics
  shell    GET /health · GET /health/ready · GET /v1/status -> ShellStatus (ETag, 304 while nothing happened)
           PUT /v1/roster <- Roster · PUT /v1/membership <- Membership
           POST /v1/dispatch <- DispatchRequest -> DispatchReply · GET /metrics
           the routes of ``flowserve.wire_experts``
  frontend GET /health · GET /health/ready (has routes) · PUT /v1/routes <- Routes · GET /v1/status -> FrontendStatus
HTTP, API port:
  engine   POST /v1/prefill <- GenerateRequest -> PrefillReply             (prefill engines; control token)
           POST /v1/generate <- GenerateRequest -> stream of TokenEvent, one JSON document a line (decode; token)
  frontend the OpenAI routes, /health, /health/ready (an instance of each role serves), /metrics
A client that closes the connection of /v1/generate or /v1/prefill cancels the request and frees its blocks.
Whatever is not carried out is answered by a Refusal: 400 a request that this engine can never serve, 401 no token,
404 no such ticket, 409 an epoch that contradicts what is followed, 413 a body too large, 422 no valid document,
503 not now (``retryable``). An error after the first line of a stream is a TokenEvent instead.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

MAX_RANKS = 1024
MAX_LOGPROBS = 20
Text = Annotated[str, StringConstraints(max_length=1024)]
Address = Annotated[str, StringConstraints(max_length=255)]  # host, an IP address as a rule
Identifier = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9._:-]+$")]
Role = Literal["Prefill", "Decode"]


class WireModel(BaseModel):
    """Base of all messages: frozen, unknown fields refused, snake_case on the wire."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Refusal(WireModel):
    """The body of every answer that is not 2xx."""

    error: Text
    retryable: bool = False  # the same request may succeed later, or on another engine


class Limits(WireModel):
    """Sizes fixed for an engine's life."""

    max_context_tokens: int = Field(default=4096, ge=16, le=1_048_576)
    max_batch: int = Field(default=8, ge=1, le=512)  # sequences of a DP group at once
    prefill_chunk_tokens: int = Field(default=256, ge=16, le=16_384)
    kv_block_tokens: int = Field(default=32, ge=1, le=1024)
    kv_blocks: int = Field(default=512, ge=1, le=1_048_576)
    kv_cache_dtype: Literal["float32", "int8"] = "float32"  # int8: all but the rotary key, at a third of the memory
    speculative_tokens: int = Field(default=0, ge=0, le=8)  # MTP drafts an iteration; prefill and decode alike
    prefix_cache: bool = True  # prefill engines keep the KV of finished prompts for those that begin alike
    max_ranks: int = Field(default=8, ge=1, le=MAX_RANKS)  # largest membership
    collective_timeout_seconds: float = Field(default=5.0, gt=0, le=600)  # a peer this late is lost


class Donor(WireModel):
    """An engine that runs the same checkpoint with the same limits, to start with its weights."""

    host: Address
    control_port: int = 9000


class EngineConfig(WireModel):
    """One DP group's process."""

    name: Identifier  # DP group name, for logs
    instance: Identifier  # task executor and replica, e.g. chat-decode-0
    role: Role
    dp_rank: int = Field(ge=0, lt=MAX_RANKS)
    model_name: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    model_uri: Annotated[str, StringConstraints(max_length=1024)]
    limits: Limits = Limits()
    host: Address = "127.0.0.1"  # the pod's IP; listeners bind here
    api_port: int = 8000
    control_port: int = 9000
    doorbell_port: int = 9001
    fabric_port: int = 9002  # XCCL peers of other hosts, who must hold the control token
    donor: Donor | None = None  # whose weights to start with, rather than with what is on the disk
    warm: bool = False  # waits for its assignment: until then names and rank are those of nobody


class ShellConfig(WireModel):
    """One instance's TE-shell."""

    instance: Identifier
    role: Role
    host: Address = "127.0.0.1"
    control_port: int = 9000
    heartbeat_seconds: float = Field(default=0.5, gt=0, le=60)


class FrontendConfig(WireModel):
    """One frontend (JE)."""

    deployment: Identifier
    model_name: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    model_uri: Annotated[str, StringConstraints(max_length=1024)]  # tokenizer and template
    max_context_tokens: int = Field(default=4096, ge=16, le=1_048_576)
    max_body_bytes: int = Field(default=1_048_576, ge=1024, le=67_108_864)
    host: Address = "127.0.0.1"
    api_port: int = 8000
    control_port: int = 9000


class Member(WireModel):
    """One rank of an instance: where it is and which life of it."""

    rank: int = Field(ge=0, lt=MAX_RANKS)
    host: Address
    api_port: int = 8000
    control_port: int = 9000
    doorbell_port: int = 9001
    incarnation: Identifier
    fabric_uri: Text  # XCCL endpoint, e.g. shm:///dev/shm/…?tcp=10.0.0.7:9002


class Membership(WireModel):
    """Who is in an instance, from this epoch on. Ranks are 0…n-1 and complete; experts are spread over all."""

    instance: Identifier
    epoch: int = Field(ge=1)
    members: tuple[Member, ...] = Field(min_length=1, max_length=MAX_RANKS)


class RosterEntry(WireModel):
    """A process that a shell should listen to, before it is a member."""

    rank: int = Field(ge=0, lt=MAX_RANKS)
    host: Address
    api_port: int = 8000
    control_port: int = 9000


class Roster(WireModel):
    """All processes of an instance that have an address; replaces the roster before it."""

    instance: Identifier
    entries: tuple[RosterEntry, ...] = Field(max_length=MAX_RANKS)


ExpertPhase = Literal["Idle", "Prefetch", "Load"]


class ExpertState(WireModel):
    """Where an engine's routed experts are, and how far a change of that is; see ``flowserve.wire_experts``."""

    version: int = Field(default=0, ge=0)  # of the placement in force; 0 is the one that every epoch can begin with
    target: int = Field(default=0, ge=0)  # the version on its way, 0 for none
    phase: ExpertPhase = "Idle"
    ready: bool = False  # the engine has done its part of the phase
    given_up: int = Field(default=0, ge=0)  # the highest version that failed in this epoch
    error: Text = ""  # why this engine gave it up; empty where another one did
    swaps: int = Field(default=0, ge=0)  # changes taken up since the process started
    moved_bytes: int = Field(default=0, ge=0)  # weights fetched since the process started
    swap_seconds: float = Field(default=0.0, ge=0)  # the last change took, from offer to enable
    stalls: int = Field(default=0, ge=0)  # changes given up since the process started


EngineState = Literal["Loading", "Waiting", "Joining", "Serving", "Broken"]


class EngineStatus(WireModel):
    """What an engine says of itself; answering at all is the heartbeat.

    Loading: reading the checkpoint. Waiting: no membership yet. Joining: mapping its peers. Serving: in ``epoch``.
    Broken: a peer was lost in ``epoch`` (or never came), ``error`` says why; requests are held until a membership of a
    newer epoch comes, even if its members are the same.
    """

    name: Identifier
    incarnation: Identifier
    fabric_uri: Text
    state: EngineState
    epoch: int = Field(default=0, ge=0)
    error: Text = ""
    running: int = Field(default=0, ge=0)  # sequences in the batch
    waiting: int = Field(default=0, ge=0)  # sequences not yet admitted
    kv_usage: float = Field(default=0.0, ge=0, le=1)
    iterations: int = Field(default=0, ge=0)
    experts: ExpertState = ExpertState()


class RankReport(WireModel):
    """What a shell knows of one rank."""

    rank: int
    host: Address
    silent_seconds: float = Field(ge=0)  # since it last answered, or since it was put on the roster
    ever_heard: bool
    status: EngineStatus | None = None  # its last answer


class ShellStatus(WireModel):
    """What a TE-shell says."""

    instance: Identifier
    incarnation: Identifier
    epoch: int = Field(default=0, ge=0)  # of the membership it spreads; 0 when it has none
    ranks: tuple[RankReport, ...] = ()
    ready: bool = False  # every member serves in this epoch
    refused_order: Text = ""  # why a rank did not take the last order to move experts; see ``flowserve.wire_experts``


class Target(WireModel):
    """One instance as frontends see it."""

    instance: Identifier
    role: Role
    shell_host: Address
    shell_port: int = 9000
    revision: Identifier = "0"  # prefill feeds decode of the same revision only
    weight: int = Field(default=100, ge=0, le=100)  # of its revision: its share of the requests


class Routes(WireModel):
    """All instances that serve; replaces the routes before it."""

    deployment: Identifier
    epoch: int = Field(ge=1)
    targets: tuple[Target, ...] = Field(max_length=MAX_RANKS)


class Histogram(WireModel):
    """Durations counted by the upper bound of their bucket, in seconds; the last count is of those above all bounds."""

    bounds: tuple[float, ...] = Field(default=(), max_length=64)
    counts: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(0,), max_length=65)

    @model_validator(mode="after")
    def _one_count_more_than_bounds(self) -> Self:
        if len(self.counts) != len(self.bounds) + 1:
            raise ValueError(f"{len(self.bounds)} bounds need {len(self.bounds) + 1} counts, not {len(self.counts)}")
        return self


class FrontendStatus(WireModel):
    """What a frontend says; counts are since it started."""

    incarnation: Identifier
    epoch: int = Field(default=0, ge=0)  # of its routes
    active: int = Field(default=0, ge=0)  # requests in flight
    refused: int = Field(default=0, ge=0)  # requests that found no instance
    first_token: Histogram = Histogram()
    per_token: Histogram = Histogram()


class DispatchRequest(WireModel):
    """Asks a TE-shell for a DP group with room."""

    request_id: Identifier
    tokens: int = Field(ge=1)  # prompt plus answer at most: what KV must hold


class DispatchReply(WireModel):
    """The DP group that was picked."""

    host: Address
    api_port: int
    rank: int
    incarnation: Identifier


class Sampling(WireModel):
    """How tokens are chosen. Randomness is a function of (seed, position), so a replay repeats itself."""

    temperature: float = Field(default=1.0, ge=0, le=2)  # 0 is greedy
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)  # 0: all
    min_p: float = Field(default=0.0, ge=0, le=1)  # relative to the likeliest token
    presence_penalty: float = Field(default=0.0, ge=-2, le=2)
    frequency_penalty: float = Field(default=0.0, ge=-2, le=2)
    repetition_penalty: float = Field(default=1.0, gt=0, le=10)  # 1: none
    seed: int = Field(default=0, ge=0, le=2**63 - 1)


class Logprobs(WireModel):
    """Natural logarithms of the model's own probabilities: of a token that was chosen, and of the likeliest tokens."""

    chosen: float
    best: tuple[tuple[int, float], ...] = Field(default=(), max_length=MAX_LOGPROBS)  # token and logarithm, falling


class TransferTicket(WireModel):
    """KV of a finished prefill, waiting on the prefill engine until it is pulled, dropped or too old."""

    id: Identifier
    host: Address
    control_port: int
    incarnation: Identifier
    fabric_uri: Text
    tokens: int = Field(ge=1)  # positions held


class GenerateRequest(WireModel):
    """One sequence. On a decode engine ``ticket`` and what is ``first_…`` come from the prefill."""

    request_id: Identifier
    prompt: tuple[int, ...] = Field(min_length=1, max_length=1_048_576)
    max_tokens: int = Field(ge=1, le=1_048_576)
    sampling: Sampling = Sampling()
    stop: tuple[Annotated[str, StringConstraints(min_length=1, max_length=256)], ...] = Field(default=(), max_length=4)
    stop_token_ids: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(), max_length=64)
    ignore_eos: bool = False
    logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)  # of so many likeliest tokens; None: of none
    ticket: TransferTicket | None = None
    first_token: int | None = Field(default=None, ge=0)
    first_logprobs: Logprobs | None = None


class PrefillReply(WireModel):
    """The first token and where the KV waits."""

    first_token: int
    first_logprobs: Logprobs | None = None
    cached_tokens: int = Field(default=0, ge=0)  # of the prompt, whose KV was there before
    ticket: TransferTicket


class PullRequest(WireModel):
    """A decode engine's wish for the KV of a ticket, to be sent into its ring."""

    host: Address
    incarnation: Identifier
    fabric_uri: Text
    event: int = Field(ge=1)  # XCCL event of this transfer
    line: int = Field(default=0, ge=0)  # XCCL channel; a larger number replaces one that broke


FinishReason = Literal["stop", "length"]


class TokenEvent(WireModel):
    """One line of a /v1/generate stream: tokens index…index+len-1 of the answer and the text they complete.

    The last line has ``finish_reason`` or ``error``. Text lags tokens while a character or a stop string is
    incomplete. ``retryable`` errors (a lost peer, a full cache) leave the client free to send the request again.
    """

    index: int = Field(ge=0)
    tokens: tuple[int, ...] = ()
    logprobs: tuple[Logprobs, ...] = ()  # one a token, if the request asks for them
    text: str = ""
    finish_reason: FinishReason | None = None
    error: Text | None = None
    retryable: bool = False
