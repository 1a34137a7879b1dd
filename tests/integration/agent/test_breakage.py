"""What breaks on purpose, and what an agent that was killed leaves behind."""

from __future__ import annotations

import os
import signal

from agent_kubectl import Kubectl, fault, pod

from xdeepserve_cluster import processes
from xdeepserve_cluster.agent.host import POD_MARKER
from xdeepserve_cluster.controlplane import Cluster, status, up
from xdeepserve_cluster.progress import Progress
from xdeepserve_operator.api.names import LABEL_EXECUTOR

DIES = {"910B": 8, "910C": 16}
DIE = {"container": {"resources": {"limits": {"huawei.com/Ascend910": "1"}}}}


def unhealthy(kubectl: Kubectl, node: str) -> str:
    annotations = kubectl.get("node", node)["metadata"]["annotations"]
    return str(annotations["huawei.com/Ascend910-Unhealthy"])


def agent_of(cluster: Cluster) -> processes.ProcessId:
    components = status(cluster.name, root=cluster.directory.parent).components
    [pid] = [part.pid for part in components if part.name == "agent" and part.pid]
    process = processes.identify(pid)
    assert process is not None
    return process


def repair(cluster: Cluster) -> None:
    up(cluster.spec, root=cluster.directory.parent, progress=Progress())


def test_a_die_breaks_under_a_pod_and_is_mended(kubectl: Kubectl) -> None:
    kubectl.apply(fault("early", "DieKill", taskExecutor="chat-decode"))
    kubectl.until("faultinjection/early", "condition=Injected=False")
    kubectl.apply(pod("victim", ["sleep", "60"], labels={LABEL_EXECUTOR: "chat-decode"}, **DIE))
    kubectl.until("faultinjection/early", "condition=Injected")
    struck = kubectl.get("faultinjection", "early")["status"]
    node, die = struck["node"], struck["die"]
    assert struck["pods"] == [f"{kubectl.namespace}/victim"]
    kubectl.until("pod/victim", "jsonpath={.status.containerStatuses[0].state.waiting.reason}=RunContainerError")
    assert kubectl.get("pod", "victim")["metadata"]["annotations"]["huawei.com/AscendReal"] == f"Ascend910-{die}"
    left = DIES[node.split("-")[2].upper()] - 1
    kubectl.until(f"node/{node}", f"jsonpath={{.status.allocatable['huawei\\.com/Ascend910']}}={left}")
    assert unhealthy(kubectl, node) == f"Ascend910-{die}"
    kubectl("delete", "faultinjection", "early")
    kubectl.until("pod/victim", "condition=Ready")
    assert unhealthy(kubectl, node) == ""
    kubectl("delete", "pod", "victim")


def test_an_agent_that_was_killed_comes_back_with_its_pods(kubectl: Kubectl) -> None:
    cluster = kubectl.cluster
    marked = (POD_MARKER, str(cluster.directory / "agent"))
    kubectl.apply(pod("survivor", ["sleep", "60"], **DIE))
    kubectl.until("pod/survivor", "condition=Ready")
    before = kubectl.get("pod", "survivor")
    [orphan] = processes.marked(*marked)
    os.kill(agent_of(cluster).pid, signal.SIGKILL)
    repair(cluster)
    kubectl.until("pod/survivor", "jsonpath={.status.containerStatuses[0].restartCount}=1")
    assert not orphan.alive()
    [restarted] = processes.marked(*marked)
    assert restarted != orphan
    after = kubectl.get("pod", "survivor")
    assert after["status"]["podIP"] == before["status"]["podIP"]
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]
    kubectl("delete", "pod", "survivor")


def test_an_agent_that_is_stopped_leaves_no_process(kubectl: Kubectl) -> None:
    cluster = kubectl.cluster
    kubectl.apply(pod("deaf", ["sh", "-c", "trap '' TERM; setsid sleep 60 & while :; do sleep 0.1; done"]))
    kubectl.until("pod/deaf", "condition=Ready")
    assert processes.stop([agent_of(cluster)], grace_s=10) == []
    assert processes.marked(POD_MARKER, str(cluster.directory / "agent")) == []
    repair(cluster)
    kubectl("delete", "pod", "deaf")
