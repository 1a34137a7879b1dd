"""Names of children fit in a label when the names of their parents keep to their bounds."""

import re

from xdeepserve_operator.api.v1alpha1.kinds import DP_GROUP, MODEL_DEPLOYMENT, TASK_EXECUTOR, Kind

LONGEST_ROLE = "r" * 15
LONGEST_LABEL = 63


def longest(kind: Kind) -> str:
    """The longest name that the kind's rules allow."""
    (bound,) = [found[1] for rule in kind.rules if (found := re.fullmatch(r"size\(.*\) <= (\d+)", rule.expression))]
    return "n" * int(bound)


def test_a_role_of_any_deployment_has_a_valid_executor_name() -> None:
    assert len(f"{longest(MODEL_DEPLOYMENT)}-{LONGEST_ROLE}") <= len(longest(TASK_EXECUTOR))


def test_the_last_group_of_any_executor_has_a_valid_name() -> None:
    assert len(f"{longest(TASK_EXECUTOR)}-255-dp1023") <= len(longest(DP_GROUP))


def test_every_other_child_has_a_name_that_is_a_label() -> None:
    deployment, executor, group = longest(MODEL_DEPLOYMENT), longest(TASK_EXECUTOR), longest(DP_GROUP)
    children = [f"{deployment}-frontend", f"{deployment}-control", f"{executor}-255-shell", f"{group}-99999"]
    assert [name for name in children if len(name) > LONGEST_LABEL] == []
