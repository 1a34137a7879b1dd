"""Revisions: a hash of what pods are made from, so that a change of anything else restarts nothing.

A revision reads ``<pair>-<rest>``. ``pair`` covers what a prefill and a decode engine must share to understand each
other's KV cache (checkpoint, image), so engines of two TaskExecutors fit together exactly when their pair is equal.
``rest`` covers everything else in the spec that pods are built from. Replicas, gang and the order of chips are in
neither.
"""

import hashlib
import json
from typing import Any

from xdeepserve_operator.api.v1alpha1.executor import TaskExecutorSpec


def revision_of(spec: TaskExecutorSpec, image: str) -> str:
    """Revision of pods built from ``spec`` with ``image``; 21 characters, a valid label value."""
    pair = digest({"model": spec.model.to_wire(), "image": image})
    rest = digest(
        {
            "role": spec.role,
            "superpod": spec.superpod_ref.name,
            "chips": sorted(spec.chips),
            "parallelism": spec.parallelism.to_wire(),
            "tuning": spec.tuning.to_wire(),
            "resources": spec.resources.to_wire(),
        }
    )
    return f"{pair}-{rest}"


def pair_of(revision: str) -> str:
    """The part that prefill and decode must share."""
    return revision.partition("-")[0]


def digest(content: dict[str, Any]) -> str:
    """Ten hexadecimal digits that tell contents apart."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]
