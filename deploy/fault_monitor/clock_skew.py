"""The offset of a node's clock, from one-way delays (Cristian 1989, without the reply).

A batch sent at s by the node's clock arrives at r by the monitor's: r - s = skew + delay, and delay is at least 0.  The
minimum of the newest differences is the skew plus the minimum delay.  If a delay alone can explain this value, no
correction is applied: both ends of a connection are compared at the same time, and an inexact correction would blur the
comparison.
"""

from collections import deque
from typing import Final

MAX_DELAY_S: Final = 0.025  # of a batch on a loaded machine
NEWEST: Final = 64  # batches: two minutes of an idle agent


class ClockSkew:
    def __init__(self) -> None:
        self._differences_s: deque[float] = deque(maxlen=NEWEST)

    def add(self, *, sent_s: float, received_s: float) -> None:
        self._differences_s.append(received_s - sent_s)

    @property
    def ahead_s(self) -> float:
        """Return the correction of the node's times; 0 while its clock can be right."""
        least_s = min(self._differences_s, default=0.0)
        return 0.0 if 0.0 <= least_s <= MAX_DELAY_S else least_s
