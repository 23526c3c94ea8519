"""Whether a loop still turns, for whoever asks from another thread.

Each turn says when the next one begins at the latest.  A loop that waits for what does not come says it in time; one
that is stuck says nothing, and a thread beside it can tell.
"""

import time
from collections.abc import Callable
from typing import Final

ALLOWANCE: Final = 2.0  # of the longest turn there is: a machine that is busy is not yet stuck


class Pulse:
    """Of one loop."""

    def __init__(self, *, steady_s: Callable[[], float] = time.monotonic) -> None:
        self._steady_s = steady_s
        self._next_by_s = float("-inf")

    def beat(self, *, longest_s: float) -> None:
        """A turn begins, which takes so long at most."""
        self._next_by_s = self._steady_s() + ALLOWANCE * longest_s

    def is_alive(self) -> bool:
        """Whether the loop has begun and no turn is overdue."""
        return self._steady_s() <= self._next_by_s
