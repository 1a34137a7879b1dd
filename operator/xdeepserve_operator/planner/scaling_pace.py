"""How fast wishes are followed: windows, steps, periods.

Up, the smallest wish of the window counts; down, the largest: so a wish must have held for the whole window, and load
that flaps within it changes nothing. A role that is seen for the first time is taken to have wished for what it has.
One step moves at most ``maxStep`` instances, and the next of that direction waits for ``periodSeconds``.
"""

from dataclasses import dataclass, replace

from xdeepserve_operator.api.v1alpha1.scaling import ScalingBehavior, ScalingStep

_LONG_AGO = float("-inf")


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered of one role: wishes with their times (seconds, oldest first), and the last steps."""

    wishes: tuple[tuple[float, int], ...] = ()
    last_up: float = _LONG_AGO
    last_down: float = _LONG_AGO

    def wish(self, now: float, instances: int, current: int, behavior: ScalingBehavior) -> "Memory":
        """With one more wish, and without those that no window reaches."""
        wishes = self.wishes or ((now, current),)
        oldest = now - max(behavior.up.window_seconds, behavior.down.window_seconds)
        kept = [one for one in wishes if one[0] > oldest]
        # The last wish before the window still held when the window began.
        before = [one for one in wishes if one[0] <= oldest][-1:]
        same = kept and kept[-1][1] == instances
        return replace(self, wishes=(*before, *kept) if same else (*before, *kept, (now, instances)))

    def stepped(self, now: float, *, up: bool) -> "Memory":
        """After a step."""
        return replace(self, last_up=now) if up else replace(self, last_down=now)


def paced(memory: Memory, current: int, behavior: ScalingBehavior, now: float) -> int:
    """Instances to go to now from ``current``; the newest wish is in ``memory``."""
    up, down = behavior.up, behavior.down
    if memory.wishes[-1][1] > current:
        goal = min(*_held(memory, up, now), current + up.max_step)
        return max(goal, current) if now - memory.last_up >= up.period_seconds else current
    goal = max(*_held(memory, down, now), current - down.max_step)
    return min(goal, current) if now - memory.last_down >= down.period_seconds else current


def _held(memory: Memory, step: ScalingStep, now: float) -> list[int]:
    """Wishes that held at some time in the window."""
    start = now - step.window_seconds
    later = [wish for time, wish in memory.wishes if time > start]
    before = [wish for time, wish in memory.wishes if time <= start]
    return [*before[-1:], *later] if step.window_seconds else [memory.wishes[-1][1]]
