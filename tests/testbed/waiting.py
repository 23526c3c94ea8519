"""Waits for a real part: polls until the observation is as wanted, and reports the last one at a timeout."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

PATIENCE_S: Final = (
    120.0  # a loaded two-core machine starts things slowly; on an idle one nothing takes a tenth of this
)

T = TypeVar("T")


def wait_for(
    observe: Callable[[], T],
    wanted: Callable[[T], object] = bool,
    *,
    what: str,
    timeout_s: float = PATIENCE_S,
    interval_s: float = 0.05,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Return the first observation that is `wanted` (default: that is true); `TimeoutError` names the last one."""
    deadline_s = clock() + timeout_s
    while True:
        seen = observe()
        if wanted(seen):
            return seen
        if clock() >= deadline_s:
            raise TimeoutError(f"no {what} within {timeout_s:g} s; last seen: {seen!r}")
        sleep(interval_s)
