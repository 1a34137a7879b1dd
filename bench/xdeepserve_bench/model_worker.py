"""How ``bench model`` talks to the process of a runtime: one JSON request a line, one JSON answer a line.

``{"call": "decode", "batch": 8, "prompt": 16, "steps": 20}`` -> ``{"seconds": 0.05, …}``. A runtime lives in a process
of its own, so that each has its own number of threads and may have another Python than ours. This module imports
nothing but the standard library: the peers' scripts use it from where it lies.
"""

import json
import time
from collections.abc import Callable
from typing import IO, Any


def serve(runtime: Any, requests: IO[str], answers: IO[str]) -> None:
    """Answers until the requests end. The first line says that the model is loaded."""
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in requests:
        request = json.loads(line)
        answer = getattr(runtime, request.pop("call"))(**request)
        print(json.dumps(answer), file=answers, flush=True)


def timed(call: Callable[[], object]) -> float:
    """How many seconds a call takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
