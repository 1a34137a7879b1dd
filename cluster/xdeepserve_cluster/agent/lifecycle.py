"""The life of a container: its states, and what follows when its process ends. Pure; times are arguments.

    Waiting --start--> Running --exit--> Terminated --(policy)--> Waiting (back-off) --start--> Running ...

A record is what the pod's status shows of a container. `last` is the previous Terminated once the container goes on;
`restarts` counts starts after the first. A container is `started` when its startup probe passed (at once without
one), and `ready` only while running and started. Back-off is the kubelet's: the first restart at once, then 10 s,
doubling to 300 s, and from the beginning again after a run of 10 minutes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BACKOFF_FIRST_S = 10.0
BACKOFF_LAST_S = 300.0
BACKOFF_RESET_S = 600.0


@dataclass(frozen=True)
class Waiting:
    """Not running; `reason` as the kubelet's (ContainerCreating, CrashLoopBackOff, ...)."""

    reason: str = "ContainerCreating"
    message: str = ""


@dataclass(frozen=True)
class Running:
    """Its process runs."""

    started_at: float


@dataclass(frozen=True)
class Terminated:
    """Its process ended; a signal n counts as exit code 128 + n."""

    exit_code: int
    started_at: float
    finished_at: float
    message: str = ""

    @property
    def reason(self) -> str:
        return "Completed" if self.exit_code == 0 else "Error"


State = Waiting | Running | Terminated


@dataclass
class Record:
    """One container of a pod."""

    name: str
    image: str
    state: State = field(default_factory=Waiting)
    last: Terminated | None = None
    restarts: int = 0
    runs: int = 0  # processes started by this agent for it
    started: bool = False
    ready: bool = False

    def wait(self, reason: str, message: str = "") -> None:
        """Something keeps it from running."""
        self._leave()
        self.state = Waiting(reason, message)

    def run(self, now: float) -> None:
        """Its process was started."""
        if self.ran_before:
            self.restarts += 1
        self._leave()
        self.runs += 1
        self.state = Running(now)

    def end(self, exit_code: int, message: str, now: float) -> Terminated:
        """Its process ended."""
        started_at = self.state.started_at if isinstance(self.state, Running) else now
        self.started = self.ready = False
        self.state = Terminated(exit_code, started_at, now, message)
        return self.state

    @property
    def ran_before(self) -> bool:
        """Whether an earlier process of it ended."""
        return self.last is not None or isinstance(self.state, Terminated)

    def _leave(self) -> None:
        if isinstance(self.state, Terminated):
            self.last = self.state
        self.started = self.ready = False


@dataclass
class Backoff:
    """How long to wait before each restart, in seconds."""

    _next: float = 0.0

    def after(self, ran_for: float) -> float:
        """The wait after a run of `ran_for` seconds."""
        if ran_for >= BACKOFF_RESET_S:
            self._next = 0.0
        delay, self._next = self._next, min(max(2 * self._next, BACKOFF_FIRST_S), BACKOFF_LAST_S)
        return delay


def restarts(policy: str, exit_code: int) -> bool:
    """Whether a container starts again, by the pod's restartPolicy."""
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def init_policy(policy: str) -> str:
    """An init container that succeeded never runs again: Always means OnFailure for it."""
    return "OnFailure" if policy == "Always" else policy
