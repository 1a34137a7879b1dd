"""What the installation, not the user's objects, decides about pods."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineImage:
    """Container image of engines, TE-shells and frontends; its user must be a number other than 0."""

    name: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
