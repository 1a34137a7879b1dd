"""What of a shell's status a listener acts on, as an ETag: an unchanged one is answered with 304 and no body.

A status of hundreds of ranks is half a megabyte, asked for every second, and differs every time in figures that only
move along: how many iterations were run, how many milliseconds ago a heartbeat came. Those are left out; silence
counts, in whole seconds, from the moment it is longer than heartbeats explain.
"""

import hashlib

from flowserve.wire import RankReport, ShellStatus

SILENT_SECONDS = 1.5  # a few heartbeats
_MOVING = {"iterations", "kv_usage"}


def digest(status: ShellStatus) -> str:
    """The ETag, with its quotes."""
    facts = [
        status.instance,
        status.incarnation,
        status.epoch,
        status.ready,
        status.refused_order,
        *map(_facts, status.ranks),
    ]
    return f'"{hashlib.sha256(repr(facts).encode()).hexdigest()[:32]}"'


def _facts(report: RankReport) -> tuple[object, ...]:
    silent = int(report.silent_seconds) if report.silent_seconds > SILENT_SECONDS else 0
    said = report.status
    if said is None:
        return (report.rank, report.host, report.ever_heard, silent)
    stable = [getattr(said, name) for name in type(said).model_fields if name not in _MOVING]
    return (report.rank, report.host, report.ever_heard, silent, round(said.kv_usage, 2), *stable)
