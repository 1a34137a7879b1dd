"""What is kept of objects: little, and all that decisions are made on."""

import json
from typing import Any

from xdeepserve_operator.api import names
from xdeepserve_operator.planner.pods import view_pod
from xdeepserve_operator.runtime.cache import trim

DIES = {"requests": {names.RESOURCE_DIE: "2"}, "limits": {names.RESOURCE_DIE: "2"}}


def engine(**metadata: Any) -> dict[str, Any]:
    labels = {
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_COMPONENT: "engine",
        names.LABEL_GROUP: "te-0-dp3",
        names.LABEL_REPLICA: "0",
        names.LABEL_ATTEMPT: "1",
        names.LABEL_REVISION: "r",
    }
    ended = {"terminated": {"exitCode": 78, "message": "xdeepserve: BadCheckpoint: no such file"}}
    return {
        "kind": "Pod",
        "metadata": {
            "name": "te-0-dp3-1",
            "namespace": "n",
            "uid": "u",
            "resourceVersion": "7",
            "labels": labels,
            "annotations": {names.POD_ANNOTATION_DIES: "Ascend910-3,Ascend910-4"},
            "managedFields": [{"manager": "x" * 2000}],
            **metadata,
        },
        "spec": {
            "nodeName": "s0",
            "containers": [{"name": "engine", "image": "x", "env": [{"name": "y" * 2000}], "resources": DIES}],
            "initContainers": [{"name": "init", "resources": DIES}],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "PodScheduled", "status": "False", "lastTransitionTime": "2025-01-01T00:00:00Z"},
            ],
            "containerStatuses": [
                {
                    "name": "engine",
                    "imageID": "z" * 200,
                    "state": {"running": {"startedAt": "2025-01-01T00:00:00Z"}},
                    "lastState": ended,
                }
            ],
        },
    }


def kept(obj: dict[str, Any]) -> dict[str, Any]:
    found = trim(obj)
    assert found is not None
    return found


def test_decisions_see_the_same_pod():
    for pod in (engine(), engine(deletionTimestamp="now", deletionGracePeriodSeconds=0)):
        fresh = pod["metadata"] | {"uid": ""}  # nothing remembered
        assert view_pod(kept(pod) | {"metadata": kept(pod)["metadata"] | {"uid": ""}}) == view_pod(
            pod | {"metadata": fresh}
        )


def test_what_nobody_reads_is_not_kept():
    assert len(json.dumps(kept(engine()))) < 1500


def test_a_pod_of_another_tenant_holds_what_it_holds():
    theirs = engine(labels={"app": "theirs"})
    assert view_pod(kept(theirs)).dies_requested == 2
    only_init = theirs | {"spec": theirs["spec"] | {"containers": [{"name": "c", "resources": {}}]}}
    assert view_pod(kept(only_init) | {"metadata": {"name": "p"}}).dies_requested == 2
    assert trim(theirs | {"spec": {"containers": [{"name": "c", "resources": {}}]}}) is None
