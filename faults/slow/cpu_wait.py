"""How long each rank has waited for a core, against its peers: what the host does to a rank is not its own doing.

    Q_r = waited_r(last look) - waited_r(last look before `since`)     run-queue time of its first thread (the kernel's)
    q_r = Q_r - median over ranks of Q

A rank that has come late by e in all since then, with q at least half of e, waits for a core.  Where the kernel does
not tell, nothing is known.
"""

from collections import deque
from typing import Final, NamedTuple

import numpy as np

from faults.observations import Observation, Process

KEPT: Final = 64  # looks of a rank
SPAN_S: Final = 5.0  # the last of them that count


class Waited(NamedTuple):
    """For a core, beyond the median of all ranks."""

    seconds: float
    from_s: float
    until_s: float


class CpuWaits:
    """Run-queue times of all ranks."""

    def __init__(self, ranks: int) -> None:
        self._seen: list[deque[tuple[float, float]]] = [deque(maxlen=KEPT) for _ in range(ranks)]

    def observe(self, seen: Observation) -> None:
        """Take a look at a process."""
        rank, values = seen.rank, seen.values
        if not isinstance(values, Process) or values.waited_s is None:
            return
        if rank is None or not 0 <= rank < len(self._seen):
            return
        of_rank = self._seen[rank]
        if of_rank and (values.waited_s < of_rank[-1][1] or seen.at_s < of_rank[-1][0]):
            of_rank.clear()  # another process
        of_rank.append((seen.at_s, values.waited_s))

    def waited(self, rank: int, since_s: float, now_s: float) -> Waited | None:
        """Of one rank, since then or the last `SPAN_S`; None where it or its peers are not told."""
        from_s = max(since_s, now_s - SPAN_S)
        told = [_between(looks, from_s) for looks in self._seen]
        known = [each.seconds for each in told if each is not None]
        own = told[rank]
        if own is None or len(known) < 2:
            return None
        return Waited(own.seconds - float(np.median(known)), from_s, own.until_s)


def _between(looks: deque[tuple[float, float]], from_s: float) -> Waited | None:
    """From the last look before to the last of all."""
    if not looks:
        return None
    at_s, waited_s = next((look for look in reversed(looks) if look[0] <= from_s), looks[0])
    return Waited(looks[-1][1] - waited_s, at_s, looks[-1][0])
