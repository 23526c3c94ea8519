"""Selects a node's observations within the budget: all changes, and of the rest as much as the budget allows."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from deploy.telemetry.diag import Sample
from faults.observations import Collective, Heartbeat, Observation, PointToPoint, ProbeReturned, Process, Socket

_BACKOFF: Final = Socket._fields.index("backoff")
_ALIVE: Final = frozenset("RSD")
FAILED: Final = "failed"  # phase of a heartbeat, as in `fleetwright.collectives`
CPU_EVERY_S: Final = 1.0


class SocketChanges:
    """Detects urgent polls: a peer is gone, or the kernel's backoff has grown."""

    def __init__(self) -> None:
        self._peers: NDArray[np.int64] | None = None
        self._backoff = 0

    def is_in(self, sample: Sample) -> bool:
        """Compare with the previous poll."""
        before, self._peers = self._peers, sample.peers
        waited, self._backoff = self._backoff, max(sample.rows[:, _BACKOFF].tolist(), default=0)
        if before is None:
            return False
        same = before is sample.peers or np.array_equal(before, sample.peers)
        gone = not same and np.setdiff1d(before, sample.peers, assume_unique=True).size > 0
        return gone or self._backoff > waited


class ProcessChanges:
    """Drops unchanged processes: their state changes seldom, their CPU time always."""

    def __init__(self) -> None:
        self._last: dict[int | None, Observation] = {}

    def kept(self, observations: Sequence[Observation]) -> list[Observation]:
        return [seen for seen in observations if not isinstance(seen.values, Process) or self._changed(seen)]

    def _changed(self, seen: Observation) -> bool:
        before = self._last.get(seen.rank)
        if before is not None and _same_state(before, seen) and seen.at_s - before.at_s < CPU_EVERY_S:
            return False
        self._last[seen.rank] = seen
        return True


def _same_state(before: Observation, seen: Observation) -> bool:
    one, other = before.values, seen.values
    if not isinstance(one, Process) or not isinstance(other, Process):
        return False
    return one.state == other.state or (one.state in _ALIVE and other.state in _ALIVE)


class Alarms:
    """Reports a stopped or ended process, and a failed collective of a rank, once each."""

    def __init__(self) -> None:
        self._ringing: set[tuple[int | None, type]] = set()

    def ring(self, observations: Sequence[Observation]) -> bool:
        """Return whether one of these is new."""
        rung = False
        for seen in observations:
            values = seen.values
            if not isinstance(values, Process | Heartbeat):
                continue
            key = (seen.rank, type(values))
            alarming = values.state not in _ALIVE if isinstance(values, Process) else values.phase == FAILED
            rung |= alarming and key not in self._ringing
            (self._ringing.add if alarming else self._ringing.discard)(key)
        return rung


def thinned(samples: list[Sample], most: int) -> list[Sample]:
    """Return at most so many polls, evenly spaced, the newest included: counters are cumulative."""
    if len(samples) <= most:
        return samples
    picked = np.linspace(len(samples) - 1, 0, num=max(1, most), endpoint=most > 1).round().astype(int)
    return [samples[at] for at in sorted(set(picked.tolist()))]


def affordable(others: Sequence[Observation], most: int) -> list[Observation]:
    """Return at most so many, in order: first rare kinds, then the newest heartbeat of each rank, then the newest.

    Replies to probes come last, because the receivers usually report them too.
    """
    if len(others) <= most:
        return list(others)
    newest_beat = {seen.rank: at for at, seen in enumerate(others) if isinstance(seen.values, Heartbeat)}
    beats = set(newest_beat.values())

    def rank_of(at: int) -> tuple[int, int]:
        values = others[at].values
        if isinstance(values, ProbeReturned):
            return 3, -at
        common = isinstance(values, Collective | PointToPoint | Heartbeat)
        return (0 if not common else 1 if at in beats else 2), -at

    return [others[at] for at in sorted(sorted(range(len(others)), key=rank_of)[:most])]
