"""Which replicas of a TaskExecutor are taken down: too many of them, or of an old revision.

Scaling down starts at the highest number. A change of revision replaces one serving replica at a time; a replica that
does not serve anyway costs nothing, so it is replaced at once and never holds the others up. Replacing means giving up
the old DP groups: the replica is then placed anew, at the new revision, once its old pods are gone. The next one waits
until that replica serves. A replica that has no place for lack of dies does not hold the others up either: replacing
one in place asks for no more dies than it gives back.
"""

from collections.abc import Sequence

from xdeepserve_operator.planner.instance import InstanceView


def surplus(views: Sequence[InstanceView], wanted: int) -> tuple[InstanceView, ...]:
    """Replicas beyond ``wanted``, the highest first."""
    return tuple(sorted((view for view in views if view.replica >= wanted), key=lambda view: -view.replica))


def outdated(views: Sequence[InstanceView], revision: str) -> tuple[InstanceView, ...]:
    """Replicas to replace now because they run another revision than ``revision``."""
    held = [view for view in views if view.holds_dies]
    old = [view for view in held if not view.has_revision(revision)]
    idle = tuple(view for view in old if not view.ready)
    if idle:
        return idle
    in_between = any(not view.ready for view in held) or any(view.draining and not view.placed for view in views)
    return () if in_between else tuple(old[:1])


def half_placed(views: Sequence[InstanceView]) -> tuple[InstanceView, ...]:
    """Replicas that hold some of their dies and never ran: what a crash in the middle of admission can leave."""
    return tuple(view for view in views if view.holds_dies and not view.placed and view.epoch == 0)
