"""How far a node's clock is from ours, from one-way delays alone (as in Cristian 1989, with the answer left out).

A batch sent at s by the node's clock arrives at r by ours: r - s = skew + delay, and delay is at least 0.  The least of
the newest differences is thus the skew plus the least delay.  Where that is as small as a delay alone can be, the clock
is believed: both ends of a connection compare what they saw at one moment, and a guess would only blur it.
"""

from collections import deque
from typing import Final

BELIEVED_S: Final = 0.025  # a batch through a loaded machine takes as long
NEWEST: Final = 64  # batches: a minute of a quiet agent


class ClockSkew:
    """Of one node."""

    def __init__(self) -> None:
        self._differences_s: deque[float] = deque(maxlen=NEWEST)

    def heard(self, *, sent_s: float, received_s: float) -> None:
        """A batch has arrived."""
        self._differences_s.append(received_s - sent_s)

    @property
    def ahead_s(self) -> float:
        """What to add to the node's times; 0 while its clock may be right."""
        least_s = min(self._differences_s, default=0.0)
        return 0.0 if 0.0 <= least_s <= BELIEVED_S else least_s
