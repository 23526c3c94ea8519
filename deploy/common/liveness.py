"""Whether a loop still makes progress, for a health endpoint in another thread.

Each turn of the loop sets the time by which the next turn begins.  A loop that waits keeps setting it; a loop that is
stuck does not.
"""

import time
from collections.abc import Callable
from typing import Final

ALLOWANCE: Final = 2.0  # of the longest turn: a loop on a busy machine is not stuck yet


class Liveness:
    def __init__(self, *, steady_s: Callable[[], float] = time.monotonic) -> None:
        self._steady_s = steady_s
        self._next_by_s = float("-inf")

    def beat(self, *, longest_s: float) -> None:
        """Record the start of a turn that takes at most this long."""
        self._next_by_s = self._steady_s() + ALLOWANCE * longest_s

    def is_alive(self) -> bool:
        """Return whether the loop has begun and no turn is overdue."""
        return self._steady_s() <= self._next_by_s
