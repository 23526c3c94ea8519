"""Limits the request rate: a token bucket per caller, refilled continuously.

The buckets are in memory.  `api.server.rate_sharing` charges them with what the other replicas have granted, so that
all replicas together grant about one limit.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from api.server.problems import ProblemError

CALLERS_MAX = 10_000  # callers in memory; a caller that was dropped starts with a full bucket
SHARED_MAX = 1_000  # callers that one round shares, the busiest first
UNSHARED_SHARE = 0.05  # of the rate: a caller is shared once it has spent this much since the last round


@dataclass(slots=True)
class _Bucket:
    level: float
    at_s: float
    period: int  # changes whenever the bucket was full, so that what was spent before no longer counts
    spent: float = 0.0  # in this period
    shared: float = 0.0  # of `spent`


class RateLimiter:
    """Takes one token per request."""

    def __init__(self, *, per_s: float, burst: int, monotonic_s: Callable[[], float]) -> None:
        self._per_s = per_s
        self._burst = burst
        self._monotonic_s = monotonic_s
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._periods = 0

    @property
    def refill_s(self) -> float:
        """Return how long an empty bucket takes to be full."""
        return self._burst / self._per_s

    def spend(self, caller: str) -> None:
        """Take one token from a caller's bucket; 429 with `Retry-After` when it is empty."""
        bucket = self._refilled(caller)
        if bucket.level < 1.0:
            wait_s = math.ceil((1.0 - bucket.level) / self._per_s)
            raise ProblemError(
                status=HTTPStatus.TOO_MANY_REQUESTS,
                kind="rate-limited",
                detail=f"more than {self._per_s:g} requests a second with bursts of {self._burst}",
                headers={"Retry-After": str(wait_s)},
            )
        bucket.level -= 1.0
        bucket.spent += 1.0

    def charge(self, caller: str, spent: float) -> None:
        """Take what another replica has granted to the caller; the level may fall below zero."""
        self._refilled(caller).level -= spent

    def take_usage(self) -> dict[tuple[str, int], float]:
        """Return what busy callers have spent here in their current period, by caller and period."""
        least = max(1.0, UNSHARED_SHARE * self._per_s)
        busy = [(caller, each) for caller, each in self._buckets.items() if each.spent - each.shared >= least]
        busy.sort(key=lambda found: found[1].shared - found[1].spent)
        usage: dict[tuple[str, int], float] = {}
        for caller, bucket in busy[:SHARED_MAX]:
            bucket.shared = usage[caller, bucket.period] = bucket.spent
        return usage

    def _refilled(self, caller: str) -> _Bucket:
        now_s = self._monotonic_s()
        bucket = self._buckets.pop(caller, None)
        level = self._burst if bucket is None else bucket.level + (now_s - bucket.at_s) * self._per_s
        if bucket is None or level >= self._burst:
            self._periods += 1
            bucket = _Bucket(level=self._burst, at_s=now_s, period=self._periods)
        else:
            bucket.level, bucket.at_s = level, now_s
        self._buckets[caller] = bucket
        if len(self._buckets) > CALLERS_MAX:
            self._buckets.popitem(last=False)
        return bucket
