"""Volumes as directories. Pure up to `write`: which files a volume holds is computed, then written.

ConfigMap, Secret, downwardAPI and projected volumes are plain files, written when the pod starts (tokens again before
they expire) and not followed afterwards. emptyDir is an empty directory, hostPath the directory itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from xdeepserve_cluster.agent.podspec import ConfigError, Mount, Objects, Reference, content, field_value
from xdeepserve_operator.runtime.kube import Object

TERMINATION_LOG = "termination-log"


class TokenRequest(NamedTuple):
    """A service account token that a volume wants; audiences empty means the API server's own."""

    audience: str
    seconds: int


Tokens = Mapping[TokenRequest, str]
Files = dict[PurePosixPath, bytes]


def references(pod: Object) -> set[Reference]:
    """The ConfigMaps and Secrets that the pod's volumes are made of."""
    return {
        (kind, body.get("secretName") or body["name"])
        for volume in pod["spec"].get("volumes", [])
        for kind, body in _objects(volume)
    }


def token_requests(pod: Object) -> set[TokenRequest]:
    """The tokens that the pod's volumes hold."""
    return {
        _token_request(source["serviceAccountToken"])
        for volume in pod["spec"].get("volumes", [])
        for source in volume.get("projected", {}).get("sources") or []
        if source.get("serviceAccountToken")
    }


def files(volume: Object, pod: Object, objects: Objects, tokens: Tokens) -> Files:
    """Content of a volume by path. Raises ConfigError for what is missing or cannot be emulated."""
    if "emptyDir" in volume or "hostPath" in volume:
        return {}
    found: Files = {}
    if "projected" in volume:
        for source in volume["projected"].get("sources") or []:
            found |= _source_files(source, pod, objects)
        return found | token_files(volume, tokens)
    for kind, body in _objects(volume):
        found |= _object_files(kind, body, objects)
    if "downwardAPI" in volume:
        found |= _downward_files(volume["downwardAPI"], pod)
    elif not list(_objects(volume)):
        kinds = ", ".join(sorted(volume.keys() - {"name"}))
        raise ConfigError(f"volume {volume['name']}: {kinds} is not supported by emulated servers")
    return found


def token_files(volume: Object, tokens: Tokens) -> Files:
    """The tokens of a volume, which are written anew before they expire."""
    sources = volume.get("projected", {}).get("sources") or []
    wanted = [source["serviceAccountToken"] for source in sources if source.get("serviceAccountToken")]
    return {PurePosixPath(token["path"]): tokens[_token_request(token)].encode() for token in wanted}


def directory(volume: Object, pod_directory: Path) -> Path:
    """Where a volume's files are."""
    if host_path := volume.get("hostPath"):
        return Path(host_path["path"])
    return pod_directory / "volumes" / str(volume["name"])


def mounts(container: Object, pod: Object, pod_directory: Path) -> list[Mount]:
    """What the paths of a container's mounts stand for, its termination message's file among them."""
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
    found = []
    for mount in container.get("volumeMounts", []):
        target = directory(volumes[mount["name"]], pod_directory) / mount.get("subPath", "")
        found.append(Mount(mount["name"], mount["mountPath"], target))
    log = container.get("terminationMessagePath") or "/dev/termination-log"
    return [*found, Mount(TERMINATION_LOG, log, pod_directory / "termination" / str(container["name"]))]


def write(target: Path, found: Files) -> None:
    """Writes files below `target`, each one atomically; no path leads out of it. Raises ConfigError."""
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path, data in found.items():
        if path.is_absolute() or ".." in path.parts:
            raise ConfigError(f"volume path {str(path)!r} leads out of the volume")
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        scratch = file.with_name(f"..{file.name}.new")
        scratch.write_bytes(data)
        scratch.chmod(0o600)
        os.replace(scratch, file)


def _objects(source: Object) -> Iterator[tuple[str, Object]]:
    if "projected" in source:
        for inner in source["projected"].get("sources") or []:
            yield from _objects(inner)
    for word, kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
        if word in source:
            yield kind, source[word]


def _source_files(source: Object, pod: Object, objects: Objects) -> Files:
    if "serviceAccountToken" in source:
        return {}
    if "downwardAPI" in source:
        return _downward_files(source["downwardAPI"], pod)
    found = [_object_files(kind, body, objects) for kind, body in _objects(source)]
    if not found:
        raise ConfigError(f"projected volume source {', '.join(source)} is not supported by emulated servers")
    return found[0]


def _object_files(kind: str, body: Object, objects: Objects) -> Files:
    name = body.get("secretName") or body["name"]
    obj = objects[kind, name]
    if obj is None:
        if body.get("optional"):
            return {}
        raise ConfigError(f"{kind} {name!r} was not found")
    data = content(kind, obj)
    items = body.get("items") or [{"key": key, "path": key} for key in data]
    if missing := [item["key"] for item in items if item["key"] not in data and not body.get("optional")]:
        raise ConfigError(f"{kind} {name!r} has no key {missing[0]!r}")
    return {PurePosixPath(item["path"]): data[item["key"]] for item in items if item["key"] in data}


def _downward_files(body: Object, pod: Object) -> Files:
    found: Files = {}
    for item in body.get("items") or []:
        if not item.get("fieldRef"):
            raise ConfigError("downwardAPI: only fieldRef is supported by emulated servers")
        found[PurePosixPath(item["path"])] = field_value(pod, item["fieldRef"]["fieldPath"]).encode()
    return found


def _token_request(token: Object) -> TokenRequest:
    return TokenRequest(token.get("audience", ""), int(token.get("expirationSeconds", 3600)))
