"""What operator, engines and the agent of a local cluster use: pods are children of the agent's process."""

from dataclasses import dataclass

from xdeepserve_bench.processes import Cost, children, command, cost, family
from xdeepserve_cluster.controlplane import Cluster, status

ENGINE, OPERATOR = "flowserve.engine", "xdeepserve_operator"


@dataclass(frozen=True)
class Usage:
    """Costs by part; ``cpu_seconds`` is the sum over all of them, TE-shells and frontends too."""

    agent: Cost
    operator: Cost
    largest_engine: Cost
    cpu_seconds: float


def usage(cluster: Cluster) -> Usage:
    """Now."""
    components = status(cluster.name, root=cluster.directory.parent).components
    agent = next(one.pid for one in components if one.name == "agent")
    if agent is None:
        raise RuntimeError("the agent of the emulated servers does not run")
    tree = children()
    pods = {pid: sum((cost(each) for each in family(pid, tree)), Cost()) for pid in tree.get(agent, [])}
    names = {pid: command(pid) for pid in pods}
    engines = [used for pid, used in pods.items() if ENGINE in names[pid]]
    return Usage(
        agent=cost(agent),
        operator=sum((used for pid, used in pods.items() if OPERATOR in names[pid]), Cost()),
        largest_engine=max(engines, key=lambda used: used.resident, default=Cost()),
        cpu_seconds=cost(agent).cpu_seconds + sum(used.cpu_seconds for used in pods.values()),
    )
