"""Pods from plain YAML, run as processes by the emulated servers of a real cluster."""

from __future__ import annotations

import json

from agent_kubectl import Kubectl, pod

SERVE = """
import http.server, json, os
print(json.dumps({name: os.environ[name] for name in ("POD_IP", "COLOR", "TOKEN", "URL", "ASCEND_VISIBLE_DEVICES")}))
print(open("/etc/app/app.conf").read())
http.server.HTTPServer((os.environ["POD_IP"], 9000), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def test_servers_are_nodes_of_a_superpod(kubectl: Kubectl) -> None:
    nodes = kubectl.get("nodes", "-l", "huawei.com/topotree.superpodid=pod-a")["items"]
    dies = {node["metadata"]["name"]: node["status"]["allocatable"]["huawei.com/Ascend910"] for node in nodes}
    expected = {f"pod-a-910b-{index}": "8" for index in range(2)} | {f"pod-a-910c-{index}": "16" for index in range(4)}
    assert dies == expected


def test_a_pod_with_everything(kubectl: Kubectl) -> None:
    data = {"color": "blue", "app.conf": "answer=42"}
    probe = {"httpGet": {"path": "/", "port": "web"}}
    container = {
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "URL", "value": "http://$(POD_IP):9000"},
            {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "app", "key": "color"}}},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "app", "key": "token"}}},
        ],
        "ports": [{"name": "web", "containerPort": 9000}],
        "volumeMounts": [{"name": "app", "mountPath": "/etc/app"}],
        "resources": {"limits": {"huawei.com/Ascend910": "2"}},
        "readinessProbe": probe,
        "livenessProbe": probe,
    }
    kubectl.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app"}, "data": data},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "app"}, "stringData": {"token": "s3cret"}},
        pod(
            "whole",
            ["python", "-c", SERVE],
            container=container,
            volumes=[{"name": "app", "configMap": {"name": "app"}}],
        ),
    )
    kubectl.until("pod/whole", "condition=Ready")
    seen = kubectl.get("pod", "whole")
    address = seen["status"]["podIP"]
    log = kubectl("logs", "whole").splitlines()
    assert json.loads(log[0]) == {
        "POD_IP": address,
        "URL": f"http://{address}:9000",
        "COLOR": "blue",
        "TOKEN": "s3cret",
        "ASCEND_VISIBLE_DEVICES": seen["metadata"]["annotations"]["huawei.com/AscendReal"].replace("Ascend910-", ""),
    }
    assert log[1] == "answer=42"
    assert kubectl("logs", "whole", "--tail=1", "--limit-bytes=5") == log[-1][:5] or "GET / " in kubectl(
        "logs", "whole"
    )
    refused = kubectl.run("logs", "whole", "--timestamps")
    assert "servers here do not record when a line was written" in refused.stderr
    assert kubectl.run("exec", "whole", "--", "true").returncode != 0
    kubectl("delete", "pod", "whole")


def test_a_crash_is_told_by_status_logs_and_events(kubectl: Kubectl) -> None:
    script = "echo 'xdeepserve: BadCheckpoint: no such tensor'; exit 78"
    kubectl.apply(pod("crash", ["sh", "-c", script], container={"terminationMessagePolicy": "FallbackToLogsOnError"}))
    kubectl.until("pod/crash", "jsonpath={.status.containerStatuses[0].state.waiting.reason}=CrashLoopBackOff")
    [status] = kubectl.get("pod", "crash")["status"]["containerStatuses"]
    ended = status["lastState"]["terminated"]
    assert (ended["exitCode"], ended["message"]) == (78, "xdeepserve: BadCheckpoint: no such tensor\n")
    assert kubectl("logs", "crash", "--previous") == ended["message"]
    assert "back-off 10s restarting failed container=c" in kubectl("describe", "pod", "crash")
    kubectl("delete", "pod", "crash")


def test_logs_are_followed_to_the_end(kubectl: Kubectl) -> None:
    script = "for i in 1 2 3; do echo line $i; sleep 0.1; done"
    kubectl.apply(pod("follow", ["sh", "-c", script], restartPolicy="Never"))
    kubectl.until("pod/follow", "jsonpath={.status.containerStatuses[0].containerID}")
    assert kubectl("logs", "--follow", "follow") == "line 1\nline 2\nline 3\n"
    kubectl.until("pod/follow", "jsonpath={.status.phase}=Succeeded")
    kubectl("delete", "pod", "follow")


def test_a_service_account_may_do_what_its_role_says(kubectl: Kubectl) -> None:
    rbac = "rbac.authorization.k8s.io"
    role = {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]}
    binding = {
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader"}],
    }
    tool = kubectl.cluster.tools / "kubectl"
    script = f"{tool} get pods -o name; {tool} get secrets; cat /var/run/secrets/kubernetes.io/serviceaccount/namespace"
    kubectl.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": "reader"}, **role},
        {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": {"name": "reader"}, **binding},
        pod("reader", ["sh", "-c", script], restartPolicy="Never", serviceAccountName="reader"),
    )
    kubectl.until("pod/reader", "jsonpath={.status.phase}=Succeeded")
    log = kubectl("logs", "reader")
    assert "pod/reader" in log
    assert f'User "system:serviceaccount:{kubectl.namespace}:reader" cannot list resource "secrets"' in log
    assert log.endswith(kubectl.namespace)


def test_an_eviction_ends_a_pod(kubectl: Kubectl) -> None:
    kubectl.apply(pod("evicted", ["sleep", "60"]))
    kubectl.until("pod/evicted", "condition=Ready")
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "evicted", "namespace": kubectl.namespace},
    }
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/evicted/eviction"
    kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))
    kubectl.until("pod/evicted", "delete")
