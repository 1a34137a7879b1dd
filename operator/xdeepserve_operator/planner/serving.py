"""Ready of a ModelDeployment, and the routes its frontends get.

Ready holds when every role's TaskExecutor is Ready at its current spec, at least one instance of each type is asked
for, the frontend is rolled out, and every frontend pod has the routes in force. Routes list instances that serve now,
and nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.base import RoleType
from xdeepserve_operator.planner.conditions import READY, find_condition, is_true
from xdeepserve_operator.planner.pods import PodView
from xdeepserve_operator.planner.progress import PROGRESSING
from xdeepserve_operator.planner.readiness import Verdict

_FURTHEST_FROM_DONE = {"ProgressDeadlineExceeded": 0, "Paused": 1, "Progressing": 2, "Complete": 3}
_UNSAID = {"status": "True", "reason": "Progressing", "message": "its TaskExecutor is being made"}
_BEHIND = {"status": "True", "reason": "Progressing", "message": "its TaskExecutor follows the new spec"}


@dataclass(frozen=True, slots=True)
class RoleView:
    """A role and its TaskExecutor, None while that does not exist."""

    name: str
    type: RoleType
    executor: Mapping[str, Any] | None

    @property
    def replicas(self) -> int:
        """Instances asked for."""
        return int(self.executor["spec"].get("replicas", 1)) if self.executor else 0

    @property
    def status(self) -> Mapping[str, Any]:
        """Status of the TaskExecutor."""
        status: Mapping[str, Any] = (self.executor or {}).get("status", {})
        return status


@dataclass(frozen=True, slots=True)
class FrontendView:
    """Counts of frontend pods: asked for, ready at the current template, and with the routes in force.

    ``trouble`` says why one of them cannot start, if one cannot.
    """

    wanted: int
    ready: int
    pods: int
    routed: int
    trouble: str = ""


def deployment_verdict(roles: Sequence[RoleView], frontend: FrontendView) -> Verdict:
    """Ready of a ModelDeployment; the first role that is not ready gives the reason."""
    for role in roles:
        if role.executor is None:
            return Verdict(False, "Starting", f"role {role.name}: its TaskExecutor is being made")
        if not is_true(role.executor, READY):
            condition = find_condition(role.executor, READY)
            if condition is None:
                return Verdict(False, "Starting", f"role {role.name}: its TaskExecutor is being placed")
            if condition.get("status") == "False":
                return Verdict(False, condition["reason"], f"role {role.name}: {condition['message']}")
            return Verdict(False, "Updating", f"role {role.name}: its TaskExecutor follows the new spec")
    for kind in ("Prefill", "Decode"):
        if not any(role.replicas for role in roles if role.type == kind):
            return Verdict(False, "ScaledToZero", f"no replica of a {kind} role is asked for")
    if frontend.ready < frontend.wanted:
        text = f"frontend: {frontend.ready} of {frontend.wanted} pods are ready"
        return Verdict(False, "Starting", f"{text}; {frontend.trouble}" if frontend.trouble else text)
    if frontend.routed < frontend.pods:
        return Verdict(False, "RoutesPending", f"frontend: {frontend.routed} of {frontend.pods} pods have the routes")
    return Verdict(True, "Ready", "every role serves and every frontend has the routes")


def deployment_progress(roles: Sequence[RoleView]) -> Verdict:
    """Progressing of a ModelDeployment: the role that is furthest from done speaks for all.

    What a TaskExecutor says of an older spec than its present one does not count.
    """
    said = [(role.name, _progress_said(role.executor)) for role in roles]
    name, worst = min(said, key=lambda one: _FURTHEST_FROM_DONE.get(one[1]["reason"], 0))
    if worst["reason"] == "Complete":
        return Verdict(True, "Complete", "every role has the revision that it shall have")
    return Verdict(worst["status"] == "True", worst["reason"], f"role {name}: {worst['message']}")


def _progress_said(executor: Mapping[str, Any] | None) -> Mapping[str, Any]:
    condition = find_condition(executor or {}, PROGRESSING)
    if executor is None or condition is None:
        return _UNSAID
    behind = int(condition.get("observedGeneration", 0)) < int(executor["metadata"].get("generation", 0))
    return _BEHIND if behind else condition


def ready_summary(roles: Sequence[RoleView]) -> str:
    """Ready instances by type, for the printer: ``P 1/1 D 2/2``."""
    parts = []
    for kind in ("Prefill", "Decode"):
        of_kind = [role for role in roles if role.type == kind]
        ready = sum(int(role.status.get("readyReplicas", 0)) for role in of_kind)
        parts.append(f"{kind[0]} {ready}/{sum(role.replicas for role in of_kind)}")
    return " ".join(parts)


def frontend_view(
    deployment: Mapping[str, Any], wanted: int, pods: Sequence[PodView], running: int, routed: int
) -> FrontendView:
    """Reads the frontend's Deployment and its ``pods``; pods that it is replacing do not count as ready.

    ``running`` counts pods that can be talked to, ``routed`` those of them that have the routes.
    """
    status = deployment.get("status", {})
    trouble = next((f"{pod.name}: {pod.error or pod.stuck}" for pod in pods if pod.error or pod.stuck), "")
    if int(status.get("observedGeneration", 0)) < int(deployment["metadata"].get("generation", 0)):
        return FrontendView(wanted, 0, running, routed, trouble)
    old = int(status.get("replicas", 0)) - int(status.get("updatedReplicas", 0))
    ready = max(0, int(status.get("readyReplicas", 0)) - old)
    return FrontendView(wanted, min(ready, wanted), running, routed, trouble)


def pick_endpoint(frontends: Sequence[PodView], service: str, before: str) -> str:
    """Base URL of the API: the Service, or a frontend pod where pod IPs are loopback and no Service can lead to them.

    The one picked ``before`` is kept while it runs; without any frontend nothing better is known.
    """
    local = {f"http://{pod.ip}:{names.PORT_API}": pod for pod in frontends if ip_address(pod.ip).is_loopback}
    if not frontends or before in local:
        return before
    if not local:
        return service
    return min(local, key=lambda url: (not local[url].ready, local[url].name))
