"""A deployment under load in virtual time, as far as a scaling policy can see it.

A fluid model: requests flow through a queue into prefill instances, then through a queue into the batch slots of decode
instances, and leave after their tokens. Prefill takes ``prefill_seconds`` of an instance; a token takes longer the
fuller the batch is. A new instance serves after ``boot_seconds``. One step is a second; the policy looks every five.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from xdeepserve_operator.api.v1alpha1.base import RoleType
from xdeepserve_operator.api.v1alpha1.scaling import ScalingPolicySpec
from xdeepserve_operator.planner.scaling import Decision, Seen, begin, decide
from xdeepserve_operator.planner.scaling_demand import Objective, RoleLoad
from xdeepserve_operator.planner.scaling_latency import Latency

LOOK_SECONDS = 5
BATCH = 8
TTFT = 2000
OBJECTIVE = Objective(ttft=TTFT, tpot=60, load_percent=80, cache_percent=90)


@dataclass
class Pool:
    """Instances of one role: asked for, serving, and those that boot, by the second they will serve."""

    replicas: int
    serving: int = 0
    booting: list[int] = field(default_factory=list)
    room: int = 10**9  # instances for which there are dies

    def step(self, second: int, boot_seconds: int) -> None:
        self.booting = [due for due in self.booting if due > second or not self._serve()]
        while self.serving + len(self.booting) > self.replicas:
            if self.booting:
                self.booting.pop()
            else:
                self.serving -= 1
        while self.serving + len(self.booting) < min(self.replicas, self.room):
            self.booting.append(second + boot_seconds)

    def _serve(self) -> bool:
        self.serving += 1
        return True


class LoadWorld:
    """Runs a policy against ``arrivals(second)`` requests a second."""

    def __init__(
        self,
        policy: ScalingPolicySpec,
        arrivals: Callable[[int], float],
        *,
        prefill: int = 1,
        decode: int = 1,
        prefill_seconds: float = 0.5,
        tokens: int = 200,
        boot_seconds: int = 20,
    ) -> None:
        self.policy, self.arrivals = policy, arrivals
        self.pools: dict[RoleType, Pool] = {"Prefill": Pool(prefill), "Decode": Pool(decode)}
        for pool in self.pools.values():
            pool.serving = pool.replicas
        self.prefill_seconds, self.tokens, self.boot_seconds = prefill_seconds, tokens, boot_seconds
        self.prefill_queue = self.decode_queue = self.running = self.prefilling = 0.0
        self.second = 0
        self.state = begin(0.0)
        self.refused = 0.0
        self.frozen = ""
        self.decisions: list[tuple[int, Decision]] = []  # those that changed something
        self.counts: list[tuple[int, int]] = []  # prefill, decode instances asked for, each second
        self.slow = self.total = 0.0  # requests that waited longer than the objective for their first token; all

    def run(self, seconds: int) -> "LoadWorld":
        for _ in range(seconds):
            self._flow()
            self.second += 1
            if self.second % LOOK_SECONDS == 0:
                self._look()
            self.counts.append((self.pools["Prefill"].replicas, self.pools["Decode"].replicas))
        return self

    @property
    def ttft(self) -> float:
        """Milliseconds that the request that comes now will wait for its first token."""
        prefill, decode = self.pools["Prefill"].serving, self.pools["Decode"].serving
        if not prefill or not decode:
            return 60_000.0
        queued = self.prefill_queue * self.prefill_seconds / prefill
        leave = self._finished_each_second() or decode * BATCH
        return 1000 * (queued + self.prefill_seconds + self.decode_queue / leave)

    @property
    def tpot(self) -> float:
        """Milliseconds for a token."""
        slots = max(1, self.pools["Decode"].serving * BATCH)
        return 30 * (1 + self.running / slots)

    def _finished_each_second(self) -> float:
        return self.running / (self.tokens * self.tpot / 1000)

    def _flow(self) -> None:
        for pool in self.pools.values():
            pool.step(self.second, self.boot_seconds)
        prefill, decode = self.pools["Prefill"].serving, self.pools["Decode"].serving
        coming = self.arrivals(self.second)
        self.total += coming
        if not prefill or not decode:
            self.refused += coming
            self.slow += coming
            return
        self.slow += coming if self.ttft > TTFT else 0
        self.prefill_queue += coming
        done = min(self.prefill_queue, prefill / self.prefill_seconds)
        self.prefill_queue -= done
        self.prefilling = done * self.prefill_seconds
        self.decode_queue += done
        self.running -= min(self.running, self._finished_each_second())
        self.running = self.running if self.running > 0.5 else 0.0  # there is no half a request
        admitted = min(self.decode_queue, max(0.0, decode * BATCH - self.running))
        self.decode_queue -= admitted
        self.running += admitted

    def _look(self) -> None:
        prefill, decode = self.pools["Prefill"], self.pools["Decode"]
        roles = (
            self._role("prefill", "Prefill", self.prefilling, self.prefill_queue),
            self._role("decode", "Decode", self.running, self.decode_queue),
        )
        served = prefill.serving > 0 and decode.serving > 0 and self.prefilling + self.running > 1
        refused = round(self.refused)
        latency = Latency(self.ttft, self.tpot, answers=100) if served else Latency(refused=refused, news=refused)
        self.refused = 0.0
        active = self.prefill_queue + self.prefilling + self.decode_queue + self.running
        seen = Seen(roles, latency, active=round(active), frozen=self.frozen)
        decisions, self.state = decide(self.policy, OBJECTIVE, seen, self.state, float(self.second))
        for one in decisions:
            pool = prefill if one.role == "prefill" else decode
            if one.after != one.before:
                self.decisions.append((self.second, one))
            pool.replicas = one.after

    def _role(self, name: str, kind: RoleType, running: float, waiting: float) -> RoleLoad:
        pool = self.pools[kind]
        return RoleLoad(name, kind, pool.replicas, pool.serving, 1, BATCH, running, waiting)
