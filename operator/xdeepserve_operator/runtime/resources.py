"""The resources this project touches, by the words a URL needs."""

from dataclasses import dataclass

from xdeepserve_operator.api.names import GROUP, VERSION


@dataclass(frozen=True)
class Resource:
    """One resource of the API: ``/apis/{group}/{version}/…/{plural}``, or ``/api/v1`` for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``group/version``, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """URL path of a collection (no name), an object or its subresource; all namespaces without one."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *(part for part in (name, subresource) if part)])


PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
SERVICES = Resource("", "v1", "services", "Service")
SERVICEACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
EVENTS = Resource("", "v1", "events", "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
CONTROLLERREVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
SUPERPODS = Resource(GROUP, VERSION, "superpods", "SuperPod", namespaced=False)
MODELDEPLOYMENTS = Resource(GROUP, VERSION, "modeldeployments", "ModelDeployment")
TASKEXECUTORS = Resource(GROUP, VERSION, "taskexecutors", "TaskExecutor")
DPGROUPS = Resource(GROUP, VERSION, "dpgroups", "DPGroup")
FAULTINJECTIONS = Resource(GROUP, VERSION, "faultinjections", "FaultInjection")
SCALINGPOLICIES = Resource(GROUP, VERSION, "scalingpolicies", "ScalingPolicy")
EXPERTPLACEMENTS = Resource(GROUP, VERSION, "expertplacements", "ExpertPlacement")
