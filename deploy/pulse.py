"""Whether a loop still turns, for whoever asks from another thread.

Each turn says when the next one begins at the latest.  A loop that waits for what does not come says it in time; one
that is stuck says nothing, and a thread beside it can tell.
"""

import time
from collections.abc import Callable


class Pulse:
    """Of one loop."""

    def __init__(self, *, steady_s: Callable[[], float] = time.monotonic) -> None:
        self._steady_s = steady_s
        self._next_by_s = float("-inf")

    def beat(self, *, within_s: float) -> None:
        """A turn begins, and the next one will within this time."""
        self._next_by_s = self._steady_s() + within_s

    def is_alive(self) -> bool:
        """Whether the loop has begun and no turn is overdue."""
        return self._steady_s() <= self._next_by_s
