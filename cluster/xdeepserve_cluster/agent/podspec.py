"""What a container's process is started with: its argument list, environment and directory. Pure.

The rules are Kubernetes' own. Variables of `envFrom` come first, `env` overrides them; a value may refer to variables
declared before it by `$(NAME)`; an unknown reference stays as it is, and `$$` is a literal `$`. Command and arguments
see all variables. ConfigMaps and Secrets are read beforehand (`references` names them) and passed in.

A process has no mount namespace. So where a mount's path begins a path in a variable, the command or an argument,
the directory that stands for it takes its place; it is in `XDEEPSERVE_MOUNT_<NAME>` too.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xdeepserve_operator.runtime.kube import Object

Reference = tuple[str, str]  # ("ConfigMap" or "Secret", name)
Objects = Mapping[Reference, Object | None]  # None: there is no such object

_EXPANSION = re.compile(r"\$(\$|\(([^)]*)\))")
_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_SOURCES = {
    "configMapKeyRef": "ConfigMap",
    "secretKeyRef": "Secret",
    "configMapRef": "ConfigMap",
    "secretRef": "Secret",
}


class ConfigError(Exception):
    """The container cannot be started as it is described; the text is for the pod's status."""


@dataclass(frozen=True)
class Mount:
    """`path` in the container is `target` on this machine."""

    name: str
    path: str
    target: Path


@dataclass(frozen=True)
class Launch:
    """All that a process needs to start."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    directory: Path


def launch(
    container: Object, pod: Object, objects: Objects, mounts: Sequence[Mount], base: Mapping[str, str], home: Path
) -> Launch:
    """How to start a container. `pod` carries its final annotations and address. Raises ConfigError.

    `base` are the variables that every process gets; the container's own override them.
    """
    if not container.get("command"):
        raise ConfigError(
            f"container {container['name']}: command is missing; emulated servers run processes and "
            f"cannot know what image {container.get('image', '')!r} would start"
        )
    resolved = environment(container, pod, objects)
    words = [expand(word, resolved) for word in (*container["command"], *container.get("args", []))]
    marks = {f"XDEEPSERVE_MOUNT_{re.sub('[^A-Z0-9]', '_', mount.name.upper())}": str(mount.target) for mount in mounts}
    own = {name: rewrite_paths(value, mounts) for name, value in resolved.items()}
    wanted = Path(rewrite_paths(container.get("workingDir") or str(home), mounts))
    return Launch(
        argv=tuple(rewrite_paths(word, mounts) for word in words),
        environ={**base, **marks, **own},
        directory=wanted if wanted.is_dir() else home,
    )


def references(container: Object) -> set[Reference]:
    """The ConfigMaps and Secrets that a container's environment is made of."""
    sources = [entry.get("valueFrom", {}) for entry in container.get("env", [])] + container.get("envFrom", [])
    return {(kind, source[word]["name"]) for source in sources for word, kind in _SOURCES.items() if source.get(word)}


def environment(container: Object, pod: Object, objects: Objects) -> dict[str, str]:
    """The variables of `envFrom` and `env`, resolved. Raises ConfigError for what is missing and not optional."""
    found: dict[str, str] = {}
    for source in container.get("envFrom", []):
        word = "configMapRef" if source.get("configMapRef") else "secretRef"
        data = _data(_SOURCES[word], source[word], objects)
        found |= {source.get("prefix", "") + key: value for key, value in data.items()}
    for entry in container.get("env", []):
        if "valueFrom" not in entry:
            found[entry["name"]] = expand(entry.get("value", ""), found)
        elif (value := _value_from(entry["name"], entry["valueFrom"], pod, objects)) is not None:
            found[entry["name"]] = value
    return found


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replaces `$(NAME)`; `$$` becomes `$`, and what is unknown stays."""

    def replacement(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else variables.get(match[2], match[0])

    return _EXPANSION.sub(replacement, text)


def rewrite_paths(text: str, mounts: Sequence[Mount]) -> str:
    """Puts directories of this machine where mount paths begin a path: at the start of a word or after `://`."""
    targets = {mount.path.rstrip("/"): str(mount.target) for mount in mounts if mount.path.rstrip("/")}
    if not targets:
        return text
    longest_first = "|".join(re.escape(path) for path in sorted(targets, key=len, reverse=True))
    pattern = rf"(?:(?<![\w./-])|(?<=://))({longest_first})(?![\w.-])"
    return re.sub(pattern, lambda match: targets[match[1]], text)


def field_value(pod: Object, path: str) -> str:
    """A field of the downward API. Raises ConfigError for others."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    if keyed := _KEYED.fullmatch(path):
        return str(metadata.get(keyed[1], {}).get(keyed[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        values = metadata.get(path.removeprefix("metadata."), {})
        return "\n".join(f'{key}="{value}"' for key, value in sorted(values.items()))
    known = {
        "metadata.name": metadata.get("name"),
        "metadata.namespace": metadata.get("namespace"),
        "metadata.uid": metadata.get("uid"),
        "spec.nodeName": spec.get("nodeName"),
        "spec.serviceAccountName": spec.get("serviceAccountName"),
        "status.hostIP": status.get("hostIP"),
        "status.hostIPs": status.get("hostIP"),
        "status.podIP": status.get("podIP"),
        "status.podIPs": status.get("podIP"),
    }
    if path not in known:
        raise ConfigError(f"fieldRef: {path!r} is not supported; known are {', '.join(sorted(known))}")
    return known[path] or ""


def content(kind: str, obj: Object) -> dict[str, bytes]:
    """The keys of a ConfigMap or Secret with their bytes."""
    encoded = obj.get("data" if kind == "Secret" else "binaryData") or {}
    plain = {} if kind == "Secret" else obj.get("data") or {}
    return {key: value.encode() for key, value in plain.items()} | {
        key: base64.b64decode(value) for key, value in encoded.items()
    }


def _value_from(name: str, source: Object, pod: Object, objects: Objects) -> str | None:
    if field := source.get("fieldRef"):
        return field_value(pod, field["fieldPath"])
    for word in ("configMapKeyRef", "secretKeyRef"):
        if selector := source.get(word):
            data = _data(_SOURCES[word], selector, objects)
            if selector["key"] in data:
                return data[selector["key"]]
            if selector.get("optional"):
                return None
            raise ConfigError(f"env {name}: {_SOURCES[word]} {selector['name']!r} has no key {selector['key']!r}")
    raise ConfigError(f"env {name}: valueFrom {', '.join(source)} is not supported by emulated servers")


def _data(kind: str, selector: Object, objects: Objects) -> dict[str, str]:
    obj = objects[kind, selector["name"]]
    if obj is not None:
        return {key: value.decode(errors="replace") for key, value in content(kind, obj).items()}
    if selector.get("optional"):
        return {}
    raise ConfigError(f"{kind} {selector['name']!r} was not found")
