"""Python's garbage collector, kept out of iterations.

Left alone, it runs whenever enough objects were made, in the middle of a forward pass as likely as not, and a full
run looks at every object of the process. So once the model is loaded `settle` sets everything aside that is there by
then, which no later run looks at again, and switches automatic runs off; `tidy` collects at the points that the
engine chooses, between two iterations. A young generation is collected when it has grown, and every OLDER_EVERY-th
time the older ones are too: small heaps, since what was set aside is no part of them.
"""

from __future__ import annotations

import gc
import time

YOUNG = 2000  # objects made since the last run, of those that can be part of a cycle
OLDER_EVERY = 32


def settle() -> None:
    """From now on nothing is collected but by `tidy`. Call it when what lives long has been made."""
    gc.collect()
    gc.freeze()
    gc.disable()


def tidy() -> float:
    """Collects if there may be something to collect; how many seconds that took. Call it between two iterations."""
    young, runs, _ = gc.get_count()
    if young < YOUNG:
        return 0.0
    begun = time.perf_counter()
    gc.collect(2 if runs >= OLDER_EVERY else 0)
    return time.perf_counter() - begun


def release() -> None:
    """Gives the collector back to Python, as it was."""
    gc.unfreeze()
    gc.enable()
