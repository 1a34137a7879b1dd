"""What runs on the emulated servers: one object a container, without any behaviour of its own."""

from flowserve.wire import EngineConfig, EngineStatus, Histogram, Membership, Routes
from xdeepserve_operator.api import names

from .fakes import Object


class Process:
    """A running container: an engine, a TE-shell or a frontend, by its pod's component."""

    def __init__(self, pod: Object, life: int, now: float) -> None:
        self.uid, self.name = pod["metadata"]["uid"], pod["metadata"]["name"]
        self.component = pod["metadata"]["labels"][names.LABEL_COMPONENT]
        self.host: str = pod["status"]["podIP"]
        self.incarnation = f"{self.name}.{life}"
        self.hung = False
        self.membership: Membership | None = None  # an engine's, or a shell's
        self.joined = False
        self.broken = False
        self.running = 0  # requests in an engine
        self.first_token = Histogram()  # a frontend's
        self.refused = 0  # requests that a frontend had no instance for
        self.roster: dict[int, str] = {}
        self.heard: dict[tuple[int, str], tuple[float, EngineStatus | None]] = {}
        self.routes: Routes | None = None
        self.assigned: EngineConfig | None = None  # what a warm engine has become
        self.started = now

    def engine_status(self) -> EngineStatus:
        epoch = self.membership.epoch if self.membership and (self.joined or self.broken) else 0
        state = "Broken" if self.broken else "Serving" if self.joined else "Waiting"
        return EngineStatus(
            name=self.name,
            incarnation=self.incarnation,
            fabric_uri=f"shm:///{self.incarnation}",
            state=state,
            epoch=epoch,
            running=self.running,
        )
