"""The history of a ModelDeployment: numbers, what is forgotten, and going back.

The revision in force has the highest number; one that comes back gets a new one, so numbers only grow. Going back is an
edit of the spec like any other: what the revision holds is put into the present spec, role by role. Replicas, budgets
and everything else that a revision does not hold stay as they are; roles that it does not know stay too.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any


def number_for(revision: str, numbers: Mapping[str, int]) -> int:
    """Number of the revision that is in force now; ``numbers`` are those given so far."""
    highest = max(numbers.values(), default=0)
    return highest if numbers.get(revision) == highest > 0 else highest + 1


def expired(numbers: Mapping[str, int], limit: int) -> list[str]:
    """Revisions beyond the ``limit`` newest."""
    return sorted(numbers, key=lambda revision: -numbers[revision])[limit:]


def restored(spec: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """The ModelDeployment's ``spec`` gone back to the revision whose content is ``data``."""
    back = deepcopy(dict(spec))
    known = {role["name"]: role for role in data["roles"]}
    back["model"] = deepcopy(data["model"])
    back["roles"] = [role | deepcopy(known.get(role["name"], {})) for role in back["roles"]]
    return back


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """What differs between two revisions' contents: path, old and new value; None where there is none."""
    before, after = _flat(old), _flat(new)
    paths = sorted(before.keys() | after.keys())
    return [(path, before.get(path), after.get(path)) for path in paths if before.get(path) != after.get(path)]


def _flat(content: Any, path: str = "") -> dict[str, Any]:
    """Leaves by path; list entries with a name are told by it."""
    if isinstance(content, Mapping):
        items = [(f"{path}.{key}" if path else key, value) for key, value in content.items()]
    elif isinstance(content, list) and all(isinstance(one, Mapping) and "name" in one for one in content):
        items = [(f"{path}[{one['name']}]", {k: v for k, v in one.items() if k != "name"}) for one in content]
    else:
        return {path: content}
    return {deeper: leaf for key, value in items for deeper, leaf in _flat(value, key).items()}
