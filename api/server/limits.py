"""Limits the request rate: a token bucket per caller, refilled continuously.

The buckets are in memory and per process: they protect this process from a runaway caller and meter nobody.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from api.server.problems import ProblemError

CALLERS_MAX = 10_000  # callers in memory; a caller that was dropped starts with a full bucket


@dataclass(slots=True)
class _Bucket:
    level: float
    at_s: float


class RateLimiter:
    """Takes one token per request."""

    def __init__(self, *, per_s: float, burst: int, monotonic_s: Callable[[], float]) -> None:
        self._per_s = per_s
        self._burst = burst
        self._monotonic_s = monotonic_s
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def spend(self, caller: str) -> None:
        """Take one token from a caller's bucket; 429 with `Retry-After` when it is empty."""
        now_s = self._monotonic_s()
        bucket = self._buckets.pop(caller, None) or _Bucket(level=self._burst, at_s=now_s)
        bucket.level = min(self._burst, bucket.level + (now_s - bucket.at_s) * self._per_s)
        bucket.at_s = now_s
        self._buckets[caller] = bucket
        if len(self._buckets) > CALLERS_MAX:
            self._buckets.popitem(last=False)
        if bucket.level < 1.0:
            wait_s = math.ceil((1.0 - bucket.level) / self._per_s)
            raise ProblemError(
                status=HTTPStatus.TOO_MANY_REQUESTS,
                kind="rate-limited",
                detail=f"more than {self._per_s:g} requests a second with bursts of {self._burst}",
                headers={"Retry-After": str(wait_s)},
            )
        bucket.level -= 1.0
