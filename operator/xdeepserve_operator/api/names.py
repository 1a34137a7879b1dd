"""Every name that crosses a process boundary: group, labels, annotations, resources, ports, environment.

One place, so that the operator, the emulated servers and the charts cannot disagree.
Ascend's own conventions are kept (device plugin, NodeD): real nodes look the same as emulated ones.
"""

GROUP = "serving.xdeepserve.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
FIELD_MANAGER = "xdeepserve-operator"
AGENT_FIELD_MANAGER = "xdeepserve-agent"

# Labels on children. Values are object names or numbers, so each is a valid label value.
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY = "xdeepserve"
LABEL_COMPONENT = "app.kubernetes.io/component"  # engine | shell | frontend | warm
LABEL_DEPLOYMENT = f"{GROUP}/model-deployment"
LABEL_EXECUTOR = f"{GROUP}/task-executor"
LABEL_EXECUTOR_UID = f"{GROUP}/task-executor-uid"  # of this life of the name
LABEL_REPLICA = f"{GROUP}/replica"
LABEL_GROUP = f"{GROUP}/dp-group"
LABEL_ROLE = f"{GROUP}/role"  # Prefill | Decode
LABEL_REVISION = f"{GROUP}/revision"
LABEL_ATTEMPT = f"{GROUP}/attempt"
COMPONENT_ENGINE = "engine"
COMPONENT_SHELL = "shell"
COMPONENT_FRONTEND = "frontend"
COMPONENT_WARM = "warm"  # an engine that waits for its assignment

# The replicas that a ModelDeployment last asked of a TaskExecutor: only a change of it touches /scale again.
ANNOTATION_REQUESTED_REPLICAS = f"{GROUP}/requested-replicas"
ANNOTATION_APPLY_EXPERTS = f"{GROUP}/apply-experts"  # on an ExpertPlacement: apply a plan at once; a new value, again
ANNOTATION_CHANGE_CAUSE = "kubernetes.io/change-cause"  # kubectl's: why a revision was made

# The server that a warm engine is meant for, known before the scheduler says so.
ANNOTATION_SERVER = f"{GROUP}/server"

# Ascend's device plugin and node labels.
RESOURCE_DIE = "huawei.com/Ascend910"  # one a die
NODE_LABEL_ACCELERATOR = "accelerator"  # huawei-Ascend910
NODE_LABEL_ACCELERATOR_TYPE = "accelerator-type"  # module-910b-8 | module-a3-16-super-pod
NODE_LABEL_CHIP = "node.kubernetes.io/npu.chip.name"  # 910B | 910C
NODE_LABEL_SUPERPOD = "huawei.com/topotree.superpodid"
NODE_LABEL_SERVER = "huawei.com/topotree.serverid"
NODE_ANNOTATION_UNHEALTHY = "huawei.com/Ascend910-Unhealthy"  # "Ascend910-3,Ascend910-4"
NODE_ANNOTATION_FAULT = "huawei.com/Ascend910-Fault"  # JSON list of {npu_name, fault_level L1..L6, fault_code}
POD_ANNOTATION_DIES = "huawei.com/AscendReal"  # dies given to a pod: "Ascend910-3,Ascend910-4"
ENV_DIES = "ASCEND_VISIBLE_DEVICES"  # their numbers: "3,4"
DIE_PREFIX = "Ascend910-"

# What an engine's container is told by its environment; the rest is in its configuration document.
ENV_ENGINE_CONFIG = "XDEEPSERVE_CONFIG"  # JSON document: EngineConfig, ShellConfig or FrontendConfig
ENV_CONTROL_TOKEN = "XDEEPSERVE_CONTROL_TOKEN"
ENV_API_KEYS = "XDEEPSERVE_API_KEYS"  # comma-separated, optional
ENV_POD_IP = "POD_IP"
ENV_MODELS_DIR = "XDEEPSERVE_MODELS_DIR"  # what file:///models/ stands for on this node; default /models
ENV_SHM_DIR = "XCCL_SHM_DIR"  # die memory shared between the pods of a host; default /dev/shm

PORT_API = 8000  # OpenAI routes on a frontend, generation on an engine
PORT_CONTROL = 9000  # membership, status, routes; only with the control token
PORT_DOORBELL = 9001  # UDP: wakes a parked engine
PORT_FABRIC = 9002  # XCCL between engines of different hosts; only with the control token


def die_name(number: int) -> str:
    """The device plugin's name of a die: ``Ascend910-3``."""
    return f"{DIE_PREFIX}{number}"


def parse_dies(annotation: str | None) -> frozenset[int]:
    """Numbers of the dies in an annotation of comma-separated device names; foreign entries are skipped."""
    names = (part.strip() for part in (annotation or "").split(","))
    numbers = (name.removeprefix(DIE_PREFIX) for name in names if name.startswith(DIE_PREFIX))
    return frozenset(int(number) for number in numbers if number.isdecimal())
