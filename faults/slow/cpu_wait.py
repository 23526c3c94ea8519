"""How long each rank waited for a core, against its peers: the host's effect on a rank.

    Q_r = waited_r(last poll) - waited_r(last poll before `since`)     run-queue time of its main thread (the kernel's)
    q_r = Q_r - median over ranks of Q

A rank that lost e in total since then waits for a core if q is at least half of e.  Without the kernel's figure the
result is unknown.
"""

from collections import deque
from typing import Final, NamedTuple

import numpy as np

from faults.observations import Observation, Process

KEPT: Final = 64  # polls of a rank
SPAN_S: Final = 5.0  # the newest that count


class Waited(NamedTuple):
    """Wait for a core, beyond the median of all ranks."""

    seconds: float
    from_s: float
    until_s: float


class CpuWaits:
    def __init__(self, ranks: int) -> None:
        self._observed: list[deque[tuple[float, float]]] = [deque(maxlen=KEPT) for _ in range(ranks)]

    def observe(self, seen: Observation) -> None:
        rank, values = seen.rank, seen.values
        if not isinstance(values, Process) or values.waited_s is None:
            return
        if rank is None or not 0 <= rank < len(self._observed):
            return
        of_rank = self._observed[rank]
        if of_rank and (values.waited_s < of_rank[-1][1] or seen.at_s < of_rank[-1][0]):
            of_rank.clear()  # another process
        of_rank.append((seen.at_s, values.waited_s))

    def waited(self, rank: int, since_s: float, now_s: float) -> Waited | None:
        """Return the wait of a rank, since then or over the last `SPAN_S`; None without data of it or its peers."""
        from_s = max(since_s, now_s - SPAN_S)
        reported = [_between(polls, from_s) for polls in self._observed]
        known = [each.seconds for each in reported if each is not None]
        own = reported[rank]
        if own is None or len(known) < 2:
            return None
        return Waited(own.seconds - float(np.median(known)), from_s, own.until_s)


def _between(polls: deque[tuple[float, float]], from_s: float) -> Waited | None:
    """Return the wait between the last polls before each time."""
    if not polls:
        return None
    at_s, waited_s = next((look for look in reversed(polls) if look[0] <= from_s), polls[0])
    return Waited(polls[-1][1] - waited_s, at_s, polls[-1][0])
