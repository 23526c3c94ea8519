"""Workload effects that make steps long without broken hardware, from the waits of some tens of steps.

    w_s  = max over ranks of C_rs - median of C_s          the gain of step s if all ranks were equal
    W    = sum of w_s / sum of T_s                         waiting share
    G_s  = median over ranks of the compute gaps C_s       common part

data imbalance     W at least `least_waiting`, and no rank has half of it: long batches fall on every rank in turn
pauses             W as above, but most of it in few steps, not of one rank: garbage collection, page faults
all pause at once  G_s at least four times its median in some steps, equal for all: checkpoint, evaluation, a long
                   idle between steps (dlrover#1727 shows the cost of taking that for a hang)
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from faults.fabric import Floats

FEWEST_STEPS: Final = 24
MIN_WAITING: Final = 0.08  # of the step; healthy lab ranks lose 3 % to the last of eight
ONE_RANK: Final = 0.5
FEW: Final = 0.15  # of the steps
MAX_OF_IT: Final = 0.7
TOGETHER: Final = 4.0  # times the usual gap
SAME: Final = 0.25  # scatter between ranks of a pause that all take


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
    if len(gap_s) < FEWEST_STEPS or gap_s.shape[1] < 3 or step_s <= 0:
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
    concentrated = float(np.sort(waits)[-few:].sum() / waits.sum()) >= MAX_OF_IT
    return Lost(Cause.PAUSES if concentrated else Cause.IMBALANCE, share)
