"""The API server refuses every manifest that breaks a static rule, naming the field and the rule."""

from typing import Any

import pytest
from admission_samples import (
    DP_GROUP,
    EXPERT_PLACEMENT,
    FAULT_INJECTION,
    MODEL_DEPLOYMENT,
    SAMPLES,
    SCALING_POLICY,
    SUPERPOD,
    TASK_EXECUTOR,
    Object,
    cel_rules,
    changed,
)

DECODE_ROLE = MODEL_DEPLOYMENT["spec"]["roles"][1]
PREFILL_ROLE = MODEL_DEPLOYMENT["spec"]["roles"][0]
DECODE_ON_910C = "Decode runs on 910C only"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["kind"])
async def test_a_good_object_is_taken(admission: Any, sample: Object) -> None:
    assert (await admission.create(sample))["metadata"]["name"] == sample["metadata"]["name"]


# (object, field that is changed, its value, field that the message names, rule that the message states)
REFUSED = [
    # Decode on 910C only: wherever a chip is named.
    (MODEL_DEPLOYMENT, "spec.roles.1.chips", ["910B"], "spec.roles[1].chips", DECODE_ON_910C),
    (MODEL_DEPLOYMENT, "spec.roles.1.chips", ["910C", "910B"], "spec.roles[1].chips", DECODE_ON_910C),
    (TASK_EXECUTOR, "spec.chips", ["910B"], "spec.chips", DECODE_ON_910C),
    (DP_GROUP, "spec.chip", "910B", "spec.chip", DECODE_ON_910C),
    # Chips and dies.
    (TASK_EXECUTOR, "spec.chips", [], "spec.chips", "at least 1 items"),
    (TASK_EXECUTOR, "spec.chips", ["910A"], "spec.chips[0]", 'supported values: "910B", "910C"'),
    (TASK_EXECUTOR, "spec.chips", ["910C", "910C"], "spec.chips", "each chip at most once"),
    (MODEL_DEPLOYMENT, "spec.roles.0.chips", ["910B", "910B"], "spec.roles[0].chips", "each chip at most once"),
    (
        MODEL_DEPLOYMENT,
        "spec.roles.0",
        {"name": "p", "type": "Prefill", "chips": ["910B"], "parallelism": {"tp": 16}},
        "spec.roles[0].parallelism.tp",
        "at most 8 on 910B",
    ),
    (
        TASK_EXECUTOR,
        "spec",
        {**TASK_EXECUTOR["spec"], "role": "Prefill", "chips": ["910B"], "parallelism": {"tp": 9}},
        "spec.parallelism.tp",
        "at most 8 on 910B",
    ),
    (
        DP_GROUP,
        "spec",
        {**DP_GROUP["spec"], "role": "Prefill", "chip": "910B", "dies": 9},
        "spec.dies",
        "at most 8 on a 910B server",
    ),
    (SUPERPOD, "spec.pools.0.diesPerNode", 16, "spec.pools[0].diesPerNode", "at most 8 on a 910B server"),
    (SUPERPOD, "spec.pools.1.diesPerNode", 17, "spec.pools[1].diesPerNode", "less than or equal to 16"),
    (SUPERPOD, "spec.pools.0.planes", ["UB"], "spec.pools[0].planes", "UB joins 910C servers only"),
    (SUPERPOD, "spec.pools.1.planes", ["UB", "UB"], "spec.pools[1].planes", "each plane at most once"),
    (SUPERPOD, "spec.pools.0.nodeSelector", {"k" * 318: "v"}, "spec.pools[0].nodeSelector", "at most 317 characters"),
    (SUPERPOD, "spec.superpodId", "", "spec.superpodId", "at least 1 chars"),
    (SUPERPOD, "spec.pools.1.name", "b910", "spec.pools[1]", "Duplicate value"),
    # Roles.
    (MODEL_DEPLOYMENT, "spec.roles.1", {**PREFILL_ROLE, "name": "more"}, "spec.roles", "one role of type Decode"),
    (MODEL_DEPLOYMENT, "spec.roles.0", {**DECODE_ROLE, "name": "more"}, "spec.roles", "one role of type Prefill"),
    (MODEL_DEPLOYMENT, "spec.roles.1.name", "prefill", "spec.roles[1]", "Duplicate value"),
    (MODEL_DEPLOYMENT, "spec.roles.1.name", "a-role-too-long-", "spec.roles[1].name", "may not be more than 15"),
    (MODEL_DEPLOYMENT, "spec.roles.1.name", "Decode", "spec.roles[1].name", "should match"),
    (MODEL_DEPLOYMENT, "spec.roles.1.type", "Encode", "spec.roles[1].type", 'supported values: "Prefill", "Decode"'),
    # Parallelism and other bounds.
    (TASK_EXECUTOR, "spec.parallelism", {"dp": 4, "ep": 3}, "spec.parallelism.ep", "must divide dp x tp"),
    (TASK_EXECUTOR, "spec.parallelism", {"dp": 2, "ep": 4}, "spec.parallelism.ep", "must divide dp x tp"),
    (MODEL_DEPLOYMENT, "spec.roles.1.parallelism", {"ep": 2}, "spec.roles[1].parallelism.ep", "must divide dp x tp"),
    (TASK_EXECUTOR, "spec.parallelism", {"dp": 0}, "spec.parallelism.dp", "greater than or equal to 1"),
    (TASK_EXECUTOR, "spec.replicas", 257, "spec.replicas", "less than or equal to 256"),
    (TASK_EXECUTOR, "spec.replicas", -1, "spec.replicas", "greater than or equal to 0"),
    (TASK_EXECUTOR, "spec.replicas", 1.5, "spec.replicas", "must be of type integer"),
    (TASK_EXECUTOR, "spec.model.uri", "https://elsewhere/model", "spec.model.uri", "should match"),
    (TASK_EXECUTOR, "spec.model.uri", "file:///" + "m" * 1024, "spec.model.uri", "may not be more than 1024"),
    (TASK_EXECUTOR, "spec.model.maxContextTokens", 15, "spec.model.maxContextTokens", "greater than or equal to 16"),
    (TASK_EXECUTOR, "spec.resources", {"memory": "1GB"}, "spec.resources.memory", "should match"),
    (TASK_EXECUTOR, "spec.resources", {"cpu": "0.25m"}, "spec.resources.cpu", "should match"),
    (MODEL_DEPLOYMENT, "spec.frontend", {"maxBodyBytes": 1}, "spec.frontend.maxBodyBytes", "greater than or equal"),
    (MODEL_DEPLOYMENT, "spec.slo", {"ttftMilliseconds": 5}, "spec.slo.tpotMilliseconds", "Required value"),
    (MODEL_DEPLOYMENT, "spec.superPodRef", {"name": "pod.a"}, "spec.superPodRef.name", "should match"),
    # Faults.
    (FAULT_INJECTION, "spec.target", {"superPod": "pod-a"}, "spec.target", "names a node, or a taskExecutor"),
    (FAULT_INJECTION, "spec.target.die", 3, "spec.target.die", "needs node"),
    (FAULT_INJECTION, "spec.target", {"node": "server-3", "die": 16}, "spec.target.die", "less than or equal to 15"),
    (
        FAULT_INJECTION,
        "spec",
        {"target": {"node": "server-3", "die": 3}, "fault": {"type": "NodeLoss"}},
        "spec.target.die",
        "NodeLoss strikes a whole server",
    ),
    (FAULT_INJECTION, "spec.fault.type", "Fire", "spec.fault.type", "supported values"),
    (FAULT_INJECTION, "spec.durationSeconds", 0, "spec.durationSeconds", "greater than or equal to 1"),
    # Rollouts.
    (
        TASK_EXECUTOR,
        "spec.update",
        {"maxUnavailable": 0, "maxSurge": 0},
        "spec.update.maxUnavailable",
        "at least 1 with maxSurge",
    ),
    (
        MODEL_DEPLOYMENT,
        "spec.roles.1.update",
        {"maxUnavailable": 0},
        "spec.roles[1].update.maxUnavailable",
        "at least 1 with maxSurge",
    ),
    (MODEL_DEPLOYMENT, "spec.rollout", {"historyLimit": 0}, "spec.rollout.historyLimit", "greater than or equal to 1"),
    (MODEL_DEPLOYMENT, "spec.priority", 10**9 + 1, "spec.priority", "less than or equal to"),
    # Scaling.
    (SCALING_POLICY, "spec.roles.0.minReplicas", 5, "spec.roles[0].minReplicas", "at most maxReplicas"),
    (SCALING_POLICY, "spec.roles.1.name", "prefill", "spec.roles[1]", "Duplicate value"),
    (
        SCALING_POLICY,
        "spec.prefillRatio",
        {"minPercent": 200, "maxPercent": 100},
        "spec.prefillRatio.minPercent",
        "at most maxPercent",
    ),
    (SCALING_POLICY, "spec.mode", "Dreaming", "spec.mode", "supported values"),
    (SCALING_POLICY, "metadata.name", "s" * 64, "metadata.name", "at most 63 characters"),
    # Experts.
    (EXPERT_PLACEMENT, "spec.mode", "Static", "spec.mapRef", "needed for mode Static, and only there"),
    (EXPERT_PLACEMENT, "spec.mapRef", {"name": "mine"}, "spec.mapRef", "needed for mode Static, and only there"),
    (
        EXPERT_PLACEMENT,
        "spec.policy",
        {"name": "greedy", "maxMovesPerLayer": 4},
        "spec.policy.maxMovesPerLayer",
        "only policies search and incremental limit their moves",
    ),
    (
        MODEL_DEPLOYMENT,
        "spec.roles.1.expertPlacement",
        {"mode": "Static"},
        "spec.roles[1].expertPlacement.mapRef",
        "needed for mode Static, and only there",
    ),
    (
        MODEL_DEPLOYMENT,
        "spec.roles.1.expertPlacement",
        {"policy": {"name": "greedy", "maxMovesPerLayer": 4}},
        "spec.roles[1].expertPlacement.policy.maxMovesPerLayer",
        "only policies search and incremental limit their moves",
    ),
    (EXPERT_PLACEMENT, "spec.rankSpeeds", [{"rank": 1, "percent": 0}], "spec.rankSpeeds[0].percent", "greater than or"),
    (EXPERT_PLACEMENT, "spec.evacuate", [1, 1], "spec.evacuate", "each rank at most once"),
    (EXPERT_PLACEMENT, "spec.redundantSlots", 65, "spec.redundantSlots", "less than or equal to"),
    (EXPERT_PLACEMENT, "metadata.name", "e" * 47, "metadata.name", "at most 46 characters"),
    # Names must leave room for the names of children.
    (MODEL_DEPLOYMENT, "metadata.name", "m" * 31, "metadata.name", "at most 30 characters"),
    (MODEL_DEPLOYMENT, "metadata.name", "chat.v2", "metadata.name", "lower-case letters, digits and '-' only"),
    *((sample, "metadata.name", "2chat", "metadata.name", "from a letter") for sample in SAMPLES),
    (TASK_EXECUTOR, "metadata.name", "t" * 47, "metadata.name", "at most 46 characters"),
    (DP_GROUP, "metadata.name", "g" * 58, "metadata.name", "at most 57 characters"),
    (SUPERPOD, "metadata.name", "s" * 64, "metadata.name", "at most 63 characters"),
    (FAULT_INJECTION, "metadata.name", "f" * 64, "metadata.name", "at most 63 characters"),
    # Unknown fields, as kubectl asks for by default.
    (MODEL_DEPLOYMENT, "spec.roles.1.paralelism", {"dp": 2}, "spec.roles[1].paralelism", "unknown field"),
    (SUPERPOD, "spec.superPodId", "pod-a", "spec.superPodId", "unknown field"),
    (TASK_EXECUTOR, "spec.parallelism", {"pp": 2}, "spec.parallelism.pp", "unknown field"),
]


@pytest.mark.parametrize(
    ("sample", "path", "value", "field", "rule"),
    REFUSED,
    ids=[f"{row[0]['kind']}-{row[3]}-{row[4]}" for row in REFUSED],
)
async def test_a_broken_rule_is_refused(
    admission: Any, sample: Object, path: str, value: object, field: str, rule: str
) -> None:
    message = await admission.refusal(changed(sample, path, value))
    assert field in message
    assert rule in message


def test_no_rule_was_forgotten() -> None:
    tried = [(row[0]["kind"], row[4]) for row in REFUSED]
    rules = [(kind, message) for kind, message in cel_rules() if not message.startswith("immutable")]
    assert [(kind, rule) for kind, rule in rules if not any(kind == k and words in rule for k, words in tried)] == []


@pytest.mark.parametrize(
    ("sample", "path", "value"),
    [
        (MODEL_DEPLOYMENT, "metadata.name", "m" * 30),
        (TASK_EXECUTOR, "metadata.name", "t" * 46),
        (DP_GROUP, "metadata.name", "g" * 57),
        (TASK_EXECUTOR, "spec.replicas", 0),
        (TASK_EXECUTOR, "spec.parallelism", {"dp": 1024, "ep": 1024}),
        (TASK_EXECUTOR, "spec.parallelism", {"dp": 1, "tp": 16, "ep": 4}),
        (MODEL_DEPLOYMENT, "spec.roles.0.chips", ["910C", "910B"]),
        (FAULT_INJECTION, "spec.target", {"node": "server-3.rack", "die": 0}),
    ],
)
async def test_the_edge_of_a_bound_is_taken(admission: Any, sample: Object, path: str, value: object) -> None:
    await admission.create(changed(sample, path, value))
