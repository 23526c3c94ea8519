"""Effects of the workload and the host that make steps long without broken hardware: see `CpuWaits` for the host.

    w_s  = max over ranks of C_rs - median of C_s          the gain of step s if all ranks were equal
    W    = sum of w_s / sum of T_s                         waiting share
    G_s  = median over ranks of the compute gaps C_s       common part

docs/explanation/faults/slow.md, "Workload effects"
"""

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np

from faults.fabric import Floats
from faults.observations import Observation, Process

MIN_STEPS: Final = 24
MIN_WAITING: Final = 0.08  # of the step; healthy lab ranks lose 3 % to the last of eight
ONE_RANK: Final = 0.5
FEW: Final = 0.15  # of the steps
CONCENTRATED_SHARE: Final = 0.7
TOGETHER: Final = 4.0  # times the usual gap
SAME: Final = 0.25  # scatter between ranks of a pause that all take
KEPT: Final = 64  # polls of a rank
SPAN_S: Final = 5.0  # the newest that count


class Cause(StrEnum):
    """Of lost time that no node causes."""

    IMBALANCE = "data imbalance"
    PAUSES = "short pauses of single ranks"
    TOGETHER = "all ranks pause together"


@dataclass(frozen=True, slots=True)
class Lost:
    cause: Cause
    share: float


def lost(gap_s: Floats, step_s: float) -> tuple[Lost, ...]:
    """Return the cause that the compute gaps (step x rank) of the last steps show, at a usual step of `step_s`."""
    if len(gap_s) < MIN_STEPS or gap_s.shape[1] < 3 or step_s <= 0:
        return ()
    found = [_together(gap_s, step_s), _single(gap_s, step_s)]
    return tuple(each for each in found if each is not None)


def _together(gap_s: Floats, step_s: float) -> Lost | None:
    common = np.median(gap_s, axis=1)
    usual = float(np.median(common))
    scatter = np.median(np.abs(gap_s - common[:, None]), axis=1)
    pauses = (common > TOGETHER * max(usual, 1e-3)) & (scatter < SAME * common)
    extra_s = float((common[pauses] - usual).sum())
    total_s = step_s * len(gap_s) + extra_s
    return Lost(Cause.TOGETHER, extra_s / total_s) if extra_s >= MIN_WAITING * total_s else None


def _single(gap_s: Floats, step_s: float) -> Lost | None:
    waits = gap_s.max(axis=1) - np.median(gap_s, axis=1)
    share = float(waits.sum()) / (step_s * len(gap_s))
    if share < MIN_WAITING:
        return None
    by_rank = np.bincount(gap_s.argmax(axis=1), weights=waits, minlength=gap_s.shape[1]) / waits.sum()
    if by_rank.max() > ONE_RANK:
        return None
    few = max(1, int(FEW * len(waits)))
    concentrated = float(np.sort(waits)[-few:].sum() / waits.sum()) >= CONCENTRATED_SHARE
    return Lost(Cause.PAUSES if concentrated else Cause.IMBALANCE, share)


class Waited(NamedTuple):
    """Wait for a core, beyond the median of all ranks."""

    seconds: float
    from_s: float
    until_s: float


class CpuWaits:
    """How long each rank waited for a core, against its peers: the host's effect on a rank.

        Q_r = waited_r(last poll) - waited_r(last poll before `since`)     run-queue time of its main thread, by kernel
        q_r = Q_r - median over ranks of Q

    A rank that lost e in total since then waits for a core if q is at least half of e.  Without the kernel's figure the
    result is unknown.
    """

    def __init__(self, ranks: int) -> None:
        self._observed: list[deque[tuple[float, float]]] = [deque(maxlen=KEPT) for _ in range(ranks)]

    def observe(self, observation: Observation) -> None:
        rank, values = observation.rank, observation.values
        if not isinstance(values, Process) or values.waited_s is None:
            return
        if rank is None or not 0 <= rank < len(self._observed):
            return
        of_rank = self._observed[rank]
        if of_rank and (values.waited_s < of_rank[-1][1] or observation.at_s < of_rank[-1][0]):
            of_rank.clear()  # another process
        of_rank.append((observation.at_s, values.waited_s))

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
    if not polls:
        return None
    at_s, waited_s = next((poll for poll in reversed(polls) if poll[0] <= from_s), polls[0])
    return Waited(polls[-1][1] - waited_s, at_s, polls[-1][0])
