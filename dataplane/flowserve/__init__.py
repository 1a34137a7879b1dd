"""FlowServe: the engine of a DP group, its TE-shell and the frontend.

structlog's console renderer imports rich wherever it is installed: 5 MB and 60 ms in each process of an engine, of
which none writes to a console. So structlog is imported here, before anything else does, with rich out of sight.
"""

import sys

if sys.modules.keys().isdisjoint({"structlog", "rich"}):
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog as structlog
    finally:
        del sys.modules["rich"]
