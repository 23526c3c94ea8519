"""Polls a real part until an observation matches, and reports the last one at a timeout."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

PATIENCE_S: Final = 120.0  # a loaded two-core machine is slow; on an idle one no wait takes a tenth of this

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
    """Return the first observation that is `wanted` (default: that is truthy); `TimeoutError` names the last one."""
    deadline_s = clock() + timeout_s
    while True:
        observed = observe()
        if wanted(observed):
            return observed
        if clock() >= deadline_s:
            raise TimeoutError(f"no {what} within {timeout_s:g} s; last observed: {observed!r}")
        sleep(interval_s)
