"""The operator, killed by SIGKILL after so many writes: ``python mortal_operator.py WRITES``.

A write counts when its answer is there and it changed something, so that every life comes further by that many; others
that are on their way at that moment may arrive or not. A new life applies what it finds once more, which changes
nothing: an object's resourceVersion is then one that was seen before. The Lease and events do not count, for they are
not reconciled.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from xdeepserve_operator.__main__ import main
from xdeepserve_operator.runtime.kube import KubeApi
from xdeepserve_operator.runtime.resources import EVENTS, LEASES

WRITES = frozenset({"create", "apply", "patch", "delete"})


def make_mortal(writes: int) -> None:
    """From now on this process has ``writes`` writes to live."""
    left, newest, send = writes, 0, KubeApi._object

    async def counted(self: KubeApi, verb: str, method: str, resource: Any, path: str, **options: Any) -> Any:
        nonlocal left, newest
        answer = await send(self, verb, method, resource, path, **options)
        version = int(answer.get("metadata", {}).get("resourceVersion") or 0)
        changed = verb == "delete" or (verb in WRITES and version > newest)
        newest = max(newest, version)
        if changed and resource not in (LEASES, EVENTS):
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return answer

    KubeApi._object = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    make_mortal(int(sys.argv[1]))
    sys.exit(main())
