"""A namespace of a cluster as the commands use it: what is asked for and is not there is told with what is there."""

from collections.abc import Sequence
from dataclasses import dataclass

from xdeepserve_operator.runtime.kube import ApiError, KubeApi, NotFound, Object
from xdeepserve_operator.runtime.resources import NAMESPACES, Resource

TOLD = 8  # names in a message


class CliError(Exception):
    """What a person did or asked for cannot be; the message says what to do."""


@dataclass(frozen=True)
class Place:
    """A connection and the namespace that is meant. Raises ``CliError`` for what is not there."""

    api: KubeApi
    namespace: str

    async def list(self, resource: Resource, *, labels: str = "", everywhere: bool = False) -> Sequence[Object]:
        """Objects of the namespace, or of all, each with its kind."""
        try:
            items, _ = await self.api.list(resource, None if everywhere else self.namespace, labels=labels)
        except NotFound as error:
            raise CliError(
                f"this cluster has no kind {resource.kind} ({resource.api_version}): is it the one that you meant "
                "(--kubeconfig, --context)? The chart xdeepserve-crds brings our kinds; 'xdeepserve install' installs "
                "it into a local cluster"
            ) from error
        return [{"apiVersion": resource.api_version, "kind": resource.kind, **item} for item in items]

    async def get(self, resource: Resource, name: str) -> Object:
        """An object of the namespace."""
        try:
            return await self.api.get(resource, name, self.namespace)
        except NotFound:
            raise await self.none_such(name, resource) from None

    async def patch(self, resource: Resource, name: str, patch: Object) -> Object:
        """Merges ``patch`` into an object of the namespace."""
        try:
            return await self.api.patch(resource, name, patch, self.namespace)
        except NotFound:
            raise await self.none_such(name, resource) from None

    async def none_such(self, name: str, *resources: Resource) -> CliError:
        """What to say when none of ``resources`` has an object ``name``: what there is, or where else to look."""
        what = f"there is no {' or '.join(one.kind for one in resources)} {name!r} in namespace {self.namespace}"
        found = [(one.kind, [str(obj["metadata"]["name"]) for obj in await self.list(one)]) for one in resources]
        listed = [f"{kind} {_some(names)}" for kind, names in found if names]
        if listed:
            return CliError(f"{what}; there is {', '.join(listed)}")
        if not await self._exists():
            return CliError(f"there is no namespace {self.namespace!r}; choose one with --namespace")
        return CliError(f"{what}, nor any other; 'kubectl get {resources[0].plural} -A' lists those of all namespaces")

    async def _exists(self) -> bool:
        """Whether the namespace is there, as far as one may know."""
        try:
            await self.api.get(NAMESPACES, self.namespace)
        except ApiError as error:
            return not isinstance(error, NotFound)
        return True


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - TOLD} more" if len(names) > TOLD else ""
    return ", ".join(names[:TOLD]) + more
