"""Names of children, each a function of its owner's: made twice, a child is still one object.

The API's bounds on the owners' names keep every one of these within the limits of names and label values.
"""


def executor_name(deployment: str, role: str) -> str:
    """TaskExecutor of a role."""
    return f"{deployment}-{role}"


def instance_name(executor: str, replica: int) -> str:
    """One replica of a TaskExecutor, as engines and TE-shells know it."""
    return f"{executor}-{replica}"


def group_name(executor: str, replica: int, index: int) -> str:
    """DPGroup ``index`` of a replica."""
    return f"{instance_name(executor, replica)}-dp{index}"


def engine_pod_name(group: str, attempt: int) -> str:
    """Pod of a DPGroup's attempt."""
    return f"{group}-{attempt}"


def warm_name(executor: str, number: int) -> str:
    """Pod of a warm engine; it keeps this name when it becomes a DPGroup's."""
    return f"{executor}-warm-{number}"


def revision_name(owner: str, revision: str) -> str:
    """ControllerRevision of a TaskExecutor or a ModelDeployment."""
    return f"{owner}-{revision}"


def shell_name(executor: str, replica: int) -> str:
    """TE-shell pod of a replica."""
    return f"{instance_name(executor, replica)}-shell"


def frontend_name(deployment: str) -> str:
    """Deployment and Service of the frontend."""
    return f"{deployment}-frontend"


def control_secret_name(owner: str) -> str:
    """Secret with the control token of a ModelDeployment, or of a TaskExecutor without one."""
    return f"{owner}-control"
